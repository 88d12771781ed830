//! config.pbtxt: protobuf text format to [`proto::ModelConfig`].
//!
//! The parser is prost-reflect's. It wants a colon between a name and a list, which the format lets writers leave out before messages (and
//! Triton's examples do), so one is put in first; offsets in its errors are counted back to the text as it was written.

use std::collections::HashSet;
use std::path::Path;
use std::sync::LazyLock;

use miette::Diagnostic as _;
use prost_reflect::text_format::ParseError;
use prost_reflect::{DynamicMessage, Kind};
use sequor_proto as proto;

use super::descriptor;
use super::scan::{Token, tokens};
use crate::config::fault::{Fault, code};
use crate::config::place::Place;

/// Reads a config.pbtxt.
pub fn parse(path: &Path, text: &str) -> Result<proto::ModelConfig, Fault> {
    let fault = |place: Place, what: String| Fault { at: place.at(path), code: code::PARSE, what };
    let descriptor = descriptor::model_config().ok_or_else(|| fault(Place::UNKNOWN, "no descriptor".to_owned()))?;
    let (whole, put_in) = with_colons(text);
    let message = DynamicMessage::parse_text_format(descriptor, &whole)
        .map_err(|e| fault(place_of(&e, text, &put_in), sentence(&e)))?;
    message.transcode_to().map_err(|e| fault(Place::UNKNOWN, e.to_string()))
}

/// Where an error stands in the text as it was written; its end, if the parser ran out of text.
fn place_of(error: &ParseError, text: &str, put_in: &[usize]) -> Place {
    let offset = error.labels().and_then(|mut labels| labels.next()).map(|label| label.offset());
    match offset {
        Some(offset) => Place::of(text, written(offset, put_in)),
        None => Place::of(text, text.trim_end().len()),
    }
}

fn sentence(error: &ParseError) -> String {
    let what = error.to_string().replace("message 'inference.", "message '").replace("enum 'inference.", "enum '");
    match error.help() {
        Some(help) => format!("{what}: {help}"),
        None => what,
    }
}

/// Names of fields that hold messages. Before the values of any other field the format wants its colon.
static MESSAGES: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let file = descriptor::model_config().map(|d| d.parent_file());
    let messages = file.iter().flat_map(|file| file.parent_pool().all_messages().filter(|m| m.parent_file() == *file));
    let fields = messages.flat_map(|message| message.fields().collect::<Vec<_>>());
    fields.filter(|field| matches!(field.kind(), Kind::Message(_))).map(|field| field.name().to_owned()).collect()
});

/// The text with a colon behind every name of messages that stands before a list, and the offsets (in the new text) of those put in.
fn with_colons(text: &str) -> (String, Vec<usize>) {
    let (mut out, mut put_in, mut copied) = (String::with_capacity(text.len() + 64), Vec::new(), 0);
    let mut last: Option<(Token<'_>, usize)> = None;
    let mut is_value = false;
    for (token, _, end) in tokens(text) {
        if let (Token::Mark(b'['), Some((Token::Name(name), name_end)), false) = (token, last, is_value)
            && MESSAGES.contains(name)
        {
            out.push_str(text.get(copied..name_end).unwrap_or_default());
            put_in.push(out.len());
            out.push(':');
            copied = name_end;
        }
        is_value = matches!((token, last), (Token::Name(_), Some((Token::Mark(b':'), _))));
        last = Some((token, end));
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    (out, put_in)
}

fn written(offset: usize, put_in: &[usize]) -> usize {
    offset - put_in.iter().take_while(|p| **p < offset).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> proto::ModelConfig {
        parse(Path::new("config.pbtxt"), text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    fn fault(text: &str) -> String {
        parse(Path::new("config.pbtxt"), text).unwrap_err().to_string()
    }

    #[test]
    fn every_spelling_says_the_same() {
        let spellings = [
            "input [ { name: \"a\" data_type: TYPE_FP32 dims: [ 1, -1 ] } ]",
            "input: [ { name: 'a', data_type: 11; dims: [ 1, -1 ] } ]",
            "input { name: \"a\" data_type: TYPE_FP32 dims: [ 1, -1 ] }",
            "input < name: \"a\" data_type: TYPE_FP32 dims: 1 dims: -1 >",
            "input [ # a comment with [ in it\n < name: \"\" 'a' data_type: TYPE_FP32 dims: 0x1 dims: -01 > ]",
        ];
        for text in spellings {
            assert_eq!(read(text), read(spellings[0]), "{text}");
        }
        assert_eq!(read(spellings[0]).input[0].dims, [1, -1]);
    }

    #[test]
    fn maps_lists_and_strings_keep_what_is_in_them() {
        let config = read(
            "parameters: { key: \"a [b\" value: { string_value: \"x [ { y\" } }\nparameters [ { key: 'c' value { string_value: 'd' } } ]\n\
             instance_group [ { kind: KIND_CPU count: 2 } ]\nversion_policy: { specific { versions: [ 1, 3 ] } }",
        );
        assert_eq!(config.parameters["a [b"].string_value, "x [ { y");
        assert_eq!(config.parameters["c"].string_value, "d");
        assert_eq!(config.instance_group[0].count, 2);
    }

    #[test]
    fn errors_stand_where_they_were_written() {
        assert_eq!(
            fault("input [\n  { nmae: \"a\" }\n]"),
            "config.pbtxt:2:5: field 'nmae' not found for message 'ModelInput'"
        );
        assert_eq!(
            fault("input [ { dims: [ 1 ] data_type: TYPE_F32 } ]"),
            "config.pbtxt:1:34: value 'TYPE_F32' was not found for enum 'DataType'"
        );
        assert_eq!(
            fault("dynamic_batching {}\nsequence_batching {}"),
            "config.pbtxt:2:19: a value is already set for oneof 'scheduling_choice'"
        );
        assert_eq!(fault("input { dims [ 1 ] }"), "config.pbtxt:1:14: expected ':' or a message value, but found '['");
        assert_eq!(fault("input [ { name: \"a\" }, ]"), "config.pbtxt:1:24: expected '{' or '<', but found ']'");
        assert_eq!(fault("input [ {\n\n"), "config.pbtxt:1:10: expected '}' or a field name, but reached end of input");
        assert_eq!(
            fault("max_batch_size: 3000000000"),
            "config.pbtxt:1:17: expected value to be a signed 32-bit integer, but the value 3000000000 is out of range: \
             the value must be between -2147483648 and 2147483647 inclusive"
        );
        assert!(fault("name: \"a").starts_with("config.pbtxt:1:"));
    }

    proptest::proptest! {
        /// Any text is read or told at a place within it; none makes the parser panic.
        #[test]
        fn any_text_is_read_or_told(parts in proptest::collection::vec(proptest::sample::select(SCRAPS), 0..40)) {
            let text = parts.join(" ");
            if let Err(fault) = parse(Path::new("config.pbtxt"), &text) {
                let lines = text.split('\n').count();
                assert!(fault.at.line as usize <= lines, "{fault}");
            }
            crate::config::model::locate::Places::of(&text);
        }
    }

    const SCRAPS: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        "<",
        ">",
        ":",
        ",",
        ";",
        "-",
        "/",
        ".",
        "#",
        "\n",
        "'",
        "\"",
        "'a'",
        "'\\400'",
        "'\\x'",
        "'\\u12'",
        "'\\0'",
        "0",
        "08",
        "1.",
        "1e9",
        "1e999f",
        "-1",
        "0x",
        "0xfg",
        "99999999999999999999",
        "inf",
        "nan",
        "true",
        "name",
        "input",
        "dims",
        "parameters",
        "key",
        "value",
        "string_value",
        "instance_group",
        "gpus",
        "kind",
        "KIND_CPU",
        "7",
        "sequence_batching",
        "state",
        "initial_state",
        "zero_data",
        "direct",
        "minimum_slot_utilization",
        "control_input",
        "fp32_false_true",
        "[a.b]",
        "[a/b.c]",
        "é",
        "model_warmup",
        "count",
        "optimization",
    ];
}
