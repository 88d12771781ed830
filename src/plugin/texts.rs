//! Key features: texts as 64-bit FNV-1a, the same in every process; and the last texts that were met, so that a plug-in may ask for one.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

/// Texts remembered.
const MOST: usize = 1 << 16;

/// The 64-bit FNV-1a of a text in UTF-8. 0 is kept for "no such text".
pub fn key(text: &str) -> u64 {
    let hash =
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    if hash == 0 { 1 } else { hash }
}

/// The last texts that became keys.
#[derive(Debug, Default)]
pub struct Texts(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    by_key: HashMap<u64, Box<str>>,
    order: VecDeque<u64>,
}

impl Texts {
    /// The key of a text, which is remembered.
    pub fn key(&self, text: &str) -> u64 {
        let key = key(text);
        let mut known = self.0.lock();
        let fresh = match known.by_key.entry(key) {
            Entry::Vacant(place) => {
                place.insert(text.into());
                true
            }
            Entry::Occupied(_) => false,
        };
        if fresh {
            known.order.push_back(key);
            if known.order.len() > MOST
                && let Some(oldest) = known.order.pop_front()
            {
                known.by_key.remove(&oldest);
            }
        }
        key
    }

    pub fn text(&self, key: u64) -> Option<String> {
        self.0.lock().by_key.get(&key).map(ToString::to_string)
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
        let texts = Texts::default();
        let first = texts.key("first");
        assert_eq!(texts.text(first).as_deref(), Some("first"));
        for n in 0..MOST {
            texts.key(&n.to_string());
        }
        assert_eq!((texts.text(first), texts.text(key("7")).as_deref()), (None, Some("7")));
    }
}
