//! Instance groups.

use sequor_proto::model_instance_group::Kind;

use crate::config::fault::code;
use crate::config::model::report::{Report, nth};

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
    let active: i64 = config.instance_group.iter().filter(|g| !g.passive).map(|g| i64::from(g.count)).sum();
    if active > i64::from(u16::MAX) {
        let what = format!("{active} instances of {}: at most {} can be", config.name, u16::MAX);
        report.fault(&nth("instance_group", 0), code::INSTANCES, what);
    }
    if active == 0 {
        let what = format!("every instance group of {} is passive: no request would ever run", config.name);
        report.fault("instance_group[0].passive", code::INSTANCES, what);
    }
}
