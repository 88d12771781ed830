//! A table whose keys carry the generation of their entry, so that a stale key finds nothing.

use std::marker::PhantomData;
use std::num::NonZeroU32;

use crate::faults::{Planted, fault};

/// The key of an entry of a [`Slab`]. The key types of [`crate::ids`] implement it.
pub trait SlabKey: Copy {
    fn make(ix: u32, generation: NonZeroU32) -> Self;
    fn ix(self) -> u32;
    fn generation(self) -> NonZeroU32;
}

#[derive(Debug, Clone)]
struct Entry<T> {
    generation: NonZeroU32,
    value: Option<T>,
}

/// Values under generation-checked keys. Free entries are used again last-freed first, so a small table stays in cache.
#[derive(Debug, Clone)]
pub struct Slab<K, T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    len: usize,
    key: PhantomData<K>,
}

impl<K: SlabKey, T> Default for Slab<K, T> {
    fn default() -> Self {
        Slab { entries: Vec::new(), free: Vec::new(), len: 0, key: PhantomData }
    }
}

impl<K: SlabKey, T> Slab<K, T> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn insert(&mut self, value: T) -> K {
        self.insert_with(|_| value)
    }

    /// Inserts the value that `make` builds from its key.
    pub fn insert_with(&mut self, make: impl FnOnce(K) -> T) -> K {
        self.len += 1;
        if let Some(ix) = self.free.pop()
            && let Some(entry) = self.entries.get_mut(ix as usize)
        {
            let key = K::make(ix, entry.generation);
            entry.value = Some(make(key));
            return key;
        }
        let ix = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let key = K::make(ix, NonZeroU32::MIN);
        self.entries.push(Entry { generation: NonZeroU32::MIN, value: Some(make(key)) });
        key
    }

    pub fn get(&self, key: K) -> Option<&T> {
        let entry = self.entries.get(key.ix() as usize)?;
        if entry.generation == key.generation() { entry.value.as_ref() } else { None }
    }

    pub fn get_mut(&mut self, key: K) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.ix() as usize)?;
        if entry.generation == key.generation() { entry.value.as_mut() } else { None }
    }

    pub fn contains(&self, key: K) -> bool {
        self.get(key).is_some()
    }

    pub fn remove(&mut self, key: K) -> Option<T> {
        let entry = self.entries.get_mut(key.ix() as usize)?;
        if entry.generation != key.generation() {
            return None;
        }
        let value = entry.value.take()?;
        // An entry without further generations is retired and never used again.
        if fault(Planted::GenerationNotBumped) {
            self.free.push(key.ix());
        } else if let Some(next) = entry.generation.checked_add(1) {
            entry.generation = next;
            self.free.push(key.ix());
        }
        self.len -= 1;
        Some(value)
    }

    /// The present key of the entry at `ix`, if any.
    pub fn key_at(&self, ix: u32) -> Option<K> {
        let entry = self.entries.get(ix as usize)?;
        entry.value.as_ref().map(|_| K::make(ix, entry.generation))
    }

    /// Entries with an index from `from` on and below `until`, in order.
    pub fn range(&self, from: u32, until: u32) -> impl Iterator<Item = (K, &T)> {
        let entries = (from..until).zip(self.entries.iter().skip(from as usize));
        entries.filter_map(|(ix, e)| e.value.as_ref().map(|v| (K::make(ix, e.generation), v)))
    }

    /// One more than the largest index used so far.
    pub fn places(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// All entries, in the order of their index.
    pub fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        (0u32..).zip(&self.entries).filter_map(|(ix, e)| e.value.as_ref().map(|v| (K::make(ix, e.generation), v)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Req;

    #[test]
    fn a_key_of_a_removed_entry_finds_nothing() {
        let mut slab: Slab<Req, &str> = Slab::new();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_eq!(second.ix, first.ix);
        assert_ne!(second, first);
        assert_eq!((slab.get(first), slab.get(second)), (None, Some(&"second")));
        assert_eq!((slab.remove(first), slab.len()), (None, 1));
    }

    #[test]
    fn an_entry_out_of_generations_is_not_used_again() {
        let mut slab: Slab<Req, u8> = Slab::new();
        let old = slab.insert(1);
        slab.entries[0].generation = NonZeroU32::MAX;
        let last = Req::new(old.ix, NonZeroU32::MAX);
        assert_eq!(slab.remove(last), Some(1));
        assert_eq!(slab.insert(2).ix, 1);
    }
}
