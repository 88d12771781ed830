//! What a call that gave no answer died of, in the core's words and in words for its author: what the guest said last, or what the machine
//! says, and the place in the source where that is known.

use sequor_core::Fault;
use wasmtime::{Trap, WasmBacktrace};

use super::guest::Struck;
use super::host::Held;
use crate::config::units::human;

/// Which call it was.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) hook: &'static str,
    /// Of how many, where it is of several: candidates, events.
    pub(super) of: Option<(u32, &'static str)>,
}

/// Functions of a language's own library, in which an author's fault only comes to light.
const LIBRARY: [&str; 12] = [
    "core::",
    "std::",
    "alloc::",
    "<core::",
    "<std::",
    "<alloc::",
    "__rust",
    "rust_panic",
    "_rust",
    "wit_bindgen",
    "dlmalloc",
    "abort",
];

pub(super) fn fault_of(error: &wasmtime::Error, held: &Held, limit: &str, asked: Call) -> Struck {
    let place = error.downcast_ref::<WasmBacktrace>().and_then(place);
    let at = place.map_or_else(String::new, |place| format!(" ({place})"));
    let trap = error.downcast_ref::<Trap>().copied();
    match (trap, held.memory.refused) {
        (Some(Trap::Interrupt | Trap::OutOfFuel), _) => {
            let of = asked.of.map_or_else(String::new, |(n, what)| format!(" ({n} {what})"));
            Struck { fault: Fault::Time, what: format!("time limit {limit} in {}{of}{at}", asked.hook) }
        }
        (_, Some(wanted)) => {
            let limit = human(held.memory.limit());
            Struck {
                fault: Fault::Memory,
                what: format!("memory limit {limit} in {}: asked for {}{at}", asked.hook, human(wanted)),
            }
        }
        (trap, None) => {
            let what = match (&held.cried, trap) {
                // What it cried names the place already, if it knows it.
                (Some(cried), _) => in_a_line(cried),
                (None, Some(trap)) => format!("{}{at}", plain(trap)),
                (None, None) if is_too_much(error) => format!("it handed over too much at once{at}"),
                (None, None) => format!("{}{at}", error.root_cause()),
            };
            Struck { fault: Fault::Trap, what: format!("{what}, in {}", asked.hook) }
        }
    }
}

/// More than `instance` lets it hand over. wasmtime has no type for this error that others can name.
fn is_too_much(error: &wasmtime::Error) -> bool {
    error.root_cause().to_string().starts_with("too much data is being copied between the host and the guest")
}

/// A fault is a sentence among others, in tables and logs.
fn in_a_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A trap as its author would say it.
fn plain(trap: Trap) -> String {
    match trap {
        Trap::UnreachableCodeReached => "it gave up (unreachable)".to_owned(),
        Trap::MemoryOutOfBounds => "memory out of bounds".to_owned(),
        Trap::StackOverflow => "stack overflow".to_owned(),
        Trap::CannotEnterComponent => "it had fallen before".to_owned(),
        other => other.to_string().trim_start_matches("wasm trap: ").to_owned(),
    }
}

/// The innermost place that is the author's own: file and line, else a function's name.
fn place(backtrace: &WasmBacktrace) -> Option<String> {
    let places: Vec<(String, Option<String>)> = backtrace.frames().iter().flat_map(places).collect();
    let own = places.iter().find(|(name, _)| !LIBRARY.iter().any(|begin| name.starts_with(begin)));
    let (name, line) = own.or(places.first())?;
    Some(line.clone().unwrap_or_else(|| format!("in {name}")))
}

/// The functions of a frame, inlined ones first: names, and lines where the component carries them.
fn places(frame: &wasmtime::FrameInfo) -> Vec<(String, Option<String>)> {
    let line = |symbol: &wasmtime::FrameSymbol| Some(format!("{}:{}", short(symbol.file()?), symbol.line()?));
    let of_symbols = frame.symbols().iter().filter_map(|s| Some((demangled(s.name().or(frame.func_name())?), line(s))));
    let found: Vec<_> = of_symbols.collect();
    match frame.func_name() {
        Some(name) if found.is_empty() => vec![(demangled(name), None)],
        _ => found,
    }
}

/// A function's name without what the linker needed of it.
fn demangled(name: &str) -> String {
    let name = &format!("{:#}", rustc_demangle::demangle(name));
    let end = name.rfind("::h").filter(|at| name.len() == at + 19).unwrap_or(name.len());
    name.get(..end).unwrap_or(name).to_owned()
}

/// `…/fair-share/src/lib.rs` is `src/lib.rs` to its author.
fn short(file: &str) -> &str {
    let at = if file.starts_with("src/") { Some(0) } else { file.rfind("/src/").map(|at| at + 1) };
    at.and_then(|at| file.get(at..)).unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_files_are_those_of_the_author() {
        assert_eq!(demangled("guest::plan::h0123456789abcdef"), "guest::plan");
        assert_eq!(demangled("guest::plan"), "guest::plan");
        let linked =
            "_ZN72_$LT$hostile..Hostile$u20$as$u20$sequor_plugin..scheduler..Scheduler$GT$4plan17he3d9518ed9ef6a31E";
        assert_eq!(demangled(linked), "<hostile::Hostile as sequor_plugin::scheduler::Scheduler>::plan");
        assert_eq!(short("/home/anna/fair-share/src/lib.rs"), "src/lib.rs");
        let cried = "panicked at src/lib.rs:36:23:\n  told to\n";
        assert_eq!(in_a_line(cried), "panicked at src/lib.rs:36:23: told to");
        assert_eq!((short("src/lib.rs"), short("plugin.c")), ("src/lib.rs", "plugin.c"));
    }
}
