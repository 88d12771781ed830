//! Key features: a text becomes its 64-bit FNV-1a, which is the same in every process. The last texts are kept, so that a plug-in can ask
//! for one.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use crate::sync::Mutex;

/// Maximum number of kept texts, and maximum total of their bytes.
const MOST: usize = 1 << 16;
const MOST_BYTES: usize = 8 << 20;
/// Maximum bytes of a kept text. A longer text has a key too, but no plug-in would show it as a name.
const LONGEST: usize = 4096;
/// Maximum texts spared at a time because they were used again. This bounds the time that a thread waits.
const SPARED: usize = 8;

/// The 64-bit FNV-1a of a text in UTF-8. 0 is kept for "no such text".
pub fn key(text: &str) -> u64 {
    let hash =
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    if hash == 0 { 1 } else { hash }
}

/// The last texts that became keys.
#[derive(Debug, Default)]
pub struct KeyInterner(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    by_key: HashMap<u64, InternedText>,
    order: VecDeque<u64>,
    bytes: usize,
}

#[derive(Debug)]
struct InternedText {
    text: Box<str>,
    /// Whether it was used again since it was put at the end of the order.
    again: bool,
}

impl KeyInterner {
    /// The key of a text. The text is kept.
    pub fn key(&self, text: &str) -> u64 {
        let key = key(text);
        if text.len() <= LONGEST {
            self.0.lock().meet(key, text);
        }
        key
    }

    pub fn text(&self, key: u64) -> Option<String> {
        self.0.lock().by_key.get(&key).map(|known| known.text.to_string())
    }
}

impl Known {
    fn meet(&mut self, key: u64, text: &str) {
        match self.by_key.entry(key) {
            Entry::Vacant(place) => place.insert(InternedText { text: text.into(), again: false }),
            Entry::Occupied(place) => {
                place.into_mut().again = true;
                return;
            }
        };
        self.order.push_back(key);
        self.bytes += text.len();
        while self.order.len() > MOST || self.bytes > MOST_BYTES {
            self.forget_one();
        }
    }

    /// Drops a text that was not used for long: the first in order that was not used again.
    fn forget_one(&mut self) {
        for tried in 0.. {
            let Some(first) = self.order.pop_front() else { return };
            match self.by_key.get_mut(&first) {
                Some(known) if known.again && tried < SPARED => {
                    known.again = false;
                    self.order.push_back(first);
                }
                _ => {
                    self.bytes -= self.by_key.remove(&first).map_or(0, |known| known.text.len());
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_fnv_1a() {
        assert_eq!(
            (key(""), key("a"), key("foobar")),
            (0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8)
        );
    }

    #[test]
    fn the_last_texts_are_remembered() {
        let texts = KeyInterner::default();
        let first = texts.key("first");
        assert_eq!(texts.text(first).as_deref(), Some("first"));
        for n in 0..MOST {
            texts.key(&n.to_string());
        }
        assert_eq!((texts.text(first), texts.text(key("7")).as_deref()), (None, Some("7")));
    }

    #[test]
    fn interned_texts_are_limited_in_length_and_in_total_bytes() {
        let texts = KeyInterner::default();
        let long = "x".repeat(LONGEST + 1);
        assert_eq!((texts.key(&long), texts.text(key(&long))), (key(&long), None));
        let nth = |n: usize| format!("{n:LONGEST$}");
        let fit = MOST_BYTES / LONGEST;
        for n in 0..fit + 3 {
            texts.key(&nth(n));
        }
        let known = |n| texts.text(key(&nth(n))).is_some();
        assert_eq!((known(2), known(3), known(fit + 2)), (false, true, true));
        let known = texts.0.lock();
        assert_eq!((known.bytes, known.order.len()), (MOST_BYTES, fit));
    }

    #[test]
    fn texts_seen_again_stay_interned() {
        let texts = KeyInterner::default();
        for n in 0..2 * MOST {
            texts.key("everyday");
            texts.key(&n.to_string());
        }
        assert_eq!(texts.text(key("everyday")).as_deref(), Some("everyday"));
        // Even if all were met again, a text goes.
        for n in MOST..2 * MOST {
            texts.key(&n.to_string());
        }
        texts.key("new");
        assert_eq!(texts.0.lock().order.len(), MOST);
    }
}
