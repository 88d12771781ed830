//! The kit for plug-ins of the Sequor inference server. [`scheduler`]: decides which requests run together and when. [`processor`]: changes
//! inputs and outputs of a model. [`initializer`]: makes first states.
//!
//! ```
//! use sequor_plugin::scheduler::*;
//!
//! #[derive(Default)]
//! struct Urgent;
//!
//! impl Scheduler for Urgent {
//!     fn plan(&mut self, round: &Round, ready: &Ready) -> Plan {
//!         Plan::fire(ready.batch(ready.sorted(|i| ready.deadline_us(i)), round))
//!     }
//! }
//!
//! sequor_plugin::export!(Urgent);
//! # fn main() {}
//! ```
//!
//! `sequor plugin build` makes a component that the server loads. `cargo test` builds the same crate as an ordinary library, and
//! [`testing`] drives it without WebAssembly.
//!
//! # Layout
//!
//! - [`scheduler`]: the trait, and the types of its methods.
//! - [`processor`]: the same for plug-ins that prepare a model's inputs and finish its outputs.
//! - [`initializer`]: the same for plug-ins that make the first state of a sequence.
//! - [`host`]: functions of the server.
//! - [`testing`]: candidates for tests, and the server's rules for answers.
//! - [`Instance`]: a scheduler in the contract's functions; [`export!`] makes one.
//! - `wasm`: the contract's functions for WebAssembly; `bindings`: code generated from the contract (`wit/`).

mod admission;
mod columns;
mod config;
mod event;
pub mod host;
pub mod initializer;
mod instance;
#[cfg(not(target_arch = "wasm32"))]
mod manifest;
mod model;
mod order;
mod plan;
pub mod processor;
mod ready;
mod round;
mod saved;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
#[rustfmt::skip]
pub mod bindings;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod wasm;

pub use instance::Instance;

/// Everything a scheduler needs: `use sequor_plugin::scheduler::*`.
pub mod scheduler {
    pub use crate::admission::Admission;
    pub use crate::columns::{Column, Columns};
    pub use crate::config::Config;
    pub use crate::event::{Ending, Event, Events, KeysOf};
    pub use crate::host;
    pub use crate::model::{Key, Model, Sequence, key_of};
    pub use crate::order::{Order, rank};
    pub use crate::plan::{Decision, Plan, Rejection, Wake};
    pub use crate::ready::Ready;
    pub use crate::round::Round;
    pub use crate::saved::{restored, saved};

    /// A map with the same order on every machine, so that a plug-in decides the same everywhere.
    pub type Map<K, V> = std::collections::BTreeMap<K, V>;

    /// A scheduler. Only the hooks that `plugin.toml` names in `wants` are called.
    pub trait Scheduler: Default + 'static {
        /// Configures the plug-in, before any other call. An error refuses the plug-in, and its text is for the operator.
        fn configure(&mut self, config: &Config, model: &Model) -> Result<(), String> {
            let _ = (config, model);
            Ok(())
        }

        /// Chooses the candidates that run now.
        fn plan(&mut self, round: &Round, ready: &Ready<'_>) -> Plan {
            let _ = (round, ready);
            Plan::default()
        }

        /// Decides which waiting sequences get a slot. It answers for the first of `waiting`, in order; the others keep waiting. `room` is
        /// the number of free slots of each instance. Default: the sequences that wait longest take the free slots.
        fn admit(&mut self, round: &Round, waiting: &Ready<'_>, room: &[u32], victims: &Ready<'_>) -> Vec<Admission> {
            let _ = (round, victims);
            Admission::in_order(waiting.len(), room)
        }

        /// Receives an event. The events since the last call come before each question.
        fn observe(&mut self, event: &Event<'_>) {
            let _ = event;
        }

        /// Returns the state for the next instance or version; at most 1 MiB. [`saved`] makes it from a value.
        fn save(&mut self) -> Vec<u8> {
            Vec::new()
        }

        /// Restores a state that an earlier instance saved, possibly of another version. [`restored`] parses the output of [`saved`].
        fn restore(&mut self, saved: &[u8]) -> Result<(), String> {
            let _ = saved;
            Ok(())
        }
    }
}

/// Makes the type the plug-in of this crate. A component exports it. On other machines `plugin()` makes its twin.
#[macro_export]
macro_rules! export {
    ($plugin:ty) => {
        /// The plug-in in the contract's functions, as it runs in the server.
        #[must_use]
        pub fn plugin() -> $crate::Instance<$plugin> {
            $crate::Instance::default()
        }

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct Component;

            ::std::thread_local! {
                static KEPT: ::std::cell::RefCell<$crate::wasm::Kept<$plugin>> = ::std::default::Default::default();
            }

            impl $crate::wasm::Exported for Component {
                type Plugin = $plugin;

                fn with<R>(call: impl FnOnce(&mut $crate::wasm::Kept<$plugin>) -> R) -> R {
                    KEPT.with_borrow_mut(call)
                }
            }

    $crate::bindings::export!(Component with_types_in $crate::wasm::shim);
        };
    };
}
