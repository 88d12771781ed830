//! Inputs and outputs of a graph that look like the two ends of a state. Without a configuration, Sequor serves them as plain tensors.

use super::signature::{Port, Signature};

/// What the name of an input has where that of its output has the second.
const COUNTERPARTS: [(&str, &str); 7] = [
    ("input", "output"),
    ("in", "out"),
    ("past_key_values", "present"),
    ("past", "present"),
    ("prev", "next"),
    ("previous", "next"),
    ("old", "new"),
];
/// What the name of an output has before or behind that of its input.
const ADDED: [(&str, &str); 10] = [
    ("new_", ""),
    ("next_", ""),
    ("out_", ""),
    ("output_", ""),
    ("updated_", ""),
    ("", "_new"),
    ("", "_next"),
    ("", "_out"),
    ("", "_output"),
    ("", "_updated"),
];
/// PyTorch's names for the states of its recurrent layers.
const RECURRENT: [(&str, &str); 6] =
    [("h0", "hn"), ("h_0", "h_n"), ("c0", "cn"), ("c_0", "c_n"), ("h", "hn"), ("c", "cn")];

/// A sentence about the inputs and outputs that look like states, if there are any.
pub(super) fn describe(graph: &Signature) -> Option<String> {
    let mut pairs = graph.inputs.iter().filter_map(|input| {
        let output = graph.outputs.iter().find(|output| is_pair(input, output))?;
        Some((&input.name, &output.name))
    });
    let (input, output) = pairs.next()?;
    let more = match pairs.count() {
        0 => String::new(),
        more => format!(", and {more} more of such pairs,"),
    };
    Some(format!(
        "input \"{input}\" and output \"{output}\"{more} look like a state, but no sequence_batching pairs them: clients must send it \
         (docs/export-a-stateful-onnx.md)"
    ))
}

fn is_pair(input: &Port, output: &Port) -> bool {
    input.dtype == output.dtype
        && input.dims == output.dims
        && has_counterpart(&input.name.to_lowercase(), &output.name.to_lowercase())
}

fn has_counterpart(input: &str, output: &str) -> bool {
    let is_replaced = |(from, to): &(&str, &str)| {
        input.match_indices(from).any(|(at, _)| {
            let (before, after) =
                (input.get(..at).unwrap_or_default(), input.get(at + from.len()..).unwrap_or_default());
            // `INPUT` and `OUTPUT`, `INPUT_0` and `OUTPUT_0` are those of any graph; `past` and `present` are not.
            let is_of_any = matches!(*from, "input" | "in" | "old");
            let is_named = !is_of_any || format!("{before}{after}").contains(|c: char| c.is_ascii_alphabetic());
            is_word(before, after) && is_named && output == format!("{before}{to}{after}")
        })
    };
    let is_longer = |(before, after): &(&str, &str)| output == format!("{before}{input}{after}");
    COUNTERPARTS.iter().any(is_replaced) || ADDED.iter().any(is_longer) || RECURRENT.contains(&(input, output))
}

/// Whether what stands between these is a word of its own.
fn is_word(before: &str, after: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric();
    !before.ends_with(is_letter) && !after.starts_with(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_by_direction_look_like_a_state() {
        for (input, output) in [
            ("INPUT_STATE", "OUTPUT_STATE"),
            ("state_in", "state_out"),
            ("past_key_values.0.key", "present.0.key"),
            ("past_keys", "present_keys"),
            ("prev.h", "next.h"),
            ("h", "h_out"),
            ("cache", "new_cache"),
            ("h0", "hn"),
            ("past", "present"),
            ("h", "hn"),
        ] {
            assert!(has_counterpart(&input.to_lowercase(), &output.to_lowercase()), "{input}, {output}");
        }
        for (input, output) in [
            ("INPUT", "OUTPUT"),
            ("INPUT_0", "OUTPUT_0"),
            ("in.1", "out.1"),
            ("state_in", "probability"),
            ("inner_x", "outner_x"),
            ("INPUT_STATE", "INPUT_STATE"),
        ] {
            assert!(!has_counterpart(&input.to_lowercase(), &output.to_lowercase()), "{input}, {output}");
        }
    }
}
