//! Finds the places of the values in a JSON text, and the keys that stand twice in one object. Parsed JSON shows neither.

use std::collections::BTreeMap;

/// The places of a text's values, by path: `/model_config_list/0/config/name`.
#[derive(Debug, Default)]
pub(super) struct JsonPlaces {
    offsets: BTreeMap<String, usize>,
    /// The paths of keys that stand twice in one object.
    pub(super) repeated: Vec<String>,
}

impl JsonPlaces {
    /// Scans a text that is valid JSON.
    pub(super) fn new(text: &str) -> JsonPlaces {
        let mut scan = JsonScan { text, at: 0, places: JsonPlaces::default() };
        scan.value("");
        scan.places
    }

    /// The offset of the value with this path, at its key. Without it, that of the closest value around it.
    pub(super) fn offset(&self, path: &str) -> usize {
        let mut path = path;
        loop {
            if let Some(offset) = self.offsets.get(path) {
                return *offset;
            }
            let Some((around, _)) = path.rsplit_once('/') else { return 0 };
            path = around;
        }
    }
}

struct JsonScan<'a> {
    text: &'a str,
    at: usize,
    places: JsonPlaces,
}

impl JsonScan<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips spaces and separators, and returns the next byte.
    fn next(&mut self) -> Option<u8> {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace() || matches!(byte, b',' | b':')) {
            self.at += 1;
        }
        self.peek()
    }

    fn value(&mut self, path: &str) {
        match self.next() {
            Some(b'{') => self.entries(path, b'}'),
            Some(b'[') => self.entries(path, b']'),
            Some(b'"') => drop(self.string()),
            _ => {
                let is_end = |byte: u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b'}' | b']');
                while self.peek().is_some_and(|byte| !is_end(byte)) {
                    self.at += 1;
                }
            }
        }
    }

    /// The values of an object or a list.
    fn entries(&mut self, path: &str, end: u8) {
        self.at += 1;
        for n in 0_usize.. {
            let (next, at) = (self.next(), self.at);
            if next.is_none() || next == Some(end) {
                break;
            }
            let name = if end == b'}' { self.string() } else { n.to_string() };
            let path = format!("{path}/{name}");
            if self.places.offsets.insert(path.clone(), at).is_some() {
                self.places.repeated.push(path.clone());
            }
            self.value(&path);
        }
        self.at += 1;
    }

    /// The text of the string here.
    fn string(&mut self) -> String {
        let begin = self.at;
        self.at += 1;
        while self.peek().is_some_and(|byte| byte != b'"') {
            self.at += if self.peek() == Some(b'\\') { 2 } else { 1 };
        }
        self.at += 1;
        self.text.get(begin..self.at).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_place() {
        let text = r#"{ "a": [1, {"b\"": "}]", "c": {}}], "d": null, "a": true }"#;
        let places = JsonPlaces::new(text);
        for (path, at) in [("/a/0", "1,"), ("/a/1", "{\"b"), ("/a/1/b\"", "\"b"), ("/a/1/c", "\"c"), ("/d", "\"d")] {
            assert_eq!(places.offset(path), text.find(at).unwrap(), "{path}");
        }
        assert_eq!((places.offset("/d/e/f"), places.offset("/x")), (places.offset("/d"), 0));
        assert_eq!(places.repeated, ["/a"]);
        for broken in ["", "{", "[", "\"", "{\"a\"", "[1", "\"\\"] {
            JsonPlaces::new(broken);
        }
    }
}
