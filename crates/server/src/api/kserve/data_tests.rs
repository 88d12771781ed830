//! Tests of tensors read from and written as JSON.

use proptest::prelude::*;

use super::*;
use crate::api::json_elements::write;

fn parse(text: &str, dtype: DataType, shape: &[u64]) -> Result<Vec<u8>, String> {
    let raw = RawValue::from_string(text.to_owned()).expect("JSON");
    read(&raw, None, dtype, &Shape::new(shape), "x").map(|b| b.to_vec()).map_err(|fault| format!("{fault:?}"))
}

fn print(dtype: DataType, data: &[u8]) -> String {
    let mut out = Vec::new();
    write(&mut out, dtype, data).expect("writable");
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn arrays_may_be_flat_or_nested() {
    let flat = parse("[1,2,3,4]", DataType::Uint8, &[2, 2]);
    assert_eq!(flat, Ok(vec![1, 2, 3, 4]));
    assert_eq!(parse("[[1,2],[3,4]]", DataType::Uint8, &[2, 2]), flat);
    assert_eq!(parse("[]", DataType::Uint8, &[0, 2]), Ok(vec![]));
    assert_eq!(parse("[7]", DataType::Uint8, &[]), Ok(vec![7]));
    assert_eq!(parse("[\"ab\",\"\"]", DataType::Bytes, &[2]), Ok(vec![2, 0, 0, 0, b'a', b'b', 0, 0, 0, 0]));
    assert_eq!(parse("[true,false]", DataType::Bool, &[2]), Ok(vec![1, 0]));
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    for (text, dtype) in [
        ("[256]", DataType::Uint8),
        ("[-1]", DataType::Uint64),
        ("[128]", DataType::Int8),
        ("[1.5]", DataType::Int32),
        ("[1.0]", DataType::Int64),
        ("[18446744073709551616]", DataType::Uint64),
        ("[1e39]", DataType::Fp32),
        ("[1]", DataType::Bool),
        ("[true]", DataType::Fp32),
        ("[\"1\"]", DataType::Int32),
        ("[1]", DataType::Bytes),
        ("[null]", DataType::Fp32),
        ("[{}]", DataType::Fp32),
        ("1", DataType::Fp32),
    ] {
        assert!(parse(text, dtype, &[1]).is_err(), "{text} as {dtype}");
    }
    assert_eq!(parse("[18446744073709551615]", DataType::Uint64, &[1]), Ok(u64::MAX.to_le_bytes().to_vec()));
    assert_eq!(parse("[-9223372036854775808]", DataType::Int64, &[1]), Ok(i64::MIN.to_le_bytes().to_vec()));
}

#[test]
fn an_error_quotes_a_refused_number_as_it_was_written() {
    for (text, dtype, what) in [
        ("[1.0]", DataType::Int32, "1.0 is no INT32"),
        ("[1.5]", DataType::Bool, "1.5 is no BOOL"),
        ("[1e39]", DataType::Fp32, "1e39 does not fit FP32"),
    ] {
        let said = parse(text, dtype, &[1]).expect_err("refused");
        assert!(said.contains(what), "{said}");
    }
}

#[test]
fn an_element_count_that_differs_from_the_shape_is_refused() {
    let said = parse("[1,2,3]", DataType::Fp32, &[1, 2]).expect_err("refused");
    assert!(said.contains("shape [1,2] has 2 elements, but 3 are given"), "{said}");
    assert!(parse("[1]", DataType::Fp32, &[1 << 40, 1 << 40]).expect_err("refused").contains("too many"));
}

#[test]
fn elements_beyond_the_shape_are_counted_but_not_kept() {
    let texts = format!("[{}]", ["\"abcdefgh\""; 10_000].join(","));
    let numbers = format!("[{}]", ["1"; 10_000].join(","));
    for (text, dtype, most) in [(numbers, DataType::Fp64, 8), (texts, DataType::Bytes, 12)] {
        let raw = RawValue::from_string(text).unwrap();
        let mut elements = Elements { dtype, count: 0, expected: Some(1), out: Vec::new() };
        let mut deserializer = serde_json::Deserializer::from_str(raw.get());
        Array { into: &mut elements, depth: 1 }.deserialize(&mut deserializer).unwrap();
        assert_eq!((elements.count, elements.out.len()), (10_000, most), "{dtype}");
    }
}

#[test]
fn arrays_nested_deeper_than_the_shape_are_refused() {
    assert!(parse("[[[1]]]", DataType::Fp32, &[1, 1]).expect_err("refused").contains("nested deeper"));
    let hostile = "[".repeat(100_000) + &"]".repeat(100_000);
    assert!(parse(&hostile, DataType::Fp32, &vec![1; 100_000]).is_err());
}

#[test]
fn half_float_inputs_are_refused_as_json() {
    let said = parse("[1]", DataType::Fp16, &[1]).expect_err("refused");
    let want = "receiving FP16 data via JSON is not supported. Please use the binary data format for input 'x'";
    assert!(said.contains(want), "{said}");
    assert!(parse("[1]", DataType::Bf16, &[1]).is_err());
}

#[test]
fn a_32_bit_float_is_written_with_the_fewest_digits() {
    assert_eq!(print(DataType::Fp32, &0.1f32.to_le_bytes()), "[0.1]");
    assert_eq!(print(DataType::Fp64, &0.1f64.to_le_bytes()), "[0.1]");
    assert_eq!(
        print(DataType::Fp32, &[f32::NAN.to_le_bytes(), f32::NEG_INFINITY.to_le_bytes()].concat()),
        "[NaN,-Infinity]"
    );
}

#[test]
fn text_elements_that_are_not_utf_8_or_malformed_are_refused() {
    assert_eq!(print(DataType::Bytes, &[1, 0, 0, 0, b'"', 0, 0, 0, 0]), "[\"\\\"\",\"\"]");
    assert_eq!(write(&mut Vec::new(), DataType::Bytes, &[1, 0, 0, 0, 0xff]), Err("an element is not UTF-8".to_owned()));
    assert!(write(&mut Vec::new(), DataType::Bytes, &[9, 0, 0, 0, 1]).is_err());
}

proptest! {
    #[test]
    fn every_finite_float_round_trips_through_json(bits: u64) {
        let (narrow, wide) = (f32::from_bits(bits as u32), f64::from_bits(bits));
        if narrow.is_finite() {
            let bytes = narrow.to_le_bytes().to_vec();
            prop_assert_eq!(parse(&print(DataType::Fp32, &bytes), DataType::Fp32, &[1]), Ok(bytes));
        }
        if wide.is_finite() {
            let bytes = wide.to_le_bytes().to_vec();
            prop_assert_eq!(parse(&print(DataType::Fp64, &bytes), DataType::Fp64, &[1]), Ok(bytes));
        }
    }

    #[test]
    fn every_integer_round_trips_through_json(n: i64) {
        let bytes = n.to_le_bytes().to_vec();
        prop_assert_eq!(parse(&print(DataType::Int64, &bytes), DataType::Int64, &[1]), Ok(bytes.clone()));
        prop_assert_eq!(parse(&print(DataType::Uint64, &bytes), DataType::Uint64, &[1]), Ok(bytes));
    }

    #[test]
    fn any_json_text_is_read_without_a_panic(text in "[\\[\\]{}0-9eE.,\"tn-]{0,40}") {
        if let Ok(raw) = RawValue::from_string(text) {
            for dtype in DataType::ALL {
                let _ = read(&raw, None, dtype, &Shape::new(&[2, 2]), "x");
            }
        }
    }
}
