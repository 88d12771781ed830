//! Writes to the standard output. If its reader has gone, as with `| head`, the command ends without a message and with the exit code of other
//! Unix commands. `println!` would panic.

use std::fmt;
use std::io::{self, ErrorKind, Write as _};

use super::Failed;

/// Prints a text as it is.
pub(super) fn text(text: fmt::Arguments<'_>) -> Result<(), Failed> {
    written(io::stdout().lock().write_fmt(text))
}

/// Prints a text and a line break.
pub(super) fn line(text: fmt::Arguments<'_>) -> Result<(), Failed> {
    let mut out = io::stdout().lock();
    written(writeln!(out, "{text}"))
}

/// Sends what is still in the buffer: a text without a line break at its end.
pub(super) fn flush() -> Result<(), Failed> {
    written(io::stdout().flush())
}

fn written(outcome: io::Result<()>) -> Result<(), Failed> {
    outcome.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failed::ReaderGone,
        _ => Failed::Failed(format!("the output cannot be written: {error}")),
    })
}
