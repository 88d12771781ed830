//! NaN and infinity in the JSON of a request. JSON has no words for them. Triton's parser reads `NaN`, `Inf` and `Infinity`, each also with
//! a minus, and Triton's Python client writes them.
//!
//! A strict parser refuses these words, so a body is first parsed as it is. If that fails, each word is replaced by a zero of the same
//! length, and the body is parsed again. So positions in both texts are the same, and bodies without the words cost nothing more.

use std::fmt;
use std::ops::Range;

use sequor_core::DataType;
use serde_json::value::RawValue;

use super::fault::DecodeError;
use crate::api::queued::QueuedBytesPermit;

/// The words, and what replaces them.
const WORDS: [(&[u8], &[u8]); 3] = [(b"NaN", b"0.0"), (b"Infinity", b"0.000000"), (b"Inf", b"0.0")];

/// A body with words for numbers that are not finite.
#[derive(Debug)]
pub(super) struct NonFiniteWords<'b> {
    body: &'b [u8],
    /// The body with a zero in the place of each word.
    zeros: Vec<u8>,
}

impl<'b> NonFiniteWords<'b> {
    /// The words of a body that is no JSON. `error` is the parser's. If it is not about a word, the request is refused with it.
    pub(super) fn after(
        error: &serde_json::Error,
        body: &'b [u8],
        permit: &mut QueuedBytesPermit,
    ) -> Result<NonFiniteWords<'b>, DecodeError> {
        if !error.is_syntax() {
            return Err(unparsed(error));
        }
        // For the copy, if there is a word.
        permit.grow(body.len() as u64)?;
        NonFiniteWords::find(body).ok_or_else(|| unparsed(error))
    }

    /// The body with zeros.
    pub(super) fn zeros(&self) -> &[u8] {
        &self.zeros
    }

    /// Parses the body with zeros. `data` are the parts that may have words.
    pub(super) fn parse<'z, T>(
        &'z self,
        parse: impl FnOnce(&'z [u8]) -> Result<T, serde_json::Error>,
        data: impl FnOnce(&T) -> Vec<&'z RawValue>,
    ) -> Result<T, DecodeError> {
        let parsed = parse(&self.zeros).map_err(|error| unparsed(&error))?;
        match self.first_outside(&data(&parsed)) {
            None => Ok(parsed),
            Some(word) => Err(unparsed(&format_args!("{word} is read only in the data of inputs"))),
        }
    }

    /// Finds the words outside texts. `None` if there are none.
    pub(super) fn find(body: &'b [u8]) -> Option<NonFiniteWords<'b>> {
        let mut zeros = Vec::new();
        let (mut at, mut in_text) = (0, false);
        while let Some(&byte) = body.get(at) {
            match byte {
                b'\\' if in_text => at += 1,
                b'"' => in_text = !in_text,
                b'N' | b'I' if !in_text => {
                    if let Some((word, zero)) = word(body, at) {
                        if zeros.is_empty() {
                            zeros = body.to_vec();
                        }
                        if let Some(place) = zeros.get_mut(at..at + word.len()) {
                            place.copy_from_slice(zero);
                        }
                        at += word.len() - 1;
                    }
                }
                _ => {}
            }
            at += 1;
        }
        (!zeros.is_empty()).then_some(NonFiniteWords { body, zeros })
    }

    /// The words in this part of the text with zeros. `None` if it has none.
    pub(super) fn within(&self, part: &RawValue) -> Option<Words<'_>> {
        let begin = part.get().as_ptr().addr().checked_sub(self.zeros.as_ptr().addr())?;
        let range = begin..begin.checked_add(part.get().len())?;
        let words = Words { body: self.body.get(range.clone())?, zeros: self.zeros.get(range)? };
        words.first().is_some().then_some(words)
    }

    /// The first word outside these parts.
    fn first_outside(&self, parts: &[&RawValue]) -> Option<String> {
        let mut rest = self.zeros.clone();
        for part in parts {
            let begin = part.get().as_ptr().addr().wrapping_sub(self.zeros.as_ptr().addr());
            let range = begin..begin.saturating_add(part.get().len());
            if let (Some(rest), Some(body)) = (rest.get_mut(range.clone()), self.body.get(range)) {
                rest.copy_from_slice(body);
            }
        }
        Words { body: self.body, zeros: &rest }.first()
    }
}

fn unparsed(error: &dyn fmt::Display) -> DecodeError {
    DecodeError::malformed(format!("failed to parse the request JSON buffer: {error}"))
}

/// The word that begins here, and its replacement. A word stands alone, as a number does.
fn word(body: &[u8], at: usize) -> Option<(&'static [u8], &'static [u8])> {
    let before = body.get(..at)?;
    let before = before.strip_suffix(b"-").unwrap_or(before).last();
    let rest = body.get(at..)?;
    let found = WORDS.into_iter().find(|(word, _)| rest.starts_with(word))?;
    let after = rest.get(found.0.len());
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let is_begin = before.is_none_or(|byte| is_space(byte) || matches!(byte, b'[' | b',' | b':'));
    let is_end = after.is_none_or(|byte| is_space(byte) || matches!(byte, b']' | b',' | b'}'));
    (is_begin && is_end).then_some(found)
}

/// A part of a body, as it was sent and with zeros.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words<'b> {
    body: &'b [u8],
    zeros: &'b [u8],
}

impl Words<'_> {
    /// The first word as it was written.
    pub(super) fn first(self) -> Option<String> {
        let at = self.body.iter().zip(self.zeros).position(|(body, zero)| body != zero)?;
        let (before, rest) = self.body.split_at_checked(at)?;
        let sign = if before.ends_with(b"-") { "-" } else { "" };
        let word: String = rest.iter().map(|&byte| char::from(byte)).take_while(char::is_ascii_alphabetic).collect();
        Some(format!("{sign}{word}"))
    }

    /// Writes the numbers of the words over the zeros that were parsed. The part is an array of numbers, nested or flat, and `out` has its
    /// elements, all of them.
    pub(super) fn write_over(self, dtype: DataType, out: &mut [u8]) {
        let Some(size) = dtype.size() else { return };
        let mut elements = out.chunks_exact_mut(size);
        let mut rest = 0..self.zeros.len();
        while let Some(number) = next_number(self.zeros, &mut rest) {
            let Some(element) = elements.next() else { return };
            let Some(number) = self.body.get(number).and_then(value) else { continue };
            match dtype {
                DataType::Fp64 => element.copy_from_slice(&number.to_le_bytes()),
                DataType::Fp32 => element.copy_from_slice(&(number as f32).to_le_bytes()),
                _ => {}
            }
        }
    }
}

/// The place of the next number in an array of numbers.
fn next_number(array: &[u8], rest: &mut Range<usize>) -> Option<Range<usize>> {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    let begin = rest.start + array.get(rest.clone())?.iter().position(is_part)?;
    let left = array.get(begin..rest.end)?;
    let end = begin + left.iter().position(|byte| !is_part(byte)).unwrap_or(left.len());
    rest.start = end;
    Some(begin..end)
}

/// The number of a word.
fn value(text: &[u8]) -> Option<f64> {
    match text {
        b"NaN" | b"-NaN" => Some(f64::NAN),
        b"Inf" | b"Infinity" => Some(f64::INFINITY),
        b"-Inf" | b"-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zeros(text: &str) -> Option<String> {
        NonFiniteWords::find(text.as_bytes()).map(|found| String::from_utf8(found.zeros).expect("UTF-8"))
    }

    #[test]
    fn words_become_zeros_of_their_length() {
        assert_eq!(zeros("[NaN, -Infinity,Inf\n]").as_deref(), Some("[0.0, -0.000000,0.0\n]"));
        assert_eq!(zeros(r#"{"a":-NaN}"#).as_deref(), Some(r#"{"a":-0.0}"#));
        assert_eq!(zeros(r#"["NaN", "\"", NaN]"#).as_deref(), Some(r#"["NaN", "\"", 0.0]"#));
        for none in [
            "[1,2]",
            r#"["NaN"]"#,
            r#"["\\", "NaN\""]"#,
            "[nan]",
            "[inf]",
            "[1NaN]",
            "[NaN1]",
            "[NaNs]",
            "[--NaN]",
            "[Infinit]",
            "",
        ] {
            assert_eq!(zeros(none), None, "{none}");
        }
    }

    #[test]
    fn words_are_written_over_the_elements_in_their_places() {
        let text = "[[1.5, NaN],[],[-2e-3,-Infinity , 7],[Inf,-NaN,-Inf]]";
        let found = NonFiniteWords::find(text.as_bytes()).expect("words");
        let part: &RawValue = serde_json::from_slice(&found.zeros).expect("JSON");
        let words = found.within(part).expect("words");
        assert_eq!(words.first().as_deref(), Some("NaN"));
        let mut single = [1f32; 8].map(f32::to_le_bytes).concat();
        words.write_over(DataType::Fp32, &mut single);
        let got: Vec<f32> = single.as_chunks().0.iter().map(|element| f32::from_le_bytes(*element)).collect();
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let want = [1.0, nan, 1.0, -inf, 1.0, inf, nan, -inf];
        assert_eq!(got.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), want.map(f32::to_bits));
        let mut double = [1f64; 8].map(f64::to_le_bytes).concat();
        words.write_over(DataType::Fp64, &mut double);
        assert_eq!(double.get(24..32), Some(f64::NEG_INFINITY.to_le_bytes().as_slice()));
    }

    #[test]
    fn words_outside_the_data_are_found() {
        #[derive(serde::Deserialize)]
        struct Body<'b> {
            #[serde(borrow)]
            data: &'b RawValue,
        }
        let first = |text: &str| {
            let found = NonFiniteWords::find(text.as_bytes()).expect("words");
            let body: Body<'_> = serde_json::from_slice(&found.zeros).expect("JSON");
            found.first_outside(&[body.data])
        };
        assert_eq!(first(r#"{"data":[NaN]}"#), None);
        assert_eq!(first(r#"{"data":[NaN],"x":-Infinity}"#).as_deref(), Some("-Infinity"));
        assert_eq!(first(r#"{"x":[Inf],"data":[1]}"#).as_deref(), Some("Inf"));
    }
}
