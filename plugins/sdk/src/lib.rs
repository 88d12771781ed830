//! Writes plug-ins for the Sequor inference server: a plug-in decides which requests run together and when.
//!
//! ```
//! use sequor_plugin::scheduler::*;
//!
//! #[derive(Default)]
//! struct Urgent;
//!
//! impl Scheduler for Urgent {
//!     fn plan(&mut self, round: &Round, ready: &Ready) -> Plan {
//!         Plan::fire(ready.batch(ready.by(|i| ready.deadline_us(i)), round))
//!     }
//! }
//!
//! sequor_plugin::export!(Urgent);
//! # fn main() {}
//! ```
//!
//! Built with `sequor plugin build` this is a component that the server loads. Built for the machine it stands on, the same crate is an ordinary
//! library: [`testing`] drives it in `cargo test`, with no WebAssembly anywhere.
//!
//! # Layout
//!
//! - [`scheduler`]: the trait, and everything it speaks of.
//! - [`host`]: what a plug-in may ask of the server.
//! - [`testing`]: candidates by hand, answers held against the server's rules.
//! - [`Instance`]: a plug-in as the server sees it, in the words of the contract; what [`export!`] makes.
//! - `wasm`: the functions of the contract, for WebAssembly alone; `bindings`: what is generated from the contract (`wit/`) beside them.

mod admission;
mod columns;
mod config;
mod event;
pub mod host;
mod instance;
mod model;
mod order;
mod plan;
mod ready;
mod round;
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
    pub use crate::plan::{Decision, Plan, Wake};
    pub use crate::ready::Ready;
    pub use crate::round::Round;

    /// A map whose order is the same on every machine, so that a plug-in decides the same wherever it runs.
    pub type Map<K, V> = std::collections::BTreeMap<K, V>;

    /// A scheduler. Only the hooks that `plugin.toml` names in `wants` are called.
    pub trait Scheduler: Default + 'static {
        /// First of all. The error is shown to whoever attaches the plug-in, and refuses the attachment.
        fn configure(&mut self, config: &Config, model: &Model) -> Result<(), String> {
            let _ = (config, model);
            Ok(())
        }

        /// Which of the candidates run now.
        fn plan(&mut self, round: &Round, ready: &Ready<'_>) -> Plan {
            let _ = (round, ready);
            Plan::default()
        }

        /// Who of those who wait gets a slot: one answer for each of the first of `waiting`; those beyond wait on. `room` counts the free slots of
        /// each instance. Left as it is: whoever waits longest takes what is free.
        fn admit(&mut self, round: &Round, waiting: &Ready<'_>, room: &[u32], victims: &Ready<'_>) -> Vec<Admission> {
            let _ = (round, victims);
            Admission::in_order(waiting.len(), room)
        }

        /// Something happened.
        fn observe(&mut self, event: &Event<'_>) {
            let _ = event;
        }

        /// What whoever takes its place shall know; at most 1 MiB.
        fn save(&mut self) -> Vec<u8> {
            Vec::new()
        }

        /// What an earlier one saved, perhaps of another version.
        fn restore(&mut self, saved: &[u8]) -> Result<(), String> {
            let _ = saved;
            Ok(())
        }
    }
}

/// Makes the type the plug-in of this crate: exports it in a component, and gives its twin on other machines as `plugin()`.
#[macro_export]
macro_rules! export {
    ($plugin:ty) => {
        /// The plug-in in the words of the contract, as it runs in the server.
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
