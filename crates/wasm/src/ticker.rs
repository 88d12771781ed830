//! The epoch's clock: a thread that ticks once a millisecond while guests run, and sleeps while none runs. A tick does not measure time. It
//! is only the occasion to check it ([`super::budget`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sequor_sync::{self as sync, AtomicBool, AtomicU64, Thread};

/// Time between two ticks.
pub(crate) const TICK: Duration = Duration::from_millis(1);
/// Ticks without a call before the thread sleeps. To wake it costs a caller more than to let it run a little longer.
const QUIET: u32 = 16;

#[derive(Debug)]
pub(crate) struct Ticker {
    shared: Arc<TickerState>,
    thread: Thread,
}

#[derive(Debug, Default)]
struct TickerState {
    entered: AtomicU64,
    left: AtomicU64,
    asleep: AtomicBool,
    over: AtomicBool,
}

/// A call that runs. The clock ticks until this is dropped.
#[derive(Debug)]
pub(crate) struct TickedCall<'a>(&'a TickerState);

impl Ticker {
    pub(crate) fn start(tick: impl Fn() + Send + 'static) -> std::io::Result<Ticker> {
        let shared = Arc::new(TickerState::default());
        let run = {
            let shared = Arc::clone(&shared);
            move || shared.run(tick)
        };
        let thread = sync::spawn("sequor-epoch".to_owned(), run)?.thread().clone();
        Ok(Ticker { shared, thread })
    }

    pub(crate) fn enter(&self) -> TickedCall<'_> {
        // Either this sees the thread asleep, or the thread sees this call before it sleeps: each side writes before it reads.
        self.shared.entered.fetch_add(1, Ordering::SeqCst);
        if self.shared.asleep.load(Ordering::SeqCst) {
            self.wake();
        }
        TickedCall(&self.shared)
    }

    fn wake(&self) {
        if self.shared.asleep.swap(false, Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.wake();
    }
}

impl Drop for TickedCall<'_> {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, Ordering::SeqCst);
    }
}

impl TickerState {
    fn run(&self, tick: impl Fn()) {
        let (mut seen, mut quiet) = (0, 0);
        while !self.over.load(Ordering::SeqCst) {
            sync::sleep(TICK);
            tick();
            let entered = self.entered.load(Ordering::SeqCst);
            let still = entered == seen && entered == self.left.load(Ordering::SeqCst);
            (seen, quiet) = (entered, if still { quiet + 1 } else { 0 });
            if quiet >= QUIET {
                self.sleep(seen);
                quiet = 0;
            }
        }
    }

    fn sleep(&self, seen: u64) {
        self.asleep.store(true, Ordering::SeqCst);
        if self.entered.load(Ordering::SeqCst) != seen {
            self.asleep.store(false, Ordering::SeqCst);
        }
        while self.asleep.load(Ordering::SeqCst) && !self.over.load(Ordering::SeqCst) {
            sync::park(None);
        }
    }
}

#[cfg(test)]
#[cfg(feature = "shuttle")]
mod interleavings {
    use shuttle::thread;

    use super::*;

    /// A call begins while the clock goes to sleep. One side sees the other, so the clock ticks and the test ends.
    fn calls_are_ticked() {
        let ticks = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&ticks);
        let ticker = Ticker::start(move || {
            count.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap();
        for _ in 0..3 {
            for _ in 0..QUIET {
                thread::yield_now();
            }
            let before = ticks.load(Ordering::SeqCst);
            let call = ticker.enter();
            while ticks.load(Ordering::SeqCst) == before {
                thread::yield_now();
            }
            drop(call);
        }
    }

    #[test]
    fn every_interleaving_tried_ticks_while_a_call_is_under_way() {
        shuttle::check_random(calls_are_ticked, 2000);
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use std::thread;

    use super::*;

    fn ticker() -> (Ticker, Arc<AtomicU64>) {
        let ticks = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&ticks);
        let tick = move || {
            count.fetch_add(1, Ordering::SeqCst);
        };
        (Ticker::start(tick).unwrap(), ticks)
    }

    fn until(what: impl Fn() -> bool) {
        while !what() {
            thread::yield_now();
        }
    }

    #[test]
    fn the_ticker_ticks_during_a_call_and_sleeps_afterwards() {
        let (ticker, ticks) = ticker();
        until(|| ticker.shared.asleep.load(Ordering::SeqCst));
        let before = ticks.load(Ordering::SeqCst);
        for _ in 0..3 {
            let call = ticker.enter();
            until(|| ticks.load(Ordering::SeqCst) >= before + 2 * u64::from(QUIET));
            assert!(!ticker.shared.asleep.load(Ordering::SeqCst), "a call is under way");
            drop(call);
            until(|| ticker.shared.asleep.load(Ordering::SeqCst));
        }
    }

    #[test]
    fn the_ticker_thread_ends_when_the_ticker_is_dropped() {
        let (ticker, _) = ticker();
        let shared = Arc::clone(&ticker.shared);
        until(|| shared.asleep.load(Ordering::SeqCst));
        drop(ticker);
        until(|| Arc::strong_count(&shared) == 1);
    }
}
