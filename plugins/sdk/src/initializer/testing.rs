//! A test bench for `cargo test`: it stands in for the server, and checks answers by the server's rules.
//!
//! ```
//! use sequor_plugin::initializer::testing::Bench;
//! use sequor_plugin::initializer::*;
//!
//! /// A sequence begins with what its START says, or with the steps of a prompt.
//! #[derive(Default)]
//! struct Begin;
//!
//! impl Initializer for Begin {
//!     fn initialize(&mut self, call: &Call<'_>, inputs: Tensors) -> Result<FirstState, Refusal> {
//!         if let Some(prompt) = call.text("prompt") {
//!             return Ok(FirstState::kept(prompt));
//!         }
//!         Ok(FirstState::states([("total", Tensor::new(&[1], &inputs.get("x")?.values::<i32>()?))]))
//!     }
//!
//!     fn steps(&mut self, name: &str, _: &Call<'_>, _: Tensors) -> Result<Vec<Tensors>, Refusal> {
//!         let step = |byte: u8| Tensors::from([("x", Tensor::new(&[1], &[i32::from(byte)]))]);
//!         Ok(name.bytes().map(step).collect())
//!     }
//! }
//!
//! let ports = Ports::new().state("total", Dtype::INT32, &[1]).request("x", Dtype::INT32, &[1]).step("x", Dtype::INT32, &[1]);
//! let x = |value: i32| Tensors::from([("x", Tensor::new(&[1], &[value]))]);
//! let mut bench = Bench::<Begin>::new(ports.clone()).reads(&["x"]).key("prompt", "");
//! assert_eq!(bench.start(x(7)).unwrap(), FirstState::states([("total", Tensor::new(&[1], &[7]))]));
//! let mut bench = Bench::<Begin>::new(ports).reads(&["x"]).key("prompt", "ab");
//! assert_eq!(bench.start(x(7)).unwrap(), FirstState::kept("ab"));
//! assert_eq!(bench.steps("ab", x(7)).unwrap(), [x(97), x(98)]);
//! ```

use std::collections::BTreeMap;

use super::{Answer, FirstState, Initializer, Instance, Ports};
use crate::host;
use crate::manifest::Manifest;
use crate::model::Model;
use crate::processor::held::Held;
use crate::processor::{CallFacts, Dtype, Files, Port, Refusal, Tensor, Tensors, Value};

/// An initializer with a stand-in for its server. It has `reads`, `by-value` and the defaults of the crate's plugin.toml.
pub struct Bench<P> {
    pub plugin: Instance<P>,
    pub model: Model,
    config: String,
    files: Vec<(String, Tensor)>,
    ports: Ports,
    numbers: BTreeMap<String, f64>,
    keys: BTreeMap<String, String>,
    manifest: Manifest,
    is_configured: bool,
    starts: u64,
}

impl<P: Initializer> Bench<P> {
    /// An initializer for a model with these tensors.
    #[must_use]
    pub fn new(ports: Ports) -> Bench<P> {
        Bench {
            plugin: Instance::default(),
            model: Model::default(),
            config: String::new(),
            files: Vec::new(),
            ports,
            numbers: BTreeMap::new(),
            keys: BTreeMap::new(),
            manifest: Manifest::of_this_crate().unwrap_or_else(|what| panic!("{what}")),
            is_configured: false,
            starts: 0,
        }
    }

    /// Uses this plugin.toml instead of the crate's.
    #[must_use]
    pub fn manifest(mut self, text: &str) -> Self {
        self.manifest = Manifest::parse(text).unwrap_or_else(|what| panic!("plugin.toml: {what}"));
        self
    }

    /// Uses these `reads` instead of plugin.toml's.
    #[must_use]
    pub fn reads(mut self, names: &[&str]) -> Self {
        self.manifest.reads = Some(names.iter().map(|name| (*name).to_owned()).collect());
        self
    }

    /// The table `config` of `[plugins.initializer]`, as JSON. Defaults of plugin.toml are filled in.
    #[must_use]
    pub fn config(mut self, json: &str) -> Self {
        self.config = json.to_owned();
        self
    }

    /// A file that sequor.toml names.
    #[must_use]
    pub fn file(mut self, name: &str, content: impl AsRef<[u8]>) -> Self {
        let content = content.as_ref();
        let held = Held::new(Dtype::UINT8, vec![content.len() as u64], content);
        self.files.push((name.to_owned(), Tensor::of_held(held)));
        self
    }

    /// A numeric feature of all STARTs from now on.
    #[must_use]
    pub fn number(mut self, feature: &str, value: f64) -> Self {
        self.numbers.insert(feature.to_owned(), value);
        self
    }

    /// A key feature of all STARTs from now on. An empty text means no text.
    #[must_use]
    pub fn key(mut self, feature: &str, text: &str) -> Self {
        self.set_key(feature, text);
        self
    }

    /// Changes a key feature between two STARTs. The feature must exist already.
    pub fn set_key(&mut self, feature: &str, text: &str) {
        self.keys.insert(feature.to_owned(), text.to_owned());
    }

    /// Configures the plug-in. Otherwise the first START does.
    pub fn configure(&mut self) -> Result<(), String> {
        for feature in self.manifest.features.iter().flatten() {
            let is_there = self.numbers.contains_key(feature) || self.keys.contains_key(feature);
            assert!(is_there, "plugin.toml needs the feature \"{feature}\": Bench::key or Bench::number");
        }
        for read in self.manifest.reads.iter().flatten() {
            self.ports.find_request(read).unwrap_or_else(|what| panic!("reads of plugin.toml: {what}"));
        }
        self.model.numbers = self.numbers.keys().cloned().collect();
        self.model.keys = self.keys.keys().cloned().collect();
        let (config, files) = (self.manifest.resolve(&self.config)?, Files::new(self.files.clone()));
        self.plugin.configure(&config, self.model.clone(), self.ports.clone(), &files)?;
        self.is_configured = true;
        Ok(())
    }

    /// Sends a START with these inputs and returns the first state of its sequence. Panics if the answer breaks a rule of the server.
    pub fn start(&mut self, inputs: impl Into<Tensors>) -> Result<FirstState, Refusal> {
        let facts = self.facts();
        let seen = self.seen(inputs.into());
        Ok(match self.plugin.initialize(&facts, seen)? {
            Answer::Default => FirstState::Default,
            Answer::States(states) => FirstState::States(checked(&self.ports.states, states, "initialize")),
            Answer::CopyOf(id) => FirstState::CopyOf(id),
            Answer::Kept(name) => {
                assert!(name.len() <= 256, "a name of {} bytes; the maximum is 256", name.len());
                FirstState::Kept(name)
            }
        })
    }

    /// Returns the steps of a name, as the server asks for them after a START with these inputs.
    pub fn steps(&mut self, name: &str, inputs: impl Into<Tensors>) -> Result<Vec<Tensors>, Refusal> {
        let facts = self.facts();
        let seen = self.seen(inputs.into());
        let steps = self.plugin.steps(name, &facts, seen)?;
        assert!((1..=4096).contains(&steps.len()), "{} steps; there may be 1 to 4096", steps.len());
        let steps: Vec<Tensors> = steps.into_iter().map(|step| checked(&self.ports.step, step, "steps")).collect();
        for port in self.ports.step.iter().filter(|port| !port.optional) {
            assert!(steps.iter().all(|step| step.find(&port.name).is_some()), "a step is without \"{}\"", port.name);
        }
        Ok(steps)
    }

    fn facts(&mut self) -> CallFacts {
        if !self.is_configured {
            self.configure().unwrap_or_else(|what| panic!("configure: {what}"));
        }
        self.starts += 1;
        let key = |text: &String| if text.is_empty() { 0 } else { host::remember(text) };
        CallFacts {
            sequence: self.starts,
            step: 1,
            start: true,
            numbers: self.numbers.values().copied().collect(),
            keys: self.keys.values().map(key).collect(),
            ..CallFacts::default()
        }
    }

    /// The inputs that the plug-in sees, with large tensors as handles.
    fn seen(&self, inputs: Tensors) -> Vec<Value> {
        let (ports, by_value) = (&self.ports.request, self.manifest.by_value.unwrap_or(64 << 10));
        let mut seen = Vec::new();
        for (name, tensor) in inputs.into_entries() {
            let at = ports.iter().position(|port| port.name == name);
            let at = at.unwrap_or_else(|| panic!("clients send no \"{name}\""));
            ports[at].check(&tensor).unwrap_or_else(|what| panic!("{what}"));
            if !self.manifest.reads.iter().flatten().any(|read| *read == name) {
                continue;
            }
            let is_small = tensor.is_handle() || tensor.size() <= by_value;
            let held = || Tensor::of_held(Held::new(tensor.dtype(), tensor.shape(), &tensor.bytes()));
            seen.push((at as u32, if is_small { tensor.clone() } else { held() }));
        }
        seen
    }
}

/// Tensors by name, each checked.
fn checked(ports: &[Port], values: Vec<Value>, what: &str) -> Tensors {
    let mut all = Tensors::new();
    for (at, tensor) in values {
        let port = ports.get(at as usize).unwrap_or_else(|| panic!("{what}: port {at} of {}", ports.len()));
        port.check(&tensor).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
        all.insert(port.name.clone(), tensor);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::{Call, Config, refuse};
    use super::*;

    /// A fifth of a file, or what `x` says: below 0 a refusal, above 9 wrong dimensions.
    #[derive(Default)]
    struct Begin {
        table: Vec<u8>,
    }

    impl Initializer for Begin {
        fn configure(&mut self, config: &Config, _: &Model, ports: &Ports, files: &Files) -> Result<(), String> {
            ports.find_state("s")?;
            self.table = files.bytes(&config.get::<String>("table")?)?;
            Ok(())
        }

        fn initialize(&mut self, call: &Call<'_>, inputs: Tensors) -> Result<FirstState, Refusal> {
            let Some(x) = inputs.find("x") else { return Ok(FirstState::Default) };
            match x.values::<i32>()?[0] {
                value @ ..0 => Err(refuse(3, format!("{value} is below 0"))),
                value @ 10.. => Ok(FirstState::states([("s", Tensor::new(&[2], &[value, value]))])),
                _ => Ok(FirstState::states([(
                    "s",
                    Tensor::new(&[1], &[i32::from(self.table[call.number("at") as usize])]),
                )])),
            }
        }
    }

    const MANIFEST: &str =
        "reads = [\"x\"]\nby-value = \"2B\"\nfeatures = [\"at\"]\n[config.table]\ndefault = \"t.bin\"\n";

    fn bench() -> Bench<Begin> {
        let ports = Ports::new().state("s", Dtype::INT32, &[1]).request("x", Dtype::INT32, &[-1]);
        let ports = ports.request("y", Dtype::INT32, &[1]);
        Bench::new(ports).manifest(MANIFEST).file("t.bin", [5, 6, 7]).number("at", 2.0)
    }

    fn x(value: i32) -> Tensors {
        Tensors::from([("x", Tensor::new(&[1], &[value]))])
    }

    #[test]
    fn the_bench_returns_the_plugins_first_state_or_refusal() {
        assert_eq!(bench().start(x(1)).unwrap(), FirstState::states([("s", Tensor::new(&[1], &[7]))]));
        assert_eq!(bench().start([("y", Tensor::new(&[1], &[1]))]).unwrap(), FirstState::Default, "y is not read");
        assert_eq!(bench().start(x(-1)).unwrap_err(), refuse(3, "-1 is below 0"));
        assert_eq!(
            bench().config(r#"{"table": "none"}"#).configure().unwrap_err(),
            "there is no file \"none\"; `files` in sequor.toml names t.bin"
        );
    }

    #[test]
    #[should_panic(expected = "initialize: \"s\" is [1], not [2]")]
    fn wrong_dimensions_fail_the_test() {
        let _ = bench().start(x(10));
    }

    #[test]
    #[should_panic(expected = "there are no steps for \"p\"")]
    fn the_bench_panics_if_an_initializer_has_no_steps() {
        let _ = bench().steps("p", x(1));
    }
}
