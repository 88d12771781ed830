//! Tokens of speech models: their table, and the likeliest of them.

use std::collections::BTreeMap;

use super::files::Files;

/// Tokens by their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenTable(BTreeMap<i64, String>);

impl TokenTable {
    /// Parses a table: `token number` a line, or a token a line, counted from 0.
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

    /// The tokens in words: a word begins with the mark `\u{2581}`. A token that is not in the table says nothing.
    #[must_use]
    pub fn text(&self, tokens: &[i64]) -> String {
        let known = tokens.iter().filter_map(|token| self.0.get(token));
        known.map(String::as_str).collect::<String>().replace('\u{2581}', " ")
    }
}

/// The place of the greatest number, the first of several; 0 if there is none. A number that is NaN is never it.
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
    fn a_table_has_numbers_or_counts_its_lines() {
        assert_eq!(TokenTable::parse("a\nb\n").unwrap(), TokenTable::parse("b 1\na 0\n").unwrap());
        assert_eq!(TokenTable::parse("a 0\nb x\n").unwrap_err(), "line 2: \"x\" is no number");
        assert_eq!(TokenTable::parse("a\nb\n").unwrap().text(&[1, 7, 0]), "ba");
    }

    #[test]
    fn the_first_of_the_greatest_is_taken() {
        assert_eq!([argmax(&[]), argmax(&[f32::NAN, 1.0, 2.0, 2.0]), argmax(&[-3.0, -2.0])], [0, 2, 1]);
    }
}
