//! Divides protobuf text format into tokens, like protobuf's own parser in Python. It does not check their order.

/// Why a text is refused, and the byte offset.
#[derive(Debug)]
pub(super) struct ParseError {
    pub(super) offset: usize,
    pub(super) what: String,
}

pub(super) type Parsed<T> = Result<T, ParseError>;

/// One token. The token at the end of the text is empty.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextToken<'a> {
    pub(super) text: &'a str,
    pub(super) start: usize,
}

impl TextToken<'_> {
    pub(super) fn is_end(&self) -> bool {
        self.text.is_empty()
    }

    pub(super) fn is_quoted(&self) -> bool {
        self.text.starts_with(['"', '\''])
    }

    /// Whether a quoted token has no closing quote: it ends with its line.
    pub(super) fn is_unclosed(&self) -> bool {
        let mut bytes = self.text.bytes();
        let (quote, mut is_escaped, mut is_closed) = (bytes.next(), false, false);
        for byte in bytes {
            is_closed = !is_escaped && Some(byte) == quote;
            is_escaped = !is_escaped && byte == b'\\';
        }
        !is_closed
    }

    /// An error at this token.
    pub(super) fn error(&self, what: impl Into<String>) -> ParseError {
        ParseError { offset: self.start, what: what.into() }
    }

    /// The error for an unexpected token.
    pub(super) fn unexpected(&self, expected: &str) -> ParseError {
        if self.is_end() {
            return self.error(format!("expected {expected}, but reached end of input"));
        }
        self.error(format!("expected {expected}, but found '{}'", self.text))
    }
}

/// The tokens of a text: the current one and the previous one. A copy is a place to go back to.
#[derive(Debug, Clone, Copy)]
pub(super) struct TokenStream<'a> {
    text: &'a str,
    pub(super) current: TextToken<'a>,
    pub(super) previous: TextToken<'a>,
}

impl<'a> TokenStream<'a> {
    pub(super) fn new(text: &'a str) -> TokenStream<'a> {
        let first = cut(text, 0);
        TokenStream { text, current: first, previous: first }
    }

    /// Takes the current token and moves to the next.
    pub(super) fn take(&mut self) -> TextToken<'a> {
        self.previous = self.current;
        self.current = cut(self.text, self.current.start + self.current.text.len());
        self.previous
    }

    /// Whether the current token begins a line: a line ends between the previous token and it.
    pub(super) fn begins_a_line(&self) -> bool {
        let between = self.previous.start + self.previous.text.len()..self.current.start;
        self.text.get(between).is_some_and(|between| between.contains('\n'))
    }

    /// Takes the current token if it is this one.
    pub(super) fn accept(&mut self, token: &str) -> bool {
        let is = self.current.text == token;
        if is {
            self.take();
        }
        is
    }

    /// Takes this token, or returns an error if the current one differs.
    pub(super) fn expect(&mut self, token: &str, expected: &str) -> Parsed<()> {
        if self.accept(token) { Ok(()) } else { Err(self.current.unexpected(expected)) }
    }
}

/// The next token at or behind this byte, after white space and comments.
fn cut(text: &str, from: usize) -> TextToken<'_> {
    let mut start = from;
    let rest = loop {
        let rest = text.get(start..).unwrap_or_default();
        let trimmed = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\u{b}');
        start += rest.len() - trimmed.len();
        if !trimmed.starts_with('#') {
            break trimmed;
        }
        start += trimmed.find('\n').unwrap_or(trimmed.len());
    };
    let mut bytes = rest.bytes();
    let length = match (bytes.next(), bytes.next()) {
        (None, _) => 0,
        (Some(b'A'..=b'Z' | b'a'..=b'z' | b'_'), _) => run(rest, "_+-"),
        (Some(b'0'..=b'9' | b'+' | b'-'), _) | (Some(b'.'), Some(b'0'..=b'9')) => run(rest, "_.+-"),
        (Some(b'"' | b'\''), _) => quoted_length(rest),
        _ => rest.chars().next().map_or(0, char::len_utf8),
    };
    TextToken { text: rest.get(..length).unwrap_or_default(), start }
}

/// Number of leading bytes that are letters, digits or one of these marks.
fn run(text: &str, marks: &str) -> usize {
    text.find(|c: char| !c.is_ascii_alphanumeric() && !marks.contains(c)).unwrap_or(text.len())
}

/// The length in bytes of a quoted string with its quotes. A string ends at the end of its line, even without a quote.
fn quoted_length(text: &str) -> usize {
    let mut bytes = text.bytes().enumerate();
    let quote = bytes.next().map(|(_, byte)| byte);
    let mut is_escaped = false;
    for (i, byte) in bytes {
        match byte {
            b'\n' => return i,
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            _ if Some(byte) == quote => return i + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<&str> {
        let mut tokens = TokenStream::new(text);
        std::iter::from_fn(|| (!tokens.current.is_end()).then(|| tokens.take().text)).collect()
    }

    #[test]
    fn tokens_are_cut_as_protobuf_cuts_them() {
        assert_eq!(
            all("a # b [\n'c \\' [' d[-1.5e3] \"é\"é."),
            ["a", "'c \\' ['", "d", "[", "-1.5e3", "]", "\"é\"", "é", "."]
        );
        assert_eq!(all("dims:1-2,.5 a-b 'open\nnext"), ["dims", ":", "1-2", ",", ".5", "a-b", "'open", "next"]);
        assert_eq!(all(" \t\r\n# only"), [""; 0]);
    }
}
