//! Goes on behind a fault in protobuf text format, if the place of the next field is certain. Otherwise further faults could follow from the
//! first one, and parsing ends.

use prost_reflect::MessageDescriptor;

use super::tokens::{ParseError, Parsed, TokenStream};

/// Maximum number of faults of one text.
const MOST_FAULTS: usize = 20;

/// The faults behind which parsing went on, and the messages that are open.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    pub(super) faults: Vec<ParseError>,
    /// The outermost first.
    open: Vec<MessageDescriptor>,
}

impl Recovery {
    /// Opens a message. Its fields follow.
    pub(super) fn enter(&mut self, message: MessageDescriptor) {
        self.open.push(message);
    }

    /// Closes the message that was opened last.
    pub(super) fn leave(&mut self) {
        self.open.pop();
    }

    /// Goes on behind a field that does not exist. If an outer message has a field of this name, a closing mark may be missing.
    pub(super) fn behind_field(&mut self, name: &str, error: ParseError, tokens: &mut TokenStream<'_>) -> Parsed<()> {
        let is_outer = self.open.iter().any(|message| message.get_field_by_name(name).is_some());
        let is_certain = !is_outer && skip_field(tokens);
        self.note(error, is_certain)
    }

    /// Goes on behind a wrong value, which begins here.
    pub(super) fn behind_value(&mut self, error: ParseError, tokens: &mut TokenStream<'_>) -> Parsed<()> {
        let is_certain = skip_scalar(tokens) && ends_a_value(tokens);
        self.note(error, is_certain)
    }

    fn note(&mut self, error: ParseError, is_certain: bool) -> Parsed<()> {
        if !is_certain || self.faults.len() + 1 >= MOST_FAULTS {
            return Err(error);
        }
        self.faults.push(error);
        Ok(())
    }
}

/// Skips the value of a field, and the mark behind it. Returns whether another field or a closing mark follows.
fn skip_field(tokens: &mut TokenStream<'_>) -> bool {
    let has_colon = tokens.accept(":");
    let is_block = matches!(tokens.current.text, "{" | "<" | "[");
    let is_skipped =
        if is_block { skip_block(tokens) } else { has_colon && skip_scalar(tokens) && ends_a_value(tokens) };
    if is_skipped && !tokens.accept(",") {
        tokens.accept(";");
    }
    is_skipped && (tokens.current.is_end() || is_close(tokens) || is_name(tokens))
}

/// Skips everything up to the mark that closes this one.
fn skip_block(tokens: &mut TokenStream<'_>) -> bool {
    let mut closes = Vec::new();
    loop {
        let token = tokens.take();
        match token.text {
            "{" => closes.push("}"),
            "<" => closes.push(">"),
            "[" => closes.push("]"),
            "}" | ">" | "]" if closes.pop() != Some(token.text) => return false,
            "" => return false,
            _ if token.is_quoted() && token.is_unclosed() => return false,
            _ => {}
        }
        if closes.is_empty() {
            return true;
        }
    }
}

/// Skips a number, a name, or texts in a row.
fn skip_scalar(tokens: &mut TokenStream<'_>) -> bool {
    if tokens.current.is_quoted() {
        while tokens.current.is_quoted() {
            if tokens.take().is_unclosed() {
                return false;
            }
        }
        return true;
    }
    tokens.accept("-");
    let is_word =
        tokens.current.text.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '+' | '-'));
    if is_word {
        tokens.take();
    }
    is_word
}

/// Whether a value certainly ends before the current token. A word on the same line may be a part of it.
fn ends_a_value(tokens: &TokenStream<'_>) -> bool {
    let is_mark = matches!(tokens.current.text, "," | ";");
    tokens.current.is_end() || is_mark || is_close(tokens) || (tokens.begins_a_line() && is_name(tokens))
}

fn is_close(tokens: &TokenStream<'_>) -> bool {
    matches!(tokens.current.text, "}" | ">" | "]")
}

fn is_name(tokens: &TokenStream<'_>) -> bool {
    tokens.current.text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}
