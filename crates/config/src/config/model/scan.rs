//! The tokens of protobuf text format, as far as needed to find the place of a field. It finds no faults; the parser does.

/// A token that is neither a comment nor white space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Name(&'a str),
    /// A quoted string or a number.
    Literal,
    Mark(u8),
}

/// Iterates over tokens with the byte offsets of their beginning and end.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

pub(super) fn tokens(text: &str) -> Tokens<'_> {
    Tokens { text, at: 0 }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = (Token<'a>, usize, usize);

    fn next(&mut self) -> Option<Self::Item> {
        self.skip();
        let start = self.at;
        let rest = self.text.get(start..)?;
        let first = rest.bytes().next()?;
        let (token, length) = match first {
            b'A'..=b'Z' | b'a'..=b'z' | b'_' => {
                let name = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or(rest);
                (Token::Name(name), name.len())
            }
            b'0'..=b'9' | b'.' => {
                let number = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').next().unwrap_or(rest);
                (Token::Literal, number.len().max(1))
            }
            b'"' | b'\'' => (Token::Literal, quoted(rest)),
            _ => (Token::Mark(first), rest.chars().next().map_or(1, char::len_utf8)),
        };
        self.at = start + length;
        Some((token, start, self.at))
    }
}

impl Tokens<'_> {
    fn skip(&mut self) {
        loop {
            let Some(rest) = self.text.get(self.at..) else { return };
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with('#') {
                return;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }
}

/// The length in bytes of a quoted string with its quotes. A string without an end takes the rest.
pub(super) fn quoted(text: &str) -> usize {
    let mut bytes = text.bytes().enumerate();
    let quote = bytes.next().map(|(_, b)| b);
    while let Some((i, byte)) = bytes.next() {
        if byte == b'\\' {
            bytes.next();
        } else if Some(byte) == quote {
            return i + 1;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_comments_hide_what_is_in_them() {
        let text = "a # b [\n'c \\' [' d[-1.5e3] \"é\"";
        let names: Vec<_> = tokens(text).map(|(t, ..)| t).collect();
        let mark = |c| Token::Mark(c);
        assert_eq!(
            names,
            [
                Token::Name("a"),
                Token::Literal,
                Token::Name("d"),
                mark(b'['),
                mark(b'-'),
                Token::Literal,
                mark(b']'),
                Token::Literal
            ]
        );
        assert_eq!(tokens("'open").last(), Some((Token::Literal, 0, 5)));
    }
}
