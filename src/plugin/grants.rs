//! What an operator may give plug-ins beyond their contract, by name: `clock`, `random`, `sequence-text`. The first two are functions of WASI that
//! languages with a run time of their own ask for.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant, SystemTime};

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng as _;
use wasmtime::component::{ComponentType, HasSelf, Lift, Linker, Lower};

use super::contract::sequor::plugin::identity;
use super::engine::Mode;
use super::host::Held;
use crate::config::fault::did_you_mean;

/// The version of WASI whose functions are given. Components of 0.2 ask for any of its patches.
const WASI: &str = "0.2.0";
/// Random bytes of one call, at most.
const BYTES: u64 = 65_536;

const CLOCK: &str = "clock";
const RANDOM: &str = "random";
const SEQUENCE_TEXT: &str = "sequence-text";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Grants {
    /// The time of day, and a clock that never goes back.
    pub clock: bool,
    /// Random numbers.
    pub random: bool,
    /// The clients' ids of sequences.
    pub sequence_text: bool,
}

impl Grants {
    /// By their names; or the name that is none.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Grants, String> {
        let mut grants = Grants::default();
        for name in names {
            match name {
                CLOCK => grants.clock = true,
                RANDOM => grants.random = true,
                SEQUENCE_TEXT => grants.sequence_text = true,
                _ => {
                    let near = did_you_mean(name, [CLOCK, RANDOM, SEQUENCE_TEXT]);
                    return Err(format!("\"{name}\" is nothing that can be granted{near}"));
                }
            }
        }
        Ok(grants)
    }

    /// The grant that would give this interface (its name without a version), if one would, and how people call what it gives.
    pub(super) fn of(interface: &str) -> Option<(&'static str, &'static str)> {
        match interface {
            "sequor:plugin/identity" => Some((SEQUENCE_TEXT, "ids of sequences")),
            "wasi:clocks/monotonic-clock" | "wasi:clocks/wall-clock" => Some((CLOCK, "clocks")),
            "wasi:random/random" | "wasi:random/insecure" | "wasi:random/insecure-seed" => {
                Some((RANDOM, "random numbers"))
            }
            _ => None,
        }
    }

    pub(super) fn has(self, grant: &str) -> bool {
        match grant {
            CLOCK => self.clock,
            RANDOM => self.random,
            _ => grant == SEQUENCE_TEXT && self.sequence_text,
        }
    }

    /// The functions of a granted WASI interface that there are. Whatever else stands in it waits, and plug-ins do not wait.
    pub(super) fn gives(interface: &str, function: &str) -> bool {
        match interface {
            "wasi:clocks/monotonic-clock" => matches!(function, "now" | "resolution" | "instant" | "duration"),
            "wasi:clocks/wall-clock" => matches!(function, "now" | "resolution" | "datetime"),
            _ => true,
        }
    }

    pub(super) fn link(self, linker: &mut Linker<Held>) -> wasmtime::Result<()> {
        if self.sequence_text {
            identity::add_to_linker::<_, HasSelf<Held>>(linker, |held| held)?;
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

/// Where a guest's time and random numbers come from.
#[derive(Debug)]
pub(super) struct Stock {
    /// Where they must be the same with every run: the time of the question.
    virtual_now: Option<Duration>,
    start: Instant,
    random: Pcg64Mcg,
}

impl Default for Stock {
    fn default() -> Self {
        let (a, b) = (RandomState::new().hash_one(0), RandomState::new().hash_one(1));
        let random = Pcg64Mcg::new(u128::from(a) << 64 | u128::from(b));
        Stock { virtual_now: None, start: Instant::now(), random }
    }
}

impl Stock {
    pub(super) fn of(mode: Mode) -> Stock {
        match mode {
            Mode::Serving => Stock::default(),
            Mode::Simulation => {
                Stock { virtual_now: Some(Duration::ZERO), start: Instant::now(), random: Pcg64Mcg::new(1) }
            }
        }
    }

    /// The time of a question, where time is made up.
    pub(super) fn ask_at(&mut self, nanos: u64) {
        if let Some(now) = &mut self.virtual_now {
            *now = Duration::from_nanos(nanos);
        }
    }

    /// Time since the instance began.
    pub(super) fn monotonic(&self) -> Duration {
        self.virtual_now.unwrap_or_else(|| self.start.elapsed())
    }

    fn wall(&self) -> Duration {
        self.virtual_now.unwrap_or_else(|| SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default())
    }

    fn bytes(&mut self, count: u64) -> wasmtime::Result<Vec<u8>> {
        if count > BYTES {
            return Err(wasmtime::format_err!("{count} random bytes at once; at most {BYTES}"));
        }
        let mut bytes = vec![0; usize::try_from(count)?];
        self.random.fill_bytes(&mut bytes);
        Ok(bytes)
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

fn link_clocks(linker: &mut Linker<Held>) -> wasmtime::Result<()> {
    let mut clock = linker.instance(&format!("wasi:clocks/monotonic-clock@{WASI}"))?;
    clock.func_wrap("now", |held, ()| {
        Ok((u64::try_from(held.data().stock.monotonic().as_nanos()).unwrap_or(u64::MAX),))
    })?;
    clock.func_wrap("resolution", |_, ()| Ok((1u64,)))?;
    let mut clock = linker.instance(&format!("wasi:clocks/wall-clock@{WASI}"))?;
    clock.func_wrap("now", |held, ()| Ok((Datetime::from(held.data().stock.wall()),)))?;
    clock.func_wrap("resolution", |_, ()| Ok((Datetime { seconds: 0, nanoseconds: 1 },)))
}

fn link_random(linker: &mut Linker<Held>) -> wasmtime::Result<()> {
    for (interface, bytes, number) in [
        ("random", "get-random-bytes", "get-random-u64"),
        ("insecure", "get-insecure-random-bytes", "get-insecure-random-u64"),
    ] {
        let mut random = linker.instance(&format!("wasi:random/{interface}@{WASI}"))?;
        random.func_wrap(bytes, |mut held, (count,): (u64,)| Ok((held.data_mut().stock.bytes(count)?,)))?;
        random.func_wrap(number, |mut held, ()| Ok((held.data_mut().stock.random.next_u64(),)))?;
    }
    let mut seed = linker.instance(&format!("wasi:random/insecure-seed@{WASI}"))?;
    seed.func_wrap("insecure-seed", |mut held, ()| {
        let random = &mut held.data_mut().stock.random;
        Ok(((random.next_u64(), random.next_u64()),))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_go_by_their_names() {
        let all = Grants { clock: true, random: true, sequence_text: true };
        assert_eq!(Grants::parse(["clock", "random", "sequence-text"]), Ok(all));
        assert_eq!(
            Grants::parse(["clocks"]).unwrap_err(),
            "\"clocks\" is nothing that can be granted; did you mean \"clock\"?"
        );
    }

    #[test]
    fn made_up_time_stands_still_and_chance_repeats() {
        let draw = || {
            let mut stock = Stock::of(Mode::Simulation);
            stock.ask_at(5_000);
            (stock.monotonic(), stock.wall(), stock.bytes(32).unwrap())
        };
        assert_eq!(draw(), draw());
        assert_eq!((draw().0, draw().1), (Duration::from_micros(5), Duration::from_micros(5)));
        assert_ne!(Stock::default().bytes(32).unwrap(), Stock::default().bytes(32).unwrap());
        assert!(Stock::default().bytes(BYTES + 1).is_err());
    }
}
