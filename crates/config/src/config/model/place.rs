//! Assigns instances to GPUs. A configuration's request is served or refused; only KIND_AUTO adapts to the machine.

use sequor_proto::ModelInstanceGroup;
use sequor_proto::model_instance_group::Kind;

use super::draft::Draft;
use super::settings::Processor;
use super::validate::instances;
use super::{normalise, resolve};
use crate::config::fault::{Fault, code, in_order};

/// The usable GPUs, by their driver's numbers; or why there is none, in one sentence.
pub type Gpus = Result<Vec<u16>, String>;

/// The result for groups of KIND_AUTO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auto {
    /// There is no such group.
    NotAsked,
    Gpu,
    /// With the reason.
    Cpu(String),
}

impl Draft {
    /// Whether some group needs or accepts a GPU.
    pub fn may_use_gpus(&self) -> bool {
        let groups = &self.config.instance_group;
        groups.is_empty() || groups.iter().any(|g| !g.passive && matches!(g.kind(), Kind::Gpu | Kind::Auto))
    }

    /// Whether some group accepts only a GPU.
    pub fn needs_gpus(&self) -> bool {
        self.config.instance_group.iter().any(|g| !g.passive && g.kind() == Kind::Gpu)
    }

    /// Assigns every group to processors, or returns the faults.
    pub fn place(&mut self, gpus: &Gpus) -> Result<Auto, Vec<Fault>> {
        normalise::a_group(&mut self.config);
        let name = self.config.name.clone();
        let (mut auto, mut faults) = (Auto::NotAsked, Vec::new());
        for (i, group) in self.config.instance_group.iter_mut().enumerate() {
            if group.name.is_empty() && group.kind() == Kind::Gpu {
                group.name = format!("{name}_{i}");
            }
            let what = match group.kind() {
                Kind::Auto => {
                    auto = left_open(group, gpus);
                    continue;
                }
                Kind::Gpu => match asked(group, gpus, &name) {
                    Ok(()) => continue,
                    Err(what) => what,
                },
                Kind::Cpu | Kind::Model => continue,
            };
            let field = if gpus.is_ok() { "gpus" } else { "kind" };
            let at = self.places.get(&format!("instance_group[{i}].{field}")).at(&self.path);
            faults.push(Fault { at, code: code::INSTANCES, what });
        }
        // The number of GPUs of each group is known only now.
        if let Some(what) = instances::too_many(&self.config, self.options.limits) {
            let at = self.places.get("instance_group[0]").at(&self.path);
            faults.push(Fault { at, code: code::INSTANCES, what });
        }
        if faults.is_empty() { Ok(auto) } else { Err(in_order(faults)) }
    }

    /// The processor of each instance, in the current state.
    pub fn processors(&self) -> Vec<Processor> {
        let mut config = self.config.clone();
        normalise::normalise(&mut config);
        resolve::processors(&config)
    }
}

/// Places a group of KIND_AUTO: on the GPUs that it names, or on all. If they are not usable, on the CPU.
fn left_open(group: &mut ModelInstanceGroup, gpus: &Gpus) -> Auto {
    let why = match gpus {
        Ok(there) if missing(group, there).is_none() => {
            on_gpus(group, there);
            return Auto::Gpu;
        }
        Ok(there) => format!("of the GPUs that it names, {} can be used", list(there)),
        Err(why) => why.clone(),
    };
    group.set_kind(Kind::Cpu);
    group.gpus.clear();
    Auto::Cpu(why)
}

/// Places a group of KIND_GPU: on the GPUs that it names, or on all.
fn asked(group: &mut ModelInstanceGroup, gpus: &Gpus, model: &str) -> Result<(), String> {
    let there = gpus.as_ref().map_err(|why| {
        format!("KIND_GPU cannot be served: {why}; use KIND_CPU or KIND_AUTO, or start the server with --cpu-only")
    })?;
    if let Some(gpu) = missing(group, there) {
        return Err(format!(
            "instance group {} of model {model} specifies invalid or unsupported gpu id {gpu}; GPUs that can be used are: {}",
            group.name,
            list(there)
        ));
    }
    on_gpus(group, there);
    Ok(())
}

/// The first GPU that the group names and that does not exist.
fn missing(group: &ModelInstanceGroup, there: &[u16]) -> Option<i32> {
    group.gpus.iter().find(|gpu| !u16::try_from(**gpu).is_ok_and(|gpu| there.contains(&gpu))).copied()
}

fn on_gpus(group: &mut ModelInstanceGroup, there: &[u16]) {
    group.set_kind(Kind::Gpu);
    if group.gpus.is_empty() {
        group.gpus = there.iter().map(|gpu| i32::from(*gpu)).collect();
    }
}

fn list(gpus: &[u16]) -> String {
    gpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::model::{ConfigSource, Options, Port, Signature, Sources};

    fn draft(groups: &str) -> Draft {
        let text = format!("backend: 'onnxruntime' max_batch_size: 4 {groups}");
        let sources = Sources {
            directory: "/models/m".into(),
            config: ConfigSource::Text(text),
            sequor_toml: None,
            files: vec!["model.onnx".to_owned()],
            ..Sources::default()
        };
        Draft::parse(sources, &Options::default()).unwrap()
    }

    fn processors(groups: &str, gpus: &Gpus) -> (Auto, Vec<Processor>, String) {
        let mut draft = draft(groups);
        let auto = draft.place(gpus).unwrap();
        let port = |name: &str| Port {
            name: name.to_owned(),
            dtype: sequor_core::DataType::Fp32,
            dims: sequor_core::Dims::from_wire(&[-1, 3]),
        };
        let graph = Signature { inputs: vec![port("x")], outputs: vec![port("y")], ..Signature::default() };
        let settings = draft.resolve(&graph).unwrap();
        let groups = settings
            .proto
            .instance_group
            .iter()
            .map(|g| format!("{} {:?} x{}", g.kind().as_str_name(), g.gpus, g.count));
        (auto, settings.processors.clone(), groups.collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn instances_are_counted_on_every_gpu() {
        let mut draft = draft("instance_group { kind: KIND_GPU count: 100 }");
        let gpus = Ok(vec![0, 1, 2]);
        let faults = draft.place(&gpus).unwrap_err();
        let what = "instance_group: 300 instances of m, more than the limit of 256 (limits.instances)";
        assert_eq!(faults.iter().map(|fault| fault.what.as_str()).collect::<Vec<_>>(), [what]);
    }

    const NONE: &str = "there is no driver";

    #[test]
    fn kind_auto_uses_gpus_if_there_are_any_and_otherwise_reports_why() {
        use Processor::{Cpu, Gpu};
        let (none, two): (Gpus, Gpus) = (Err(NONE.to_owned()), Ok(vec![0, 1]));
        let cpu = Auto::Cpu(NONE.to_owned());
        assert_eq!(processors("", &none), (cpu.clone(), vec![Cpu, Cpu], "KIND_CPU [] x2".to_owned()));
        assert_eq!(processors("", &two), (Auto::Gpu, vec![Gpu(0), Gpu(1)], "KIND_GPU [0, 1] x1".to_owned()));
        let some = "instance_group { gpus: [ 1 ] count: 2 }";
        assert_eq!(processors(some, &two), (Auto::Gpu, vec![Gpu(1), Gpu(1)], "KIND_GPU [1] x2".to_owned()));
        let beyond = "instance_group { gpus: [ 1, 2 ] count: 1 }";
        let why = Auto::Cpu("of the GPUs that it names, 0 1 can be used".to_owned());
        assert_eq!(processors(beyond, &two), (why, vec![Cpu], "KIND_CPU [] x1".to_owned()));
        let cpus = "instance_group { kind: KIND_CPU count: 1 }";
        assert_eq!(processors(cpus, &two), (Auto::NotAsked, vec![Cpu], "KIND_CPU [] x1".to_owned()));
    }

    #[test]
    fn explicit_instance_groups_are_placed_as_configured() {
        use Processor::{Cpu, Gpu};
        let both = "instance_group [ { kind: KIND_GPU count: 2 gpus: [ 1, 0 ] }, { kind: KIND_CPU count: 1 } ]";
        let (auto, got, _) = processors(both, &Ok(vec![0, 1]));
        assert_eq!((auto, got), (Auto::NotAsked, vec![Gpu(1), Gpu(1), Gpu(0), Gpu(0), Cpu]));
        assert!(draft(both).needs_gpus() && draft("").may_use_gpus() && !draft("").needs_gpus());
        assert!(!draft("instance_group { kind: KIND_CPU }").may_use_gpus());
    }

    #[test]
    fn unavailable_gpus_are_refused_at_their_line() {
        let refused = |groups: &str, gpus: Gpus| {
            let faults = draft(groups).place(&gpus).unwrap_err();
            faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let gpu = "instance_group { kind: KIND_GPU }";
        insta::assert_snapshot!(refused(gpu, Err(NONE.to_owned())), @"/models/m/config.pbtxt:1:59: KIND_GPU cannot be served: there is no driver; use KIND_CPU or KIND_AUTO, or start the server with --cpu-only");
        let third = "instance_group { kind: KIND_GPU gpus: [ 0, 3 ] }";
        insta::assert_snapshot!(refused(third, Ok(vec![0, 1])), @"/models/m/config.pbtxt:1:82: instance group m_0 of model m specifies invalid or unsupported gpu id 3; GPUs that can be used are: 0 1");
    }
}
