//! The grants of an operator beyond the contract, by name: `clock`, `random`, `sequence-text`, `model:NAME`. The first two are WASI
//! functions that some language run times need.

use std::collections::BTreeMap;
use std::time::Duration;

use wasmtime::component::{ComponentType, HasSelf, Lift, Linker, Lower};

use super::contract::sequor::plugin::identity;
use super::host::HostState;
use sequor_files::fault::did_you_mean;

/// The version of the served WASI functions. Components of 0.2 ask for any of its patches.
const WASI: &str = "0.2.0";

const CLOCK: &str = "clock";
const RANDOM: &str = "random";
const SEQUENCE_TEXT: &str = "sequence-text";
/// Prefix of the grant that lets a plug-in call a model.
pub const MODEL: &str = "model:";
/// The version of wasi-nn that is served.
pub(crate) const WASI_NN: &str = "0.2.0-rc-2024-10-28";

/// Grants by the name of a plug-in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GrantTable(BTreeMap<String, Granted>);

/// The entries of one plug-in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Granted {
    grants: Grants,
    /// The models that it may call.
    models: Vec<String>,
}

impl GrantTable {
    /// Parses entries `PLUGIN=GRANT`. The error names the first invalid entry.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<GrantTable, String> {
        let mut named: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for entry in entries {
            let Some((plugin, grant)) = entry.split_once('=').filter(|(plugin, _)| !plugin.is_empty()) else {
                return Err(format!("\"{entry}\" names no plug-in; write NAME={entry}"));
            };
            named.entry(plugin).or_default().push(grant);
        }
        let parsed = named.into_iter().map(|(plugin, entries)| {
            let models = entries.iter().filter_map(|grant| grant.strip_prefix(MODEL)).map(str::to_owned).collect();
            Ok((plugin.to_owned(), Granted { grants: Grants::parse(entries)?, models }))
        });
        Ok(GrantTable(parsed.collect::<Result<_, String>>()?))
    }

    /// A table with one plug-in.
    pub fn one(plugin: &str, grants: Grants) -> GrantTable {
        GrantTable([(plugin.to_owned(), Granted { grants, models: Vec::new() })].into())
    }

    /// The grants of a plug-in; none, if no entry names it.
    pub fn for_plugin(&self, plugin: &str) -> Grants {
        self.0.get(plugin).map(|granted| granted.grants).unwrap_or_default()
    }

    /// The models that a plug-in may call.
    pub fn models(&self, plugin: &str) -> &[String] {
        self.0.get(plugin).map_or(&[], |granted| &granted.models)
    }
}

/// The imports beyond its world that a plug-in may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Grants {
    /// The time of day, and a clock that never goes back.
    pub clock: bool,
    /// Random numbers.
    pub random: bool,
    /// The clients' correlation ids.
    pub sequence_text: bool,
    /// Calls to some other models.
    pub models: bool,
}

impl Grants {
    /// Parses grants by their names. The error names the first unknown one.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Grants, String> {
        let mut grants = Grants::default();
        for name in names {
            match name {
                CLOCK => grants.clock = true,
                RANDOM => grants.random = true,
                SEQUENCE_TEXT => grants.sequence_text = true,
                _ if name.strip_prefix(MODEL).is_some_and(|model| !model.is_empty()) => grants.models = true,
                _ => {
                    let near = did_you_mean(name, [CLOCK, RANDOM, SEQUENCE_TEXT, MODEL]);
                    return Err(format!("\"{name}\" is nothing that can be granted{near}"));
                }
            }
        }
        Ok(grants)
    }

    /// The grant for this interface (its name without a version), if there is one, and a common name for what it gives.
    pub(crate) fn for_interface(interface: &str) -> Option<(&'static str, &'static str)> {
        match interface {
            "sequor:plugin/identity" => Some((SEQUENCE_TEXT, "ids of sequences")),
            "sequor:plugin/models" | "wasi:nn/tensor" | "wasi:nn/graph" | "wasi:nn/inference" | "wasi:nn/errors" => {
                Some(("model:MODEL", "calls to models"))
            }
            "wasi:clocks/monotonic-clock" | "wasi:clocks/wall-clock" => Some((CLOCK, "clocks")),
            "wasi:random/random" | "wasi:random/insecure" | "wasi:random/insecure-seed" => {
                Some((RANDOM, "random numbers"))
            }
            _ => None,
        }
    }

    /// Whether only some worlds have this interface. All worlds have the others.
    pub(crate) fn is_of_some_worlds(interface: &str) -> bool {
        interface == "sequor:plugin/models" || interface.starts_with("wasi:nn/")
    }

    pub(crate) fn has(self, grant: &str) -> bool {
        match grant {
            CLOCK => self.clock,
            RANDOM => self.random,
            SEQUENCE_TEXT => self.sequence_text,
            _ => grant.starts_with(MODEL) && self.models,
        }
    }

    /// Whether a granted WASI interface has this function. The functions left out wait, and plug-ins must not wait.
    pub(crate) fn gives(interface: &str, function: &str) -> bool {
        match interface {
            "wasi:clocks/monotonic-clock" => matches!(function, "now" | "resolution" | "instant" | "duration"),
            "wasi:clocks/wall-clock" => matches!(function, "now" | "resolution" | "datetime"),
            _ => true,
        }
    }

    pub(crate) fn link(self, linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
        if self.sequence_text {
            identity::add_to_linker::<_, HasSelf<HostState>>(linker, |held| held)?;
        }
        if self.clock {
            link_clocks(linker)?;
        }
        if self.random {
            link_random(linker)?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, ComponentType, Lift, Lower)]
#[component(record)]
struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

impl From<Duration> for Datetime {
    fn from(since_1970: Duration) -> Self {
        Datetime { seconds: since_1970.as_secs(), nanoseconds: since_1970.subsec_nanos() }
    }
}

fn link_clocks(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    let mut clock = linker.instance(&format!("wasi:clocks/monotonic-clock@{WASI}"))?;
    clock.func_wrap("now", |held, ()| {
        Ok((u64::try_from(held.data().clock_random.monotonic().as_nanos()).unwrap_or(u64::MAX),))
    })?;
    clock.func_wrap("resolution", |_, ()| Ok((1u64,)))?;
    let mut clock = linker.instance(&format!("wasi:clocks/wall-clock@{WASI}"))?;
    clock.func_wrap("now", |held, ()| Ok((Datetime::from(held.data().clock_random.wall()),)))?;
    clock.func_wrap("resolution", |_, ()| Ok((Datetime { seconds: 0, nanoseconds: 1 },)))
}

fn link_random(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    for (interface, bytes, number) in [
        ("random", "get-random-bytes", "get-random-u64"),
        ("insecure", "get-insecure-random-bytes", "get-insecure-random-u64"),
    ] {
        let mut random = linker.instance(&format!("wasi:random/{interface}@{WASI}"))?;
        random.func_wrap(bytes, |mut held, (count,): (u64,)| Ok((held.data_mut().clock_random.bytes(count)?,)))?;
        random.func_wrap(number, |mut held, ()| Ok((held.data_mut().clock_random.number(),)))?;
    }
    let mut seed = linker.instance(&format!("wasi:random/insecure-seed@{WASI}"))?;
    seed.func_wrap("insecure-seed", |mut held, ()| {
        let random = &mut held.data_mut().clock_random;
        Ok(((random.number(), random.number()),))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_parsed_by_name() {
        let all = Grants { clock: true, random: true, sequence_text: true, models: true };
        assert_eq!(Grants::parse(["clock", "random", "sequence-text", "model:decoder"]), Ok(all));
        assert!(Grants::parse(["model:"]).is_err());
        assert_eq!(
            Grants::parse(["clocks"]).unwrap_err(),
            "\"clocks\" is nothing that can be granted; did you mean \"clock\"?"
        );
    }

    #[test]
    fn each_plug_in_has_its_own_grants() {
        let table = GrantTable::parse(["fair=clock", "fair=sequence-text", "edf=random"]).unwrap();
        let fair = Grants { clock: true, sequence_text: true, ..Grants::default() };
        assert_eq!((table.for_plugin("fair"), table.for_plugin("other")), (fair, Grants::default()));
        assert_eq!(table.for_plugin("edf"), Grants { random: true, ..Grants::default() });
        let no_name = GrantTable::parse(["clock"]).unwrap_err();
        assert_eq!(no_name, "\"clock\" names no plug-in; write NAME=clock");
        assert!(GrantTable::parse(["fair=clocks"]).unwrap_err().contains("did you mean"));
        let scorer = GrantTable::parse(["scorer=model:decoder", "scorer=model:joiner", "fair=clock"]).unwrap();
        assert_eq!(scorer.models("scorer"), ["decoder", "joiner"]);
        assert!(
            scorer.for_plugin("scorer").models && !scorer.for_plugin("fair").models && scorer.models("fair").is_empty()
        );
    }
}
