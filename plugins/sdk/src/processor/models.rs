//! Calls to other models of the server. In a test, [`serve`] stands in for them.

use std::fmt;

use super::refusal::{Refusal, code, refuse};
use super::tensors::Tensors;

/// Why a call gave no outputs. Codes 1 to 6 are those of [`code`]. 7: the deadline has passed; 8: the model failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: u32,
    /// A sentence.
    pub text: String,
    /// Microseconds after which the same call may succeed, if that is known.
    pub retry_us: Option<u64>,
}

/// Runs another model once and waits for its outputs. A grant of the operator must name the model. `configure` must not call it.
///
/// ```
/// use sequor_plugin::processor::*;
///
/// models::serve("double", |inputs: &Tensors| {
///     let x = inputs.get("x").unwrap().values::<i32>().unwrap();
///     Ok(Tensors::from([("y", Tensor::new(&[1], &[2 * x[0]]))]))
/// });
/// let outputs = models::infer("double", [("x", Tensor::new(&[1], &[21]))]).unwrap();
/// assert_eq!(outputs.get("y").unwrap().values::<i32>().unwrap(), [42]);
/// ```
pub fn infer(model: &str, inputs: impl Into<Tensors>) -> Result<Tensors, Failure> {
    asked::infer(model, inputs.into())
}

#[cfg(not(target_arch = "wasm32"))]
pub use asked::{calls, serve};

/// Codes that do not exist for refusals become [`code::NOT_NOW`].
impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        let Failure { code, text, retry_us } = failure;
        let code = if (code::WRONG_REQUEST..=code::WRONG_STATE).contains(&code) { code } else { code::NOT_NOW };
        Refusal { retry_us, ..refuse(code, text) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.text, self.code)
    }
}

impl std::error::Error for Failure {}

#[cfg(target_arch = "wasm32")]
mod asked {
    use super::{Failure, Tensors};
    use crate::processor::bindings::sequor::plugin::models;
    use crate::processor::wasm::{given_content, taken_content};

    pub fn infer(model: &str, inputs: Tensors) -> Result<Tensors, Failure> {
        let named = |(name, tensor): (std::borrow::Cow<'_, str>, _)| models::NamedTensor {
            name: name.into_owned(),
            content: given_content(tensor),
        };
        let inputs = inputs.into_entries().map(named).collect();
        let outputs = models::infer(model, inputs).map_err(|failure| {
            let models::Failure { code, text, retry_us } = failure;
            Failure { code, text, retry_us }
        })?;
        Ok(outputs.into_iter().map(|output| (output.name, taken_content(output.content))).collect())
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod asked {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::{Failure, Tensors};

    type Answer = Box<dyn FnMut(&Tensors) -> Result<Tensors, Failure>>;

    thread_local! {
        static MODELS: RefCell<BTreeMap<String, (Answer, u64)>> = const { RefCell::new(BTreeMap::new()) };
    }

    /// In a test: lets `answer` stand in for a model, for calls of this thread.
    pub fn serve(model: &str, answer: impl FnMut(&Tensors) -> Result<Tensors, Failure> + 'static) {
        MODELS.with_borrow_mut(|models| models.insert(model.to_owned(), (Box::new(answer), 0)));
    }

    /// In a test: how often a model was called.
    #[must_use]
    pub fn calls(model: &str) -> u64 {
        MODELS.with_borrow(|models| models.get(model).map_or(0, |(_, calls)| *calls))
    }

    pub fn infer(model: &str, inputs: Tensors) -> Result<Tensors, Failure> {
        MODELS.with_borrow_mut(|models| match models.get_mut(model) {
            Some((answer, calls)) => {
                *calls += 1;
                answer(&inputs)
            }
            None => Err(Failure { code: 4, text: format!("there is no model \"{model}\""), retry_us: None }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_a_refusal_with_its_code() {
        let failure = infer("none", Tensors::new()).unwrap_err();
        assert_eq!(failure.to_string(), "there is no model \"none\" (code 4)");
        assert_eq!(Refusal::from(failure).code, code::NOT_FOUND);
        let failed = Failure { code: 8, text: "it failed".to_owned(), retry_us: Some(5) };
        let refusal = Refusal::from(failed);
        assert_eq!((refusal.code, refusal.retry_us), (code::NOT_NOW, Some(5)));
    }
}
