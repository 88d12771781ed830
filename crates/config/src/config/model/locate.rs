//! Maps the fields of a config.pbtxt, such as `sequence_batching.state[1].dims`, to line and column. A fault that is found long after
//! parsing can thus still name its line.

use std::collections::HashMap;

use super::scan::{Token, quoted, tokens};
use crate::config::place::Place;

/// The places of all fields of one text.
#[derive(Debug, Clone, Default)]
pub struct Places(HashMap<String, Place>);

/// The context of the current token.
enum TokenContext {
    /// A message: its path with a dot at the end, and the number of occurrences of each of its fields.
    Message { path: String, seen: HashMap<String, usize> },
    /// A list, with the name of its field.
    List { name: String },
}

impl Places {
    /// The places in a text. If the text does not parse, the places that can be found.
    pub fn parse(text: &str) -> Places {
        let mut walk = Walk { text, stack: vec![TokenContext::message(String::new())], found: HashMap::new() };
        let mut field: Option<(&str, usize, bool)> = None;
        for (token, start, _) in tokens(text) {
            field = walk.step(token, start, field);
        }
        Places(walk.found)
    }

    /// Whether the field is written.
    pub fn has(&self, path: &str) -> bool {
        self.0.contains_key(&indexed(path))
    }

    /// The place of the entry with this key, in a map at the top level. If the key is written with escapes, the place of the map.
    pub fn entry(&self, field: &str, key: &str) -> Place {
        self.0.get(&entry_name(field, key)).copied().unwrap_or_else(|| self.get(field))
    }

    /// The place of a field. If the field is missing, the place of the enclosing message. A missing index means 0.
    pub fn get(&self, path: &str) -> Place {
        let mut key = indexed(path);
        loop {
            if let Some(place) = self.0.get(&key) {
                return *place;
            }
            match key.rfind('.') {
                Some(dot) => key.truncate(dot),
                None => return Place::UNKNOWN,
            }
        }
    }
}

/// The key under which the place of a map's entry is stored.
fn entry_name(field: &str, key: &str) -> String {
    format!("{field}{{{key}}}")
}

fn indexed(path: &str) -> String {
    let part = |part: &str| if part.ends_with(']') { part.to_owned() } else { format!("{part}[0]") };
    path.split('.').map(part).collect::<Vec<_>>().join(".")
}

impl TokenContext {
    fn message(path: String) -> TokenContext {
        TokenContext::Message { path, seen: HashMap::new() }
    }
}

struct Walk<'a> {
    text: &'a str,
    stack: Vec<TokenContext>,
    found: HashMap<String, Place>,
}

impl<'a> Walk<'a> {
    /// Processes one token. `field` is a name whose value is pending: the name, its offset, and whether its colon was read.
    fn step(
        &mut self,
        token: Token<'a>,
        at: usize,
        field: Option<(&'a str, usize, bool)>,
    ) -> Option<(&'a str, usize, bool)> {
        let list = match self.stack.last() {
            Some(TokenContext::List { name }) => Some(name.clone()),
            _ => None,
        };
        match (token, list, field) {
            (Token::Mark(b']'), Some(_), _) => {
                self.stack.pop();
            }
            (Token::Mark(b'{' | b'<'), Some(name), _) => self.open(&name, at),
            (Token::Name(_) | Token::Literal, Some(name), _) => {
                self.record(&name, at);
            }
            (Token::Mark(b'{' | b'<'), None, Some((name, at, _))) => self.open(name, at),
            (Token::Mark(b'['), None, Some((name, ..))) => {
                self.stack.push(TokenContext::List { name: name.to_owned() });
            }
            (Token::Mark(b'}' | b'>'), None, _) if self.stack.len() > 1 => {
                self.stack.pop();
            }
            (Token::Mark(b':'), None, Some((name, at, _))) => return Some((name, at, true)),
            (Token::Name(_) | Token::Literal, None, Some((name, name_at, true))) => {
                let path = self.record(name, name_at);
                if name == "key" {
                    self.record_entry(&path, at);
                }
            }
            (Token::Name(name), None, _) => return Some((name, at, false)),
            (Token::Mark(b'-'), _, field) => return field,
            _ => {}
        }
        None
    }

    fn open(&mut self, name: &str, at: usize) {
        let path = self.record(name, at);
        self.stack.push(TokenContext::message(format!("{path}.")));
    }

    /// Records the place of a map's entry whose key is the text at this offset.
    fn record_entry(&mut self, path: &str, at: usize) {
        let Some(text) = self.text.get(at..).and_then(|rest| rest.get(..quoted(rest))) else { return };
        let Some((message, _)) = path.rsplit_once('.') else { return };
        let (Some((field, _)), Some(place)) = (message.split_once('['), self.found.get(message).copied()) else {
            return;
        };
        let key = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
        self.found.insert(entry_name(field, key), place);
    }

    /// Records one more value of the field in the innermost message, and returns its path.
    fn record(&mut self, name: &str, at: usize) -> String {
        for around in self.stack.iter_mut().rev() {
            if let TokenContext::Message { path, seen } = around {
                let n = seen.entry(name.to_owned()).or_insert(0);
                let key = format!("{path}{name}[{n}]");
                *n += 1;
                self.found.insert(key.clone(), Place::at_offset(self.text, at));
                return key;
            }
        }
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
name: 'enc'
input [
  { name: \"a\" dims: [ -1, 80 ] },
  { name: \"b\"
    dims: 3 dims: 4 }
]
sequence_batching {
  state < input_name: \"s\" >
  state: { input_name: \"t\"
    dims: -2 }
}
parameters { key: \"k\" value: { string_value: \"v\" } }
";

    #[test]
    fn every_spelling_of_a_field_has_its_place() {
        let places = Places::parse(TEXT);
        let at = |path: &str| (places.get(path).line, places.get(path).column);
        assert_eq!(at("name"), (1, 1));
        assert_eq!(at("input[0]"), (3, 3));
        assert_eq!(at("input[0].dims[1]"), (3, 27));
        assert_eq!(at("input[1].dims[1]"), (5, 13));
        assert_eq!(at("sequence_batching.state[1].dims"), (10, 5));
        assert_eq!(at("parameters[0].value.string_value"), (12, 32));
        assert_eq!(places.entry("parameters", "k"), places.get("parameters[0]"));
        assert_eq!(places.entry("parameters", "other"), places.get("parameters"));
    }

    #[test]
    fn a_missing_field_is_located_at_its_parent() {
        let places = Places::parse(TEXT);
        assert_eq!(places.get("sequence_batching.state[0].dims"), places.get("sequence_batching.state[0]"));
        assert_eq!(places.get("platform"), Place::UNKNOWN);
    }

    #[test]
    fn broken_texts_are_located_without_a_panic() {
        for text in ["}}}", "a: {", "[[[", "a [ { b: [", "a::", "'"] {
            Places::parse(text);
        }
    }
}
