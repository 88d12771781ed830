//! Checks instance groups.

use sequor_proto::model_instance_group::Kind;
use sequor_proto::{ModelConfig, ModelInstanceGroup};

use crate::config::fault::code;
use crate::config::model::report::{Report, nth};
use crate::config::server::file::ServerLimits;

pub(super) fn check(report: &mut Report<'_>) {
    let config = report.config;
    for (i, group) in config.instance_group.iter().enumerate() {
        let kind = group.kind();
        if matches!(kind, Kind::Cpu | Kind::Model) && !group.gpus.is_empty() {
            let what = format!(
                "instance group {} of model {} has kind {} but specifies one or more GPUs",
                group.name,
                config.name,
                kind.as_str_name()
            );
            report.fault(&format!("instance_group[{i}].gpus"), code::INSTANCES, what);
        }
    }
    let active = active(config);
    if let Some(what) = too_many(config, report.limits) {
        report.fault(&nth("instance_group", 0), code::INSTANCES, what);
    }
    if active == 0 {
        let what = format!("every instance group of {} is passive: no request would ever run", config.name);
        report.fault("instance_group[0].passive", code::INSTANCES, what);
    }
}

/// The fault for too many instances. A group has its count of instances on each GPU that it names.
pub(in crate::config::model) fn too_many(config: &ModelConfig, limits: ServerLimits) -> Option<String> {
    let (active, most) = (active(config), limits.instances.min(u32::from(u16::MAX)));
    let what = || {
        let model = &config.name;
        format!("instance_group: {active} instances of {model}, more than the limit of {most} (limits.instances)")
    };
    (active > u64::from(most)).then(what)
}

/// Number of instances that would run.
pub(super) fn active(config: &ModelConfig) -> u64 {
    let of = |g: &ModelInstanceGroup| u64::try_from(g.count).unwrap_or(0).saturating_mul(g.gpus.len().max(1) as u64);
    config.instance_group.iter().filter(|g| !g.passive).map(of).fold(0, u64::saturating_add)
}
