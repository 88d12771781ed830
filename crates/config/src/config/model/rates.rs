//! The resources that each instance needs for a run, from `instance_group.rate_limiter`.

use sequor_proto::model_instance_group::Kind;
use sequor_proto::{ModelConfig, ModelInstanceGroup, ModelRateLimiter};

/// The device number of the CPU for resources.
const CPU: u16 = 0;

/// The resources that one instance needs for a run, and its priority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceRate {
    pub resources: Vec<ResourceNeed>,
    /// At least 1. An instance of priority 2 gets half as many turns as one of priority 1.
    pub priority: u32,
}

/// An amount of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceNeed {
    pub name: String,
    /// `None` means that all devices share it.
    pub device: Option<u16>,
    pub count: u32,
}

/// The rate of each instance, in the order of the groups and of the GPUs of a group. Empty if no instance needs anything.
pub(super) fn rates(config: &ModelConfig) -> Vec<Option<InstanceRate>> {
    let groups = config.instance_group.iter().filter(|group| !group.passive);
    let rates: Vec<Option<InstanceRate>> = groups.flat_map(of_group).take(usize::from(u16::MAX)).collect();
    if rates.iter().all(Option::is_none) { Vec::new() } else { rates }
}

fn of_group(group: &ModelInstanceGroup) -> Vec<Option<InstanceRate>> {
    let each = usize::try_from(group.count).unwrap_or(0);
    let devices: Vec<u16> = match group.kind() {
        Kind::Gpu => group.gpus.iter().filter_map(|gpu| u16::try_from(*gpu).ok()).collect(),
        _ => vec![CPU],
    };
    let on = |device| std::iter::repeat_n(group.rate_limiter.as_ref().and_then(|of| rate(of, device)), each);
    devices.into_iter().flat_map(on).collect()
}

fn rate(of: &ModelRateLimiter, device: u16) -> Option<InstanceRate> {
    let resources = of.resources.iter().filter(|resource| resource.count > 0).map(|resource| ResourceNeed {
        name: resource.name.clone(),
        device: (!resource.global).then_some(device),
        count: resource.count,
    });
    let resources: Vec<ResourceNeed> = resources.collect();
    (!resources.is_empty()).then(|| InstanceRate { resources, priority: of.priority.max(1) })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::model::text;

    fn need(name: &str, device: Option<u16>, count: u32) -> ResourceNeed {
        ResourceNeed { name: name.to_owned(), device, count }
    }

    #[test]
    fn every_instance_gets_the_rate_limits_of_its_group() {
        let config = text::parse(
            Path::new("config.pbtxt"),
            "instance_group [ { kind: KIND_CPU count: 2 rate_limiter { resources [ { name: 'R' count: 3 }, { name: 'G' global: true count: 1 } ] priority: 2 } }, \
             { kind: KIND_GPU gpus: [ 0, 2 ] count: 1 rate_limiter { resources { name: 'R' count: 1 } } }, \
             { kind: KIND_CPU count: 1 rate_limiter { priority: 4 } }, { passive: true count: 5 } ]",
        );
        let of_cpu = InstanceRate { resources: vec![need("R", Some(0), 3), need("G", None, 1)], priority: 2 };
        let of_gpu = |gpu| InstanceRate { resources: vec![need("R", Some(gpu), 1)], priority: 1 };
        let expected = [Some(of_cpu.clone()), Some(of_cpu), Some(of_gpu(0)), Some(of_gpu(2)), None];
        assert_eq!(rates(&config.unwrap()), expected);
        let none = text::parse(Path::new("config.pbtxt"), "instance_group { kind: KIND_CPU count: 2 }").unwrap();
        assert_eq!(rates(&none), []);
    }
}
