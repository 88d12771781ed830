//! The engine, one per process and mode: compiles, and sets how guests are held to their time. Where they serve, by a clock; in the simulator, by counted
//! instructions, so that the same seed gives the same bytes.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use wasmtime::{Config, InstanceAllocationStrategy, PoolingAllocationConfig, WasmBacktraceDetails};

use super::call_clock::{CallClock, CallClocks};
use super::ticker::{TickedCall, Ticker};

/// What guests run for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Requests wait for the answer: CPU time is limited.
    Serving,
    /// The simulator waits for it: instructions ("fuel") are counted and limited, every number has the same bits everywhere, and no clock is read.
    Simulation,
}

/// Maximum number of instances of components, of all plug-ins together.
pub const INSTANCES: u32 = 1024;

#[derive(Debug)]
pub struct Engine {
    inner: wasmtime::Engine,
    mode: Mode,
    /// Where guests serve.
    ticker: Option<Ticker>,
    clocks: Arc<CallClocks>,
}

/// Why there is no engine: the system did not give what it needs.
#[derive(Debug, thiserror::Error)]
#[error("WebAssembly cannot be run here: {0}")]
pub struct NoEngine(String);

impl Engine {
    pub fn new(mode: Mode) -> Result<Engine, NoEngine> {
        Engine::with_room_for(mode, INSTANCES)
    }

    /// An engine with room for this many instances of components.
    pub fn with_room_for(mode: Mode, instances: u32) -> Result<Engine, NoEngine> {
        // The pool reserves address space, which a limit on it (ulimit -v) may forbid; then each instance maps its own.
        let inner = wasmtime::Engine::new(config(mode).allocation_strategy(pool(instances)))
            .or_else(|_| wasmtime::Engine::new(&config(mode)))
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
        Ok(Engine { inner, mode, ticker, clocks })
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.inner
    }

    /// To be held while a guest runs.
    pub(crate) fn enter(&self) -> Option<TickedCall<'_>> {
        self.ticker.as_ref().map(Ticker::enter)
    }

    /// For an instance: what the clock sees of its calls.
    pub(crate) fn call_clock(&self) -> CallClock {
        self.clocks.add()
    }

    /// What compiled code must have been compiled with to run here: this version of the compiler, these settings, this processor.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
        self.inner.precompile_compatibility_hash().hash(&mut hasher);
        hasher.finish()
    }
}

fn config(mode: Mode) -> Config {
    let mut config = Config::new();
    // What a component says for debuggers is never read: wasmtime would do so at each trap, on the request's thread, and some thousand units that
    // share one table take it minutes. The names of functions are another matter, and a panic or an assertion names its line itself.
    config.wasm_component_model(true).wasm_backtrace_details(WasmBacktraceDetails::Disable);
    // No guest has threads or shares memory, and those that wait do so on stacks of their own: what they would need in every store is left out.
    config.concurrency_support(false).gc_support(false);
    match mode {
        Mode::Serving => config.epoch_interruption(true),
        Mode::Simulation => {
            config.consume_fuel(true).cranelift_nan_canonicalization(true).relaxed_simd_deterministic(true)
        }
    };
    config
}

/// Places for instances, made beforehand. A component of a language with a run time of its own is many core instances: componentize-py makes 38.
fn pool(instances: u32) -> InstanceAllocationStrategy {
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(instances)
        .total_core_instances(8192)
        .total_memories(1280)
        .total_tables(4096)
        .total_stacks(1024)
        .max_core_instances_per_component(64)
        .max_memories_per_component(8)
        .max_tables_per_component(32)
        .max_component_instance_size(4 << 20)
        .max_core_instance_size(4 << 20);
    InstanceAllocationStrategy::Pooling(pool)
}

/// FNV-1a: the same in every process, as the hashes of the standard library are not.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    }
}

/// One engine for all tests: each has a thread of its own.
#[cfg(test)]
pub(crate) static SERVING: std::sync::LazyLock<Arc<Engine>> =
    std::sync::LazyLock::new(|| Arc::new(Engine::new(Mode::Serving).unwrap()));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_is_of_the_settings() {
        let (serving, again) = (Engine::new(Mode::Serving).unwrap(), Engine::new(Mode::Serving).unwrap());
        let simulation = Engine::new(Mode::Simulation).unwrap();
        assert_eq!(serving.fingerprint(), again.fingerprint());
        assert_ne!(serving.fingerprint(), simulation.fingerprint());
    }
}
