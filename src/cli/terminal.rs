//! A terminal that a command redraws: its own screen, keys without Enter, and the former state of the terminal at the end.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use rustix::termios::{self, LocalModes, OptionalActions, SpecialCodeIndex, Termios};

use super::Failed;

/// Shows a screen of its own without a cursor, and the reverse.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const RESTORE: &str = "\x1b[?25h\x1b[?1049l";
/// Moves to the top left corner. The end of each line and of the screen is cleared after it was written, so that nothing flickers.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScreenSize {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// The assumed size of a terminal that does not report its size.
const USUAL: ScreenSize = ScreenSize { columns: 80, rows: 24 };

/// Keys that leave: q, Q, Ctrl-C and Ctrl-D, as the terminal sends them if it interprets none.
const LEAVING: [u8; 4] = [b'q', b'Q', 0x03, 0x04];

/// Receives a message once the operator leaves.
#[derive(Debug)]
pub(super) struct Leave(Receiver<()>);

impl Leave {
    /// Leaves on SIGINT and SIGTERM.
    pub(super) fn on_signals() -> Result<Leave, Failed> {
        Leave::on_signals_with(|| ())
    }

    /// The same. `notice` is called when the signal comes, which may be long before the command looks.
    pub(super) fn on_signals_with(notice: impl FnOnce() + Send + 'static) -> Result<Leave, Failed> {
        let (sender, receiver) = sync_channel(1);
        signals(sender, notice).map_err(|e| Failed::Failed(format!("no signals: {e}")))?;
        Ok(Leave(receiver))
    }

    /// Waits for this long. True if the operator leaves.
    pub(super) fn within(&self, time: Duration) -> bool {
        !matches!(self.0.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }
}

/// A terminal with a screen of the command's own. Dropping it restores the terminal.
#[derive(Debug)]
pub(super) struct Terminal {
    leave: Leave,
    /// How the input was set, if it is a terminal.
    former: Option<Termios>,
}

impl Terminal {
    pub(super) fn enter() -> io::Result<Terminal> {
        let (sender, receiver) = sync_channel(1);
        signals(sender.clone(), || ())?;
        let former = if io::stdin().is_terminal() { Some(take_keys()?) } else { None };
        if former.is_some() {
            std::thread::Builder::new().name("keys".to_owned()).spawn(move || read_keys(&sender))?;
        }
        let terminal = Terminal { leave: Leave(receiver), former };
        write(ENTER)?;
        Ok(terminal)
    }

    pub(super) fn leave(&self) -> &Leave {
        &self.leave
    }

    pub(super) fn size(&self) -> ScreenSize {
        let size = termios::tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.map_or(USUAL, |size| ScreenSize { columns: usize::from(size.ws_col), rows: usize::from(size.ws_row) })
    }

    /// Replaces what the screen shows.
    pub(super) fn draw(&mut self, text: &str) -> io::Result<()> {
        write(&painted(text))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that is gone cannot be restored.
        let _ = write(RESTORE);
        if let Some(former) = &self.former {
            let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, former);
        }
    }
}

/// The text with the sequences that put it in place of the former one. A terminal that interprets no newlines needs a return, too.
fn painted(text: &str) -> String {
    format!("{HOME}{}{CLEAR_LINE}{CLEAR_BELOW}", text.replace('\n', &format!("{CLEAR_LINE}\r\n")))
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Makes the terminal send each key at once, without showing it. Returns its former state.
fn take_keys() -> io::Result<Termios> {
    let former = termios::tcgetattr(io::stdin())?;
    let mut keys = former.clone();
    keys.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
    keys.special_codes[SpecialCodeIndex::VMIN] = 1;
    keys.special_codes[SpecialCodeIndex::VTIME] = 0;
    termios::tcsetattr(io::stdin(), OptionalActions::Now, &keys)?;
    Ok(former)
}

/// Reports the first key that leaves, or the end of the input.
fn read_keys(sender: &SyncSender<()>) {
    let is_leaving = |key: io::Result<u8>| key.map_or(true, |key| LEAVING.contains(&key));
    let _ = io::stdin().lock().bytes().any(is_leaving);
    let _ = sender.try_send(());
}

/// Reports SIGINT and SIGTERM.
fn signals(sender: SyncSender<()>, notice: impl FnOnce() + Send + 'static) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let wait = move || {
        runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        });
        notice();
        let _ = sender.try_send(());
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_text_clears_what_it_replaces() {
        assert_eq!(painted("a\nb"), "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J");
    }

    #[test]
    fn the_operator_leaves_with_a_message_or_when_no_one_can_send_one() {
        let (sender, receiver) = sync_channel(1);
        let leave = Leave(receiver);
        assert!(!leave.within(Duration::ZERO));
        sender.send(()).unwrap();
        assert!(leave.within(Duration::ZERO));
        drop(sender);
        assert!(leave.within(Duration::ZERO));
    }
}
