//! The tables of a model's tensors: constant inputs, ragged inputs, cropped outputs, padded states.

use super::declare::{choice, section, values};

section! {
    #[derive(Default)]
    pub struct InputSection("input.X", "`[input.X]`: one model input", "`X` is the name of an input of the ONNX graph.") {
        /// Value of a model input that clients do not send. It is the same for every request and has no batch dimension. A list gives the
        /// elements in row-major order.
        pub constant: Option<toml::Value> as "number, boolean, string or list",
            default "none", example "constant = 16000";
        /// How requests of different shapes run in one batch. `concat` joins all elements to one list, as `allow_ragged_batch` does. `pad`
        /// pads the one variable dimension to the longest request of the batch, `bucket` to the next of `buckets`.
        pub ragged: Option<RaggedMode>,
            default "`concat` with `allow_ragged_batch`, else none", example "ragged = \"pad\"";
        /// Value of the padding. Needs `ragged`.
        pub value: Option<f64>, default "0.0", example "value = 0.0";
        /// Padded lengths are rounded up to a multiple of this.
        pub multiple_of: Option<u32> as "integer from 1", default "1", example "multiple_of = 16";
        /// Lengths that batches are padded to. A batch that is longer than the last one is padded to its longest request.
        pub buckets: Option<Vec<u64>> as "list of lengths, ascending",
            default "required for `ragged = \"bucket\"`", example "buckets = [64, 128, 256]";
        /// Model input, INT32 or INT64 of shape [-1], that gets the length of each item before padding. Clients do not send it.
        pub lengths: Option<String> as "name of an input of the ONNX graph",
            default "none", example "lengths = \"x_lens\"";
        /// Model input of shape [-1,-1] that gets 1 for each element and 0 for padding: BOOL, INT32, INT64 or FP32. Clients do not send it.
        pub mask: Option<String> as "name of an input of the ONNX graph", default "none", example "mask = \"x_mask\"";
    }
}

impl InputSection {
    /// Each key of the padding, and whether it is set.
    pub fn padding_keys(&self) -> [(&'static str, bool); 5] {
        [
            ("value", self.value.is_some()),
            ("multiple_of", self.multiple_of.is_some()),
            ("buckets", self.buckets.is_some()),
            ("lengths", self.lengths.is_some()),
            ("mask", self.mask.is_some()),
        ]
    }

    pub fn has_ragged_keys(&self) -> bool {
        self.ragged.is_some() || self.padding_keys().iter().any(|(_, there)| *there)
    }
}

choice! {
    pub enum RaggedMode {
        Concat = "concat",
        Pad = "pad",
        Bucket = "bucket",
    }
}

section! {
    #[derive(Default)]
    pub struct OutputSection("output.X", "`[output.X]`: one model output") {
        /// Takes the padding off the output's first variable dimension: to the length of a padded input times the ratio, rounded up, or to
        /// the length that another output gives.
        pub crop: Option<CropKeys> as "`{ like = INPUT, ratio = \"1/4\" }` or `{ lengths = OUTPUT }`",
            default "none", example "crop = { like = \"speech\", ratio = \"1/4\" }";
    }
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CropKeys {
    pub like: Option<String>,
    pub ratio: Option<String>,
    pub lengths: Option<String>,
}

/// The padding of a growing state.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PadKeys {
    pub side: PadSide,
    /// Inputs of the graph for lengths or a mask.
    pub lengths: Option<String>,
    pub mask: Option<String>,
    /// A client's input whose new steps the mask covers too.
    pub new_steps: Option<String>,
    /// An output of the graph with the new lengths.
    pub new_lengths: Option<String>,
    pub value: Option<f64>,
    pub multiple_of: Option<u32>,
    pub buckets: Option<Vec<u64>>,
}

choice! {
    pub enum PadSide {
        Left = "left",
        Right = "right",
    }
}

values! {
    CropKeys => "table",
    PadKeys => "table",
}
