//! Tokens of speech models: their table, and the most likely one.

use std::collections::BTreeMap;

use super::dtype::Dtype;
use super::files::Files;
use super::refusal::{Refusal, code, refuse};
use super::signature::Signature;
use super::tensor::Tensor;
use super::tensors::Tensors;

/// Tokens by their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenTable(BTreeMap<i64, String>);

impl TokenTable {
    /// Parses a table. A line is `token number`, or only a token, numbered from 0.
    ///
    /// ```
    /// use sequor_plugin::processor::TokenTable;
    ///
    /// let table = TokenTable::parse("<blk> 0\n\u{2581}he 1\nllo 2\n").unwrap();
    /// assert_eq!(table.text(&[1, 2]), " hello");
    /// ```
    pub fn parse(text: &str) -> Result<TokenTable, String> {
        let line = |(at, line): (usize, &str)| match line.rsplit_once([' ', '\t']) {
            Some((token, number)) => {
                let number = number.parse().map_err(|_| format!("line {}: \"{number}\" is no number", at + 1))?;
                Ok((number, token.to_owned()))
            }
            None => Ok((at as i64, line.to_owned())),
        };
        text.lines()
            .enumerate()
            .filter(|(_, text)| !text.is_empty())
            .map(line)
            .collect::<Result<_, _>>()
            .map(TokenTable)
    }

    /// The table in a file of sequor.toml.
    pub fn of_file(files: &Files, name: &str) -> Result<TokenTable, String> {
        TokenTable::parse(&files.text(name)?).map_err(|what| format!("{name}: {what}"))
    }

    /// The tokens as text: a word begins with the mark `\u{2581}`. A token that is not in the table is left out.
    #[must_use]
    pub fn text(&self, tokens: &[i64]) -> String {
        let known = tokens.iter().filter_map(|token| self.0.get(token));
        known.map(String::as_str).collect::<String>().replace('\u{2581}', " ")
    }
}

/// The outputs `TOKENS` (INT64) and `TEXT` (BYTES), if clients see them. The text may have another name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenOutputs {
    table: TokenTable,
    /// Number of dimensions of each output; `None` if clients do not see it.
    tokens: Option<usize>,
    text: Option<usize>,
    /// The name of the text.
    text_name: String,
}

impl TokenOutputs {
    /// The token outputs of a signature.
    pub fn of(table: TokenTable, outer: &Signature) -> Result<TokenOutputs, String> {
        TokenOutputs::with_text(table, outer, "TEXT")
    }

    /// The same, with another name of the text output.
    pub fn with_text(table: TokenTable, outer: &Signature, text_name: &str) -> Result<TokenOutputs, String> {
        let rank = |name: &str, dtype: Dtype| match outer.outputs.iter().find(|port| port.name == name) {
            None => Ok(None),
            Some(port) if port.dtype == dtype && !port.shape.is_empty() => Ok(Some(port.shape.len())),
            Some(port) => Err(format!("output \"{name}\" is {} {:?}; {dtype} [-1] is wanted", port.dtype, port.shape)),
        };
        let (tokens, text) = (rank("TOKENS", Dtype::INT64)?, rank(text_name, Dtype::BYTES)?);
        if tokens.is_none() && text.is_none() {
            return Err(format!("the model has no output \"TOKENS\" and no output \"{text_name}\""));
        }
        Ok(TokenOutputs { table, tokens, text, text_name: text_name.to_owned() })
    }

    /// The signature with both outputs in place of another one.
    #[must_use]
    pub fn behind(inner: &Signature, hidden: &str) -> Signature {
        let outer = inner.clone().hide_output(hidden);
        outer.output("TOKENS", Dtype::INT64, &[-1]).output("TEXT", Dtype::BYTES, &[1])
    }

    /// Adds these tokens to the outputs.
    #[must_use]
    pub fn add(&self, mut outputs: Tensors, tokens: &[i64]) -> Tensors {
        let shape = |rank: usize, last: usize| [vec![1; rank - 1], vec![last as u64]].concat();
        if let Some(rank) = self.tokens {
            outputs.insert("TOKENS", Tensor::new(&shape(rank, tokens.len()), tokens));
        }
        if let Some(rank) = self.text {
            outputs.insert(self.text_name.clone(), Tensor::texts(&shape(rank, 1), &[self.table.text(tokens)]));
        }
        outputs
    }
}

/// Number of frames, and of numbers in a frame, of a tensor `[.., frames, numbers]` of one sequence.
pub fn frames_of(tensor: &Tensor) -> Result<(usize, usize), Refusal> {
    let shape = tensor.shape();
    let [rows @ .., frames, numbers] = shape.as_slice() else {
        return Err(refuse(code::WRONG_REQUEST, format!("{shape:?} has no frames")));
    };
    if rows.iter().any(|rows| *rows > 1) {
        return Err(refuse(code::WRONG_REQUEST, format!("{shape:?} has several rows; a request is of one sequence")));
    }
    let is_empty = rows.contains(&0);
    Ok((if is_empty { 0 } else { *frames as usize }, *numbers as usize))
}

/// The index of the greatest number, the first of several; 0 if there is none. NaN is never chosen.
#[must_use]
pub fn argmax(numbers: &[f32]) -> usize {
    let mut best = (0, f32::NEG_INFINITY);
    for (at, number) in numbers.iter().enumerate() {
        if *number > best.1 {
            best = (at, *number);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_table_numbers_its_lines_if_it_has_no_numbers() {
        assert_eq!(TokenTable::parse("a\nb\n").unwrap(), TokenTable::parse("b 1\na 0\n").unwrap());
        assert_eq!(TokenTable::parse("a 0\nb x\n").unwrap_err(), "line 2: \"x\" is no number");
        assert_eq!(TokenTable::parse("a\nb\n").unwrap().text(&[1, 7, 0]), "ba");
    }

    #[test]
    fn token_outputs_have_the_dimensions_that_the_model_declares() {
        let table = || TokenTable::parse("a\nb\n").unwrap();
        let own = Signature::new().output("TEXT", Dtype::BYTES, &[-1, 1]);
        let outputs = TokenOutputs::of(table(), &own).unwrap().add(Tensors::new(), &[1, 0]);
        assert_eq!(outputs, Tensors::from([("TEXT", Tensor::texts(&[1, 1], &["ba"]))]));
        let behind = TokenOutputs::behind(&Signature::new().output("y", Dtype::FP32, &[1, 2]), "y");
        let outputs = TokenOutputs::of(table(), &behind).unwrap().add(Tensors::new(), &[1]);
        assert_eq!(outputs.get("TOKENS").unwrap(), &Tensor::new(&[1], &[1i64]));
        assert!(TokenOutputs::of(table(), &Signature::new()).is_err());
        let wrong = TokenOutputs::of(table(), &Signature::new().output("TOKENS", Dtype::INT32, &[-1]));
        assert_eq!(wrong.unwrap_err(), "output \"TOKENS\" is INT32 [-1]; INT64 [-1] is wanted");
    }

    #[test]
    fn frames_of_more_than_one_sequence_are_refused() {
        let frames = |shape: &[u64]| frames_of(&Tensor::empty(Dtype::FP32, shape));
        assert_eq!([frames(&[1, 7, 3]), frames(&[0, 7, 3]), frames(&[7, 3])], [Ok((7, 3)), Ok((0, 3)), Ok((7, 3))]);
        assert!(frames(&[2, 7, 3]).is_err() && frames(&[7]).is_err());
    }

    #[test]
    fn argmax_returns_the_first_of_equal_maxima() {
        assert_eq!([argmax(&[]), argmax(&[f32::NAN, 1.0, 2.0, 2.0]), argmax(&[-3.0, -2.0])], [0, 2, 1]);
    }
}
