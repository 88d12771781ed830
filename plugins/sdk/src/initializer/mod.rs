//! State initializers: plug-ins that make the first state of a sequence.
//!
//! ```
//! use sequor_plugin::initializer::*;
//!
//! /// A sequence of a known tenant begins with 100 in the state `total`.
//! #[derive(Default)]
//! struct Bonus;
//!
//! impl Initializer for Bonus {
//!     fn initialize(&mut self, call: &Call<'_>, _: Tensors) -> Result<FirstState, Refusal> {
//!         if call.key("tenant") == 0 {
//!             return Ok(FirstState::Default);
//!         }
//!         Ok(FirstState::states([("total", Tensor::new(&[1], &[100i32]))]))
//!     }
//! }
//!
//! sequor_plugin::export_initializer!(Bonus);
//! # fn main() {}
//! ```
//!
//! Tensors, files, calls and refusals come from [`crate::processor`].
//!
//! # Layout
//!
//! - [`Initializer`]: the trait · `first_state`: its answers · `ports`: the tensors of its model.
//! - [`testing`]: a bench that stands in for the server.
//! - [`Instance`]: an initializer in the contract's functions · `wasm`: the same for WebAssembly · `bindings`: generated from the contract.

mod first_state;
mod instance;
mod ports;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
#[rustfmt::skip]
pub mod bindings;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod wasm;

pub use crate::config::Config;
pub use crate::host;
pub use crate::model::{Key, Model, Sequence, key_of};
pub use crate::processor::{
    Buffer, Call, CallFacts, Dtype, Element, Files, Port, Refusal, Tensor, Tensors, Value, code, decode, encode, refuse,
};
pub use first_state::FirstState;
pub use instance::{Answer, Instance};
pub use ports::Ports;

/// A state initializer.
///
/// The server runs several instances and may call any of them. So an answer may depend on the call, the configuration and the files, but
/// not on earlier calls. Keep in `self` only data from `configure`. A panic traps: its message goes to the server's log, and the START
/// fails as `plugin_failed`.
pub trait Initializer: Default + 'static {
    /// Configures the instance. Called first. An error refuses the model.
    fn configure(&mut self, config: &Config, model: &Model, ports: &Ports, files: &Files) -> Result<(), String> {
        let _ = (config, model, ports, files);
        Ok(())
    }

    /// Answers a START. `inputs` are the request's inputs that `reads` of plugin.toml names.
    fn initialize(&mut self, call: &Call<'_>, inputs: Tensors) -> Result<FirstState, Refusal>;

    /// Returns the inputs of each step that produces the states of this name. Called after [`FirstState::Kept`], if the server keeps no
    /// states of that name. Only an initializer that returns `Kept` needs it.
    fn steps(&mut self, name: &str, call: &Call<'_>, inputs: Tensors) -> Result<Vec<Tensors>, Refusal> {
        let _ = (call, inputs);
        panic!("there are no steps for \"{name}\"")
    }
}

/// Makes the type the initializer of this crate. A component exports it. On other machines `plugin()` makes an instance.
#[macro_export]
macro_rules! export_initializer {
    ($plugin:ty) => {
        /// The plug-in in the contract's functions, as it runs in the server.
        #[must_use]
        pub fn plugin() -> $crate::initializer::Instance<$plugin> {
            $crate::initializer::Instance::default()
        }

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::initializer::bindings::exports::sequor::plugin::state_initializer as contract;

            struct Component;

            ::std::thread_local! {
                static INSTANCE: ::std::cell::RefCell<$crate::initializer::Instance<$plugin>> = ::std::default::Default::default();
            }

            impl contract::Guest for Component {
                fn configure(
                    config: ::std::string::String,
                    model: contract::Model,
                    ports: contract::Ports,
                    files: ::std::vec::Vec<contract::File>,
                ) -> ::std::result::Result<(), ::std::string::String> {
                    INSTANCE.with_borrow_mut(|to| $crate::initializer::wasm::configure(to, &config, model, ports, files))
                }

                fn initialize(
                    call: contract::Call,
                    inputs: ::std::vec::Vec<contract::Value>,
                ) -> ::std::result::Result<contract::FirstState, contract::Refusal> {
                    INSTANCE.with_borrow_mut(|to| $crate::initializer::wasm::initialize(to, call, inputs))
                }

                fn steps(
                    name: ::std::string::String,
                    call: contract::Call,
                    inputs: ::std::vec::Vec<contract::Value>,
                ) -> ::std::result::Result<::std::vec::Vec<::std::vec::Vec<contract::Value>>, contract::Refusal> {
                    INSTANCE.with_borrow_mut(|to| $crate::initializer::wasm::steps(to, &name, call, inputs))
                }
            }

            $crate::initializer::bindings::export!(Component with_types_in $crate::initializer::bindings);
        };
    };
}
