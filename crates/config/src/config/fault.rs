//! Faults in files of the server and of models. All faults are collected; checking does not stop at the first.

pub use sequor_files::fault::{Fault, did_you_mean};

use crate::error::LoadError;

/// Declares the kinds of faults: the constants and, from the same lines, the table behind `docs/reference/check.md`.
macro_rules! codes {
    ($( $(#[doc = $meaning:literal])+ $name:ident = $code:expr, $action:literal; )*) => {
        $( $(#[doc = $meaning])+ pub const $name: &str = $code; )*

        /// Every code: itself, its meaning, what to do.
        pub const ALL: &[(&str, &str, &str)] =
            &[$( ($code, concat!($($meaning),+).trim_ascii(), $action) ),*];
    };
}

/// The kinds of faults, as `sequor check` prints them.
pub mod code {
    codes! {
        /// A file does not parse, or has a field that does not exist.
        PARSE = sequor_files::fault::code::PARSE, "Correct the line, and check again: a fault of the structure, such as a missing brace, hides those behind it. If a name is close to a known one, the message offers that.";
        /// A value is not allowed for its field.
        VALUE = sequor_files::fault::code::VALUE, "The message names the field and what it takes.";
        /// A file is absent or cannot be read.
        FILE = "E-FILE", "Check the path and the permissions of the user that runs Sequor. If the model's file has another name than `model.onnx`, set `default_model_filename` in `config.pbtxt`.";
        /// The field or feature is understood but not served.
        NOT_SERVED = "E-NOT-SERVED", "Take the field out, or serve the model without the feature.";
        /// `name` differs from the name of the model's directory, or two repositories have a model of this name.
        NAME = "E-NAME", "Rename one of them, or leave `name` out.";
        /// The backend, platform or model file is not one that Sequor serves.
        BACKEND = "E-BACKEND", "Export the model to ONNX. Set `backend: \"onnxruntime\"` or leave it out.";
        /// `version_policy` names a version below 1.
        VERSIONS = "E-VERSIONS", "Name versions from 1 on, each a directory of the model.";
        /// An entry of `input` is wrong in itself.
        INPUT = "E-INPUT", "The message names the input and the field.";
        /// An entry of `output` is wrong in itself.
        OUTPUT = "E-OUTPUT", "The message names the output and the field.";
        /// `reshape` does not keep the number of elements.
        RESHAPE = "E-RESHAPE", "Make both shapes the same size, with the same open dimensions.";
        /// `instance_group` cannot be satisfied.
        INSTANCES = "E-INSTANCES", "Correct `count`, `kind` or `gpus`. A GPU must exist on this machine.";
        /// `max_batch_size` or `dynamic_batching` is wrong.
        BATCHING = "E-BATCHING", "The message names the field and its range.";
        /// `sequence_batching` is wrong or contradicts another part of the file.
        SEQUENCE = "E-SEQUENCE", "The message names the field and its range.";
        /// An entry of `control_input` is wrong.
        CONTROL = "E-CONTROL", "Give the control one kind and a pair of values in one type.";
        /// An entry of `sequence_batching.state` is incomplete or names a tensor twice.
        STATE = "E-STATE", "Give each state its own `input_name` and `output_name`.";
        /// The dimensions of a state are not those of the model's tensors.
        STATE_DIMS = "E-STATE-DIMS", "Copy the dimensions from the message, without the batch dimension.";
        /// The batch dimension of a state is not on the configured axis.
        STATE_AXIS = "E-STATE-AXIS", "Set `batch_axis` in `sequor.toml` as the message says.";
        /// `pad` of a state does not fit the state or the model.
        STATE_PAD = "E-STATE-PAD", "Correct `pad` in `[state.X]`, or remove it: then the state batches only with states of its own length.";
        /// `initial_state` cannot be used for its state.
        INITIAL = "E-INITIAL", "Correct its type, dimensions or file. Without it a state begins with zeros.";
        /// `constant` of `[input.NAME]` does not fit the input.
        CONSTANT = "E-CONSTANT", "Use the type and shape of the model's input.";
        /// The model has another number of inputs than the configuration.
        COUNT = "E-COUNT", "List every input. A tensor may be a client's input, a control, a state or a constant. The mask or the lengths of rows of different length are named by `pad` of `[state.X]`, or by `mask` or `lengths` of `[input.X]`.";
        /// The configuration names an input that the model does not have.
        NO_INPUT = "E-NO-INPUT", "Correct the name. The message offers a close one.";
        /// The configuration names an output that the model does not have.
        NO_OUTPUT = "E-NO-OUTPUT", "Correct the name. The message offers a close one.";
        /// The configuration and the model differ in a tensor's data type.
        TYPE = "E-TYPE", "Write the model's type.";
        /// The configuration and the model differ in a tensor's dimensions.
        DIMS = "E-DIMS", "Write the model's dimensions. With batching, leave the batch dimension out.";
        /// `ensemble_scheduling` is wrong, or does not fit the members.
        ENSEMBLE = "E-ENSEMBLE", "The message names the step, the tensor or the field.";
        /// A feature is declared wrongly.
        FEATURE = "E-FEATURE", "The message names the entry of `[[feature]]` and the field.";
        /// A plug-in is missing, invalid, or not the one that was named.
        PLUGIN = "E-PLUGIN", "Put the component into the plug-in directory, or correct its name or hash in `sequor.toml`.";
        /// ONNX Runtime or this machine cannot load the model.
        RUNTIME = "E-RUNTIME", "The message is that of the runtime or the system.";
        /// The model's file is not a graph that ONNX Runtime can read: it may be cut, damaged, or in a format or with operators that are too new.
        GRAPH = "E-GRAPH", "The message is that of ONNX Runtime. Compare the size and the checksum of the file with those of the original, and copy it again or export it again.";
        /// The model keeps sequences with `[durability]`, and the server's settings name no place for them.
        STORE = "E-STORE", "Set `state.dir` or `state.url` in the server's settings, or take `[durability]` out of the model's `sequor.toml`.";
        /// A sample run of the model failed.
        RUN = "E-RUN", "The message is that of ONNX Runtime. Run the file in Python with the same shapes.";
        /// A directory of the repository holds no model.
        NOTE_NO_MODEL = "N-NO-MODEL", "Nothing, if it is not meant to be one.";
        /// With every slot in use, the model needs more memory than `limits.state` allows.
        NOTE_MEMORY = "N-MEMORY", "Raise `limits.state`, or lower the number of slots.";
        /// The model keeps sequences with `[durability]`, and the check was made without a server's settings.
        NOTE_STORE = "N-STORE", "Set `state.dir` or `state.url` in the server's settings. With `--config FILE` the check uses them.";
        /// A sample's answer depends on the other rows of its batch.
        NOTE_BATCH = "N-BATCH", "Check that the graph treats its rows independently.";
        /// A sample's answer depends on how far its inputs or its state are padded.
        NOTE_PADDING = "N-PADDING", "Give the graph the true lengths or a mask (`lengths`, `mask` of `[input.X]`, of `pad` of `[state.X]`), use them in the graph, and cut the padding off (`crop` of `[output.X]`).";
        /// The first value of a state is not used as its file has it.
        NOTE_INITIAL = "N-INITIAL", "Write the file in the BYTES layout, or take it out.";
        /// The model has a state initializer and sees START. If its graph drops the state at START, the initializer's values have no effect.
        NOTE_INITIALIZER = "N-INITIALIZER", "Nothing, if the graph keeps its state at START. Else use a model that leaves the first state to the server, or answer `copy-of` or `kept`.";
        /// A model without `config.pbtxt` has an input and an output that look like a state, and is served without sequences.
        NOTE_STATE = "N-STATE", "Write a `config.pbtxt` with `sequence_batching` and the state, as in docs/export-a-stateful-onnx.md. Nothing, if clients send the state.";
        /// A field of `config.pbtxt` has no effect; the message has the reason.
        NOTE_NO_EFFECT = "N-NO-EFFECT", "Nothing, or take the field out.";
    }

    /// The place in the documentation that explains this code.
    pub fn help(code: &str) -> String {
        format!("docs/reference/check.md#{}", code.to_ascii_lowercase())
    }
}

impl From<Fault> for LoadError {
    fn from(fault: Fault) -> Self {
        LoadError::Config { at: fault.at, code: fault.code, what: fault.what }
    }
}

/// Sorts faults by file and line, and removes repeated ones.
pub fn in_order(mut faults: Vec<Fault>) -> Vec<Fault> {
    faults.sort_by(|a, b| (&a.at.path, a.at.line, a.at.column).cmp(&(&b.at.path, b.at.line, b.at.column)));
    let mut kept: Vec<Fault> = Vec::with_capacity(faults.len());
    for fault in faults {
        if !kept.contains(&fault) {
            kept.push(fault);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::At;

    #[test]
    fn faults_are_sorted_by_line_without_duplicates() {
        let fault = |line| Fault { at: At { line, ..At::default() }, code: code::PARSE, what: String::new() };
        let lines: Vec<u32> = in_order(vec![fault(3), fault(1), fault(3)]).iter().map(|f| f.at.line).collect();
        assert_eq!(lines, [1, 3]);
    }
}
