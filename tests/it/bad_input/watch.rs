//! Watches the server during the amplification tests: its memory, and whether it is live.

use std::cell::Cell;
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Rig;
use crate::server::get;

/// Maximum memory that the server keeps after a test.
const KEPT: u64 = 15 << 20;
/// Long enough for a busy machine; the actual time is printed.
const DEADLINE: Duration = Duration::from_secs(120);

/// Polls whether the server is live.
struct Beside {
    stop: Arc<AtomicBool>,
    longest_micros: Arc<AtomicU64>,
    asking: JoinHandle<u32>,
}

impl Beside {
    fn new(address: SocketAddr) -> Beside {
        let (stop, longest_micros) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, longest) = (Arc::clone(&stop), Arc::clone(&longest_micros));
        let asking = std::thread::spawn(move || {
            let mut count = 0;
            while !stopped.load(Ordering::Relaxed) {
                let asked = Instant::now();
                assert_eq!(get(address, "/v2/health/live").0, 200);
                longest.fetch_max(u64::try_from(asked.elapsed().as_micros()).unwrap(), Ordering::Relaxed);
                count += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            count
        });
        Beside { stop, longest_micros, asking }
    }
}

/// Watches a server from its idle time to the end of the last test.
pub(super) struct Watch {
    beside: Beside,
    idle: Memory,
    /// The highest peak over all tests.
    most: Cell<u64>,
}

/// Bytes in memory.
#[derive(Debug, Clone, Copy)]
struct Memory {
    all: u64,
    /// Without pages of files, most of which are the program itself.
    anonymous: u64,
}

impl Memory {
    fn of(rig: &Rig) -> Memory {
        Memory { all: rig.memory("VmRSS:"), anonymous: rig.memory("RssAnon:") }
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1048576.0
}

impl Watch {
    pub(super) fn new(rig: &Rig) -> Watch {
        let idle = Memory::of(rig);
        Watch { beside: Beside::new(rig.server.http), idle, most: Cell::new(0) }
    }

    /// Resident memory of the idle server, in bytes.
    pub(super) fn idle(&self) -> u64 {
        self.idle.all
    }

    /// Runs a test, and prints the peak of memory and the longest wait for `/v2/health/live` during it.
    pub(super) async fn prove(
        &self,
        rig: &Rig,
        (what, sent): (&str, usize),
        send: impl AsyncFnOnce(i64) -> Result<(), String>,
    ) -> Option<String> {
        // Resets the peak.
        fs::write(format!("/proc/{}/clear_refs", rig.server.process.pid()), "5").unwrap();
        self.beside.longest_micros.store(0, Ordering::Relaxed);
        let wrong = rig.check(what, "sum", send).await;
        let peak = rig.memory("VmHWM:");
        self.most.set(self.most.get().max(peak));
        let wait = self.beside.longest_micros.load(Ordering::Relaxed) as f64 / 1e3;
        let above = mib(peak.saturating_sub(self.idle.all));
        println!("{what}: {sent} bytes sent, at most {above:.1} MiB above idle, health answered within {wait:.1} ms");
        wrong
    }

    /// Checks that every test was refused within this memory, and that the memory is returned to the system.
    pub(super) fn end(self, rig: Rig, wrong: &[String], count: usize, limit: u64) {
        assert!(wrong.is_empty(), "{} wrong of {count}:\n{}", wrong.len(), wrong.join("\n"));
        self.beside.stop.store(true, Ordering::Relaxed);
        let answers = self.beside.asking.join().unwrap();
        let most = self.most.get();
        assert!(most < limit, "{most} bytes of memory, of {limit} that may be");
        let ended = Instant::now();
        let mut now = Memory::of(&rig);
        while now.anonymous > self.idle.anonymous + KEPT && ended.elapsed() < DEADLINE {
            std::thread::sleep(Duration::from_millis(50));
            now = Memory::of(&rig);
        }
        println!(
            "{count} proofs beside {answers} answers of health: idle {:.1} MiB ({:.1} without files), at most {:.1}; after {:.1} s {:.1} MiB ({:.1})",
            mib(self.idle.all),
            mib(self.idle.anonymous),
            mib(most),
            ended.elapsed().as_secs_f64(),
            mib(now.all),
            mib(now.anonymous),
        );
        assert!(now.anonymous <= self.idle.anonymous + KEPT, "memory is not given back: {now:?}, idle {:?}", self.idle);
        drop(rig.client);
        assert_eq!(rig.server.stop().code, Some(0));
    }
}
