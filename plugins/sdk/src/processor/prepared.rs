//! What the server does with a prepared request.

use super::tensors::Tensors;

/// Maximum number of runs of one request.
pub const RUNS: usize = 4096;

/// What the server does with a prepared request.
#[derive(Debug, Clone, PartialEq)]
pub enum Prepared {
    /// The model runs once for each of these inputs, one after the other. All have the same shapes. A request that needs more than [`RUNS`] runs is
    /// refused with [`super::code::WRONG_REQUEST`].
    Run(Vec<Tensors>),
    /// The model does not run, and the request is answered with these outputs.
    Reply(Tensors),
}

impl Prepared {
    /// The model runs once with these inputs. An input that `reads` of plugin.toml does not name need not be among them.
    #[must_use]
    pub fn run(inputs: impl Into<Tensors>) -> Prepared {
        Prepared::Run(vec![inputs.into()])
    }

    /// The model runs once for each of these inputs. If there are none, it does not run: see [`Prepared::or_reply`].
    #[must_use]
    pub fn run_each<I: Into<Tensors>>(runs: impl IntoIterator<Item = I>) -> Prepared {
        // One too many is enough to refuse the request.
        let runs: Vec<Tensors> = runs.into_iter().take(RUNS + 1).map(Into::into).collect();
        if runs.is_empty() { Prepared::Reply(Tensors::new()) } else { Prepared::Run(runs) }
    }

    /// The model does not run, and the request is answered with these outputs.
    #[must_use]
    pub fn reply(outputs: impl Into<Tensors>) -> Prepared {
        Prepared::Reply(outputs.into())
    }

    /// If [`Prepared::run_each`] had no runs, the request is answered with these outputs.
    #[must_use]
    pub fn or_reply(self, outputs: impl Into<Tensors>) -> Prepared {
        match self {
            Prepared::Reply(none) if none.is_empty() => Prepared::reply(outputs),
            other => other,
        }
    }
}
