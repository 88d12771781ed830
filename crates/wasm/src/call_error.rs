//! Why a call gave no answer: its kind, and words for the plug-in's author. Those are the guest's last error line or the trap, and the
//! function in which it happened.

use std::fmt::{self, Write as _};

use wasmtime::{Trap, WasmBacktrace};

use super::host::HostState;
use super::room::NoGuestRoom;
use sequor_files::units::human;

/// The kind of a failure of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFault {
    Trap,
    /// The call exceeded its CPU time limit.
    Time,
    /// The guest exceeded its memory limit.
    Memory,
    /// There is no room for another guest now ([`super::room`]). Not a fault of the plug-in.
    Full,
}

/// A failed call. Its guest can no longer be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct CallError {
    pub fault: CallFault,
    /// Words for the plug-in's author: message, file and line.
    pub what: String,
}

impl From<NoGuestRoom> for CallError {
    fn from(no_room: NoGuestRoom) -> CallError {
        CallError { fault: CallFault::Full, what: no_room.to_string() }
    }
}

/// One call, for messages.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// The function, as its author knows it.
    pub name: &'static str,
    /// Number and kind of the items of the call, if it is a repeated call about items.
    pub of: Option<(u32, &'static str)>,
}

/// Maximum bytes of a function's name.
const NAME: usize = 1024;
/// Functions of a language's own library. An author's fault may only appear there.
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

pub(super) fn fault_of(error: &wasmtime::Error, state: &HostState, limit: &str, asked: Call) -> CallError {
    let place = error.downcast_ref::<WasmBacktrace>().and_then(place);
    let at = place.map_or_else(String::new, |place| format!(" ({place})"));
    let trap = error.downcast_ref::<Trap>().copied();
    match (trap, state.memory.refused) {
        (Some(Trap::Interrupt | Trap::OutOfFuel), _) => {
            let of = asked.of.map_or_else(String::new, |(n, what)| format!(" ({n} {what})"));
            CallError { fault: CallFault::Time, what: format!("time limit {limit} in {}{of}{at}", asked.name) }
        }
        (_, Some(wanted)) => {
            let limit = human(state.memory.limit());
            // The guest's own error line names the place better, if there is one.
            let at = state.last_error.as_ref().map_or(at, |message| format!(" ({})", in_a_line(message)));
            CallError {
                fault: CallFault::Memory,
                what: format!("memory limit {limit} in {}: asked for {}{at}", asked.name, human(wanted)),
            }
        }
        (trap, None) => {
            let what = match (&state.last_error, trap) {
                // The guest's own error line names the place already, if it knows it.
                (Some(message), _) => in_a_line(message),
                (None, Some(trap)) => format!("{}{at}", plain(trap)),
                (None, None) if is_too_much(error) => format!("it handed over too much at once{at}"),
                (None, None) => format!("{}{at}", error.root_cause()),
            };
            CallError { fault: CallFault::Trap, what: format!("{what}, in {}", asked.name) }
        }
    }
}

/// Whether the guest handed over more than `bytes_at_once` allows. wasmtime exports no type for this error.
fn is_too_much(error: &wasmtime::Error) -> bool {
    error.root_cause().to_string().starts_with("too much data is being copied between the host and the guest")
}

/// Joins lines, because a fault is a sentence within tables and logs.
fn in_a_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A trap in words for its author.
fn plain(trap: Trap) -> String {
    match trap {
        Trap::UnreachableCodeReached => "it gave up (unreachable)".to_owned(),
        Trap::MemoryOutOfBounds => "memory out of bounds".to_owned(),
        Trap::StackOverflow => "stack overflow".to_owned(),
        Trap::CannotEnterComponent => "it had fallen before".to_owned(),
        other => other.to_string().trim_start_matches("wasm trap: ").to_owned(),
    }
}

/// The innermost function of the author's own code.
fn place(backtrace: &WasmBacktrace) -> Option<String> {
    let names: Vec<String> = backtrace.frames().iter().filter_map(|frame| frame.func_name()).map(demangled).collect();
    if names.iter().any(|name| is_of_interpreter(name)) {
        return None;
    }
    let own = names.iter().find(|name| !LIBRARY.iter().any(|begin| name.starts_with(begin)));
    Some(format!("in {}", own.or(names.first())?))
}

/// Whether a function is of Python's interpreter. Its functions say nothing about the author's lines.
fn is_of_interpreter(name: &str) -> bool {
    name.starts_with("_Py") || name.starts_with("Py")
}

/// A function's name without the linker's additions.
fn demangled(name: &str) -> String {
    let mut written = ShortName::default();
    // An error only means that the name is cut.
    let _ = write!(written, "{:#}", rustc_demangle::demangle(name));
    let name = written.0;
    let end = name.rfind("::h").filter(|at| name.len() == at + 19).unwrap_or(name.len());
    name.get(..end).unwrap_or(&name).to_owned()
}

/// A name, cut at [`NAME`]. Some hundred bytes of a mangled name can stand for a megabyte.
#[derive(Default)]
struct ShortName(String);

impl fmt::Write for ShortName {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let room = NAME - self.0.len();
        if part.len() <= room {
            self.0.push_str(part);
            return Ok(());
        }
        self.0.push_str(part.get(..part.floor_char_boundary(room)).unwrap_or_default());
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demangled_names_match_the_source_of_the_plug_in() {
        assert_eq!(demangled("guest::plan::h0123456789abcdef"), "guest::plan");
        assert_eq!(demangled("guest::plan"), "guest::plan");
        let linked = "_ZN62_$LT$hostile..Hostile$u20$as$u20$sequor_plugin..echo..Echo$GT$4echo17he3d9518ed9ef6a31E";
        assert_eq!(demangled(linked), "<hostile::Hostile as sequor_plugin::echo::Echo>::echo");
        let message = "panicked at src/lib.rs:36:23:\n  told to\n";
        assert_eq!(in_a_line(message), "panicked at src/lib.rs:36:23: told to");
    }

    #[test]
    fn a_long_name_is_cut() {
        assert_eq!(demangled(&"ä".repeat(50_000)).len(), NAME);
    }
}
