//! The engine, one per process and mode: it compiles, and sets how a guest's time is limited. When guests serve, a clock limits them. In
//! the simulator, counted instructions do, so that the same seed gives the same bytes.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use wasmtime::{Config, InstanceAllocationStrategy, PoolingAllocationConfig, WasmBacktraceDetails};

use super::budget::TABLE;
use super::call_clock::{CallClock, CallClocks};
use super::room::{GuestRoom, INSTANCES};
use super::ticker::{TickedCall, Ticker};

/// The purpose of a guest's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Requests wait for the answer. CPU time is limited.
    Serving,
    /// The simulator waits for the answer. Instructions ("fuel") are counted and limited, floating point is deterministic, and no clock is
    /// read.
    Simulation,
}

/// Maximum core instances of a component. A component with its language's run time is many: componentize-py makes 38.
pub(crate) const CORE_INSTANCES: u32 = 64;
/// Tables of the engine for each of its [`INSTANCES`]. It has a memory and a stack for each.
pub(crate) const TABLES: u32 = 4;

#[derive(Debug)]
pub struct Engine {
    inner: wasmtime::Engine,
    mode: Mode,
    /// `None` in the simulation.
    ticker: Option<Ticker>,
    clocks: Arc<CallClocks>,
    room: GuestRoom,
}

/// The engine could not be started, because the system refused a resource.
#[derive(Debug, thiserror::Error)]
#[error("WebAssembly cannot be run here: {0}")]
pub struct NoEngine(String);

impl Engine {
    pub fn new(mode: Mode) -> Result<Engine, NoEngine> {
        Engine::in_room(mode, GuestRoom::default())
    }

    /// An engine for the guests of this room.
    pub fn in_room(mode: Mode, room: GuestRoom) -> Result<Engine, NoEngine> {
        // The pool reserves address space, which a limit on it (ulimit -v) may forbid. Then each instance maps its own.
        let inner = wasmtime::Engine::new(config(mode).allocation_strategy(pool()))
            .or_else(|e| {
                tracing::warn!(
                    "plug-ins start more slowly: their memory cannot be reserved. Is there a ulimit -v? {e:#}"
                );
                wasmtime::Engine::new(&config(mode))
            })
            .map_err(|e| NoEngine(format!("{e:#}")))?;
        let clocks = Arc::new(CallClocks::default());
        let ticker = match mode {
            Mode::Simulation => None,
            Mode::Serving => {
                let (engine, clocks) = (inner.clone(), Arc::clone(&clocks));
                let tick = move || {
                    engine.increment_epoch();
                    clocks.tick();
                };
                Some(Ticker::start(tick).map_err(|e| NoEngine(e.to_string()))?)
            }
        };
        Ok(Engine { inner, mode, ticker, clocks, room })
    }

    /// The room for its guests.
    pub fn room(&self) -> &GuestRoom {
        &self.room
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.inner
    }

    /// Keeps the ticker running. Held while a guest runs.
    pub(crate) fn enter(&self) -> Option<TickedCall<'_>> {
        self.ticker.as_ref().map(Ticker::enter)
    }

    /// A new clock for the calls of an instance.
    pub(crate) fn call_clock(&self) -> CallClock {
        self.clocks.add()
    }

    /// Identifies compiled code that can run here: this version of the compiler, these settings, this processor.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
        self.inner.precompile_compatibility_hash().hash(&mut hasher);
        hasher.finish()
    }
}

fn config(mode: Mode) -> Config {
    let mut config = Config::new();
    // A component's debug information is never read. Otherwise wasmtime would read it at each trap, on the request's thread, and some
    // thousand units that share one table take minutes. Function names remain, and a panic or an assertion names its line itself.
    config.wasm_component_model(true).wasm_backtrace_details(WasmBacktraceDetails::Disable);
    // No guest has threads or shared memory, and calls that wait use their own stacks. So each store can do without these features.
    config.concurrency_support(false).gc_support(false);
    match mode {
        Mode::Serving => config.epoch_interruption(true),
        Mode::Simulation => {
            config.consume_fuel(true).cranelift_nan_canonicalization(true).relaxed_simd_deterministic(true)
        }
    };
    config
}

/// Preallocated places for instances. [`GuestRoom`] counts guests by these numbers, so the pool is never full before the room is.
fn pool() -> InstanceAllocationStrategy {
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(INSTANCES)
        .total_core_instances(INSTANCES * CORE_INSTANCES)
        .total_memories(INSTANCES)
        .total_tables(INSTANCES * TABLES)
        .table_elements(TABLE)
        .total_stacks(INSTANCES)
        .max_core_instances_per_component(CORE_INSTANCES)
        .max_memories_per_component(8)
        .max_tables_per_component(32)
        .max_component_instance_size(4 << 20)
        .max_core_instance_size(4 << 20);
    InstanceAllocationStrategy::Pooling(pool)
}

/// FNV-1a: the same in every process, unlike the hashes of the standard library.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    }
}

/// One engine for all tests, because each engine has its own thread.
#[cfg(test)]
pub(crate) static SERVING: std::sync::LazyLock<Arc<Engine>> =
    std::sync::LazyLock::new(|| Arc::new(Engine::new(Mode::Serving).unwrap()));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_depends_on_the_engine_settings() {
        let (serving, again) = (Engine::new(Mode::Serving).unwrap(), Engine::new(Mode::Serving).unwrap());
        let simulation = Engine::new(Mode::Simulation).unwrap();
        assert_eq!(serving.fingerprint(), again.fingerprint());
        assert_ne!(serving.fingerprint(), simulation.fingerprint());
    }
}
