//! The server's next action for a prepared request.

use super::tensors::Tensors;

/// Maximum number of runs of one request.
pub const RUNS: usize = 4096;

/// The server's next action for a prepared request.
#[derive(Debug, Clone, PartialEq)]
pub enum Prepared {
    /// Run the model once for each of these inputs, one after the other. All have the same shapes. A request that needs more than [`RUNS`]
    /// runs is refused with [`super::code::WRONG_REQUEST`].
    Run(Vec<Tensors>),
    /// Answer the request with these outputs, without a run.
    Reply(Tensors),
}

impl Prepared {
    /// Runs the model once with these inputs. Inputs that `reads` of plugin.toml does not name may be left out.
    #[must_use]
    pub fn run(inputs: impl Into<Tensors>) -> Prepared {
        Prepared::Run(vec![inputs.into()])
    }

    /// Runs the model once for each of these inputs. If there are none, the model does not run: see [`Prepared::or_reply`].
    #[must_use]
    pub fn run_each<I: Into<Tensors>>(runs: impl IntoIterator<Item = I>) -> Prepared {
        // One run too many is enough to refuse the request.
        let runs: Vec<Tensors> = runs.into_iter().take(RUNS + 1).map(Into::into).collect();
        if runs.is_empty() { Prepared::Reply(Tensors::new()) } else { Prepared::Run(runs) }
    }

    /// Answers the request with these outputs, without a run.
    #[must_use]
    pub fn reply(outputs: impl Into<Tensors>) -> Prepared {
        Prepared::Reply(outputs.into())
    }

    /// Answers the request with these outputs if [`Prepared::run_each`] had no runs.
    #[must_use]
    pub fn or_reply(self, outputs: impl Into<Tensors>) -> Prepared {
        match self {
            Prepared::Reply(none) if none.is_empty() => Prepared::reply(outputs),
            other => other,
        }
    }
}
