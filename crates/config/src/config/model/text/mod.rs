//! Parses config.pbtxt: protobuf text format to [`proto::ModelConfig`].
//!
//! Sequor has its own parser, over prost-reflect's messages, so that faults have the line and column of protobuf's own parser. The
//! reference is `google.protobuf.text_format`: a test compares thousands of texts with it.
//!
//! Where that parser differs from the C++ one, which Triton uses, Sequor follows C++. It refuses unknown escapes, `+` in front of a number,
//! `_` within a number and binary numbers. It accepts a space behind a minus sign.
//!
//! - `tokens`: cuts a text into tokens · `parser`: fields, lists and messages · `values`: numbers, names and strings · `recovery`: goes on
//!   behind a fault.

mod parser;
mod recovery;
mod tokens;
mod values;

use std::path::Path;

use sequor_proto as proto;

use super::descriptor;
use crate::config::fault::{Fault, code};
use crate::config::place::Place;

/// Parses a config.pbtxt. On error returns its first fault.
pub fn parse(path: &Path, text: &str) -> Result<proto::ModelConfig, Fault> {
    parse_all(path, text).map_err(|faults| faults.into_iter().next().unwrap_or_else(|| unparsed(path)))
}

/// Parses a config.pbtxt. On error returns the first fault, and those behind it that certainly do not follow from an earlier one.
pub fn parse_all(path: &Path, text: &str) -> Result<proto::ModelConfig, Vec<Fault>> {
    let fault = |place: Place, what: String| Fault { at: place.at(path), code: code::PARSE, what };
    let descriptor = descriptor::model_config().ok_or_else(|| vec![unparsed(path)])?;
    let message = parser::parse(text, descriptor).map_err(|faults| {
        faults.into_iter().map(|e| fault(Place::at_offset(text, e.offset), e.what)).collect::<Vec<_>>()
    })?;
    message.transcode_to().map_err(|e| vec![fault(Place::UNKNOWN, e.to_string())])
}

/// The fault of a text that cannot be parsed for lack of a descriptor.
fn unparsed(path: &Path) -> Fault {
    Fault { at: Place::UNKNOWN.at(path), code: code::PARSE, what: "no descriptor".to_owned() }
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
    fn all_spellings_of_a_field_parse_alike() {
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
    fn parse_errors_report_their_line_and_column() {
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
            "config.pbtxt:2:1: 'sequence_batching' and 'dynamic_batching' exclude each other: remove one of them"
        );
        assert_eq!(fault("input { dims [ 1 ] }"), "config.pbtxt:1:14: expected ':', but found '['");
        assert_eq!(fault("input [ { name: \"a\" }, ]"), "config.pbtxt:1:24: expected '{' or '<', but found ']'");
        assert_eq!(fault("input [ {\n\n"), "config.pbtxt:1:9: expected '}' or a field name, but reached end of input");
        assert_eq!(
            fault("max_batch_size: 3000000000"),
            "config.pbtxt:1:17: expected value to be a signed 32-bit integer, but the value 3000000000 is out of range: \
             the value must be between -2147483648 and 2147483647 inclusive"
        );
        assert_eq!(fault("\nname: \"a"), "config.pbtxt:2:7: the string has no closing quote on its line");
        assert_eq!(fault("max_batch_size: 1 max_batch_size: 2"), "config.pbtxt:1:35: 'max_batch_size' is already set");
    }

    fn places(text: &str) -> Vec<(u32, u32)> {
        let faults = parse_all(Path::new("config.pbtxt"), text).unwrap_err();
        faults.iter().map(|fault| (fault.at.line, fault.at.column)).collect()
    }

    #[test]
    fn faults_are_reported_together_if_the_next_field_is_certain() {
        // Unknown fields with values of all forms, wrong values, and values of a list.
        let text = "nmae: 'a' 'b'\nplatfrom: x\nmax_batch_size: 'no'\noptimisation { cuda { graphs: true } }\n\
                    instance_gruop [ { count: 1 } ]\ninput [ { name: x, data_type: TYPE_F32, dims: [ 1, y, -z, 3 ] } ]\n\
                    output { name: 'y' dtype: TYPE_FP32\n data_type: FP32 }\n";
        let want = [(1, 1), (2, 1), (3, 17), (4, 1), (5, 1), (6, 17), (6, 31), (6, 52), (6, 55), (7, 20), (8, 13)];
        assert_eq!(places(text), want);
        let many = "nmae: 'a'\n".repeat(1000);
        assert_eq!(places(&many).len(), 20);
    }

    #[test]
    fn no_fault_is_reported_that_may_follow_from_an_earlier_one() {
        for (text, want) in [
            // A brace or bracket is missing.
            ("input {\n name: 'a'\n dims: [ 1 ]\noutput {\n name: 'y'\n}\nmax_batch_size: 4\n", (4, 1)),
            ("input [ { name: 'a'\noutput [ { name: 'y' } ]\nplatform: 'x'\n", (2, 1)),
            ("inptu {\n name: 'a'\noutput {\n name: 'y'\n}\nplatform: 'x'\n", (1, 1)),
            // A value is missing, or has more words.
            ("name: platform: 'x'\nmax_batch_size: 1", (1, 7)),
            ("max_batch_size:\ninput [ { name: 'x' } ]\nnmae: 1", (2, 1)),
            ("name: my model\nmax_batch_size: 1", (1, 7)),
            ("nmae my: 1\nmax_batch_size: x", (1, 1)),
            // A quote is missing.
            ("input [ { name: 'a, dims: [ 1 ] } ]\noutput [ { name: 'y' } ]\nnmae: 1", (1, 17)),
            ("inptu [ { name: 'a, dims: [ 1 ] } ]\noutput [ { name: 'y' } ]\nnmae: 1", (1, 1)),
            // Two entries of a list in one.
            ("input { name: 'a' dims: 1 name: 'b' dims: 1 nmae: 1 }", (1, 33)),
        ] {
            assert_eq!(places(text), [want], "{text}");
        }
    }

    #[test]
    fn the_parser_follows_cpp_where_the_python_parser_differs() {
        assert_eq!(read("max_batch_size: - 1").max_batch_size, -1);
        for number in ["+1", "1_0", "0b1"] {
            assert_eq!(
                fault(&format!("max_batch_size: {number}")),
                format!("config.pbtxt:1:17: expected an integer, but found '{number}'")
            );
        }
        assert_eq!(fault("name: 'a\\q'"), "config.pbtxt:1:7: invalid string escape");
        assert_eq!(read("name: 'a\\?'").name, "a?");
    }

    /// Protobuf's parser in Python reports the place of the token behind the string.
    #[test]
    fn a_string_that_is_not_utf_8_is_refused_where_it_begins() {
        assert_eq!(fault("name: 'a\\xff' 'b' platform: ''"), "config.pbtxt:1:7: string is not valid utf-8");
    }

    proptest::proptest! {
        /// Any text is parsed, or refused with a place within it; none makes the parser panic.
        #[test]
        fn any_text_is_parsed_or_refused_within_its_lines(parts in proptest::collection::vec(proptest::sample::select(SCRAPS), 0..40)) {
            let text = parts.join(" ");
            if let Err(fault) = parse(Path::new("config.pbtxt"), &text) {
                let lines = text.split('\n').count();
                assert!(fault.at.line as usize <= lines, "{fault}");
            }
            crate::config::model::locate::Places::parse(&text);
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
