//! Marks the time in which a thread loads a model. What ONNX Runtime allocates on it then are weights, not tensors of a run.

use std::cell::Cell;

thread_local! {
    static LOADS: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, this thread loads a model.
pub(super) struct WeightLoading(bool);

impl WeightLoading {
    pub(super) fn begin() -> WeightLoading {
        WeightLoading(LOADS.replace(true))
    }
}

impl Drop for WeightLoading {
    fn drop(&mut self) {
        LOADS.set(self.0);
    }
}

/// Whether this thread loads a model.
pub(super) fn loads_weights() -> bool {
    LOADS.get()
}
