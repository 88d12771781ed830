//! Processors: plug-ins that prepare a model's inputs and finish its outputs.
//!
//! ```
//! use sequor_plugin::processor::*;
//!
//! /// Clients send PCM, and the model takes numbers between -1 and 1.
//! #[derive(Default)]
//! struct Normalize;
//!
//! impl Processor for Normalize {
//!     type Scratch = ();
//!
//!     fn configure(&mut self, _: &Config, _: &Model, inner: &Signature, _: &Files) -> Result<Signature, String> {
//!         inner.find_input("samples")?;
//!         Ok(inner.clone().hide_input("samples").input("AUDIO", Dtype::INT16, &[1, -1]))
//!     }
//!
//!     fn pre(&mut self, _: &Call<'_>, inputs: Tensors, _: &mut ()) -> Result<Prepared, Refusal> {
//!         let audio = inputs.get("AUDIO")?;
//!         let samples: Vec<f32> = audio.values::<i16>()?.into_iter().map(|s| f32::from(s) / 32768.0).collect();
//!         Ok(Prepared::run([("samples", Tensor::new(&audio.shape(), &samples))]))
//!     }
//! }
//!
//! sequor_plugin::export_processor!(Normalize);
//! # fn main() {}
//! ```
//!
//! # Layout
//!
//! - [`Processor`]: the trait.
//! - `dtype`, `half`, `tensor`, `tensors`: tensors, typed and by name · `held`: tensors that the server keeps · `join`: joins the outputs
//!   of several runs.
//! - `signature`: inputs and outputs of a model or a processor · `files`: the files of sequor.toml · `tokens`: tables of tokens.
//! - `call`: one request without its tensors · `prepared`, `refusal`: answers · `scratch`: a processor's data of a sequence.
//! - [`models`]: calls to other models.
//! - [`testing`]: a bench that stands in for the server and the model.
//! - [`Instance`]: a processor in the contract's functions · `wasm`: the same for WebAssembly · `bindings`: generated from the contract.

mod call;
mod dtype;
mod files;
mod half;
pub(crate) mod held;
pub(crate) mod instance;
mod join;
pub mod models;
mod prepared;
mod refusal;
mod scratch;
mod signature;
mod tensor;
mod tensors;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
mod tokens;

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
pub use call::{Call, CallFacts};
pub use dtype::{Dtype, Element, decode, encode};
pub use files::Files;
pub use instance::{Action, Instance, NewScratch, Value};
pub use join::join;
pub use prepared::{Prepared, RUNS};
pub use refusal::{Refusal, code, refuse};
pub use scratch::{Json, Scratch};
pub use signature::{Port, Signature};
pub use tensor::{Buffer, Tensor};
pub use tensors::Tensors;
pub use tokens::{TokenOutputs, TokenTable, argmax, frames_of};

/// A processor. The server calls only the functions that plugin.toml names in `wants`.
///
/// The server runs several instances and may call any of them, even for two requests of one sequence. Keep data for later steps of a
/// sequence in its scratch, and in `self` only data from `configure`. A panic traps: its message goes to the server's log, and the request
/// fails as `plugin_failed`.
pub trait Processor: Default + 'static {
    /// The data kept for a sequence: `()`, bytes, or [`Json`] of a serde type.
    type Scratch: Scratch;

    /// Configures the instance. Called first. `inner` has the inputs and outputs of the model, or of the next processor. Returns the
    /// signature that clients see instead. An error refuses the model.
    fn configure(
        &mut self,
        config: &Config,
        model: &Model,
        inner: &Signature,
        files: &Files,
    ) -> Result<Signature, String> {
        let _ = (config, model, files);
        Ok(inner.clone())
    }

    /// Prepares a request. If the model allows it, an END may come without inputs. Default: passes the inputs on.
    fn pre(&mut self, call: &Call<'_>, inputs: Tensors, scratch: &mut Self::Scratch) -> Result<Prepared, Refusal> {
        let _ = (call, scratch);
        Ok(if inputs.is_empty() { Prepared::reply(inputs) } else { Prepared::run(inputs) })
    }

    /// Finishes a request from the outputs of each run. Default: joins them on their first dimension.
    fn post(&mut self, call: &Call<'_>, runs: Vec<Tensors>, scratch: &mut Self::Scratch) -> Result<Tensors, Refusal> {
        let _ = (call, scratch);
        Ok(join(runs))
    }
}

/// Makes the type the processor of this crate. A component exports it. On other machines `plugin()` makes an instance.
#[macro_export]
macro_rules! export_processor {
    ($plugin:ty) => {
        /// The plug-in in the contract's functions, as it runs in the server.
        #[must_use]
        pub fn plugin() -> $crate::processor::Instance<$plugin> {
            $crate::processor::Instance::default()
        }

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::processor::bindings::exports::sequor::plugin::processor as contract;

            struct Component;

            ::std::thread_local! {
                static INSTANCE: ::std::cell::RefCell<$crate::processor::Instance<$plugin>> = ::std::default::Default::default();
            }

            impl contract::Guest for Component {
                fn configure(
                    config: ::std::string::String,
                    model: contract::Model,
                    inner: contract::Signature,
                    files: ::std::vec::Vec<contract::File>,
                ) -> ::std::result::Result<contract::Signature, ::std::string::String> {
                    INSTANCE.with_borrow_mut(|to| $crate::processor::wasm::configure(to, &config, model, inner, files))
                }

                fn pre(
                    call: contract::Call,
                    inputs: ::std::vec::Vec<contract::Value>,
                ) -> ::std::result::Result<contract::Prepared, contract::Refusal> {
                    INSTANCE.with_borrow_mut(|to| $crate::processor::wasm::pre(to, call, inputs))
                }

                fn post(
                    call: contract::Call,
                    runs: ::std::vec::Vec<::std::vec::Vec<contract::Value>>,
                ) -> ::std::result::Result<contract::Answered, contract::Refusal> {
                    INSTANCE.with_borrow_mut(|to| $crate::processor::wasm::post(to, call, runs))
                }
            }

            $crate::processor::bindings::export!(Component with_types_in $crate::processor::bindings);
        };
    };
}
