//! Which versions of a model continue from states of other versions, because sequences were carried to them.

/// A version of a model, with a digest of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VersionDigest {
    pub version: u64,
    /// SHA-256 of the files of the version.
    pub digest: [u8; 32],
}

/// For each version with stored states, the version that continues from them. The oldest entries beyond [`Successions::MOST`] are dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Successions(Vec<(VersionDigest, VersionDigest)>);

/// Encoded size of a [`VersionDigest`] in bytes.
const WRITTEN: usize = 40;

impl Successions {
    pub const MOST: usize = 64;

    /// Records that states of `from`, and states that `from` would continue from, now go to `to`. Returns whether that is new.
    pub fn add(&mut self, from: VersionDigest, to: VersionDigest) -> bool {
        if from == to || self.0.contains(&(from, to)) {
            return false;
        }
        self.0.retain(|(of, _)| *of != from && *of != to);
        for (_, next) in self.0.iter_mut().filter(|(_, next)| *next == from) {
            *next = to;
        }
        self.0.push((from, to));
        let excess = self.0.len().saturating_sub(Self::MOST);
        self.0.drain(..excess);
        true
    }

    /// Whether a further entry may displace the oldest.
    pub fn is_full(&self) -> bool {
        self.0.len() >= Self::MOST
    }

    /// Keeps only the entries of these versions. Returns whether any entry was dropped.
    pub fn keep_only(&mut self, mut is_wanted: impl FnMut(VersionDigest) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|(of, _)| is_wanted(*of));
        self.0.len() < before
    }

    /// The version that continues from states of `from`: another one, or `from` itself.
    pub fn successor_of(&self, from: VersionDigest) -> VersionDigest {
        self.0.iter().find(|(of, _)| *of == from).map_or(from, |(_, to)| *to)
    }

    /// The entries that another list does not have.
    pub(super) fn without(&self, other: &Successions) -> Successions {
        Successions(self.0.iter().filter(|entry| !other.0.contains(entry)).copied().collect())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let both = self.0.iter().flat_map(|(from, to)| [from, to]);
        both.flat_map(|files| files.version.to_le_bytes().into_iter().chain(files.digest)).collect()
    }

    /// Decodes the entries. `None` if the bytes are not a whole number of entries.
    pub(super) fn decode(bytes: &[u8]) -> Option<Successions> {
        let (entries, rest) = bytes.as_chunks::<{ 2 * WRITTEN }>();
        let files = |bytes: &[u8]| {
            let (version, digest) = bytes.split_first_chunk::<8>()?;
            Some(VersionDigest { version: u64::from_le_bytes(*version), digest: digest.try_into().ok()? })
        };
        let entry = |entry: &[u8; 2 * WRITTEN]| {
            let (from, to) = entry.split_at(WRITTEN);
            files(from).zip(files(to))
        };
        let entries: Option<Vec<_>> = entries.iter().map(entry).collect();
        entries.filter(|_| rest.is_empty()).map(Successions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(version: u64) -> VersionDigest {
        VersionDigest { version, digest: [u8::try_from(version % 256).unwrap(); 32] }
    }

    fn of(pairs: &[(u64, u64)]) -> Successions {
        let mut all = Successions::default();
        for (from, to) in pairs {
            all.add(files(*from), files(*to));
        }
        all
    }

    #[test]
    fn states_follow_a_chain_of_versions_and_return_with_a_restored_version() {
        let all = of(&[(1, 2), (2, 3)]);
        assert_eq!([1, 2, 3, 4].map(|n| all.successor_of(files(n)).version), [3, 3, 3, 4]);
        let back = of(&[(1, 2), (2, 1)]);
        assert_eq!([1, 2].map(|n| back.successor_of(files(n)).version), [1, 1]);
        let other_files = VersionDigest { version: 1, digest: [9; 32] };
        assert_eq!(all.successor_of(other_files), other_files);
    }

    #[test]
    fn adding_a_known_succession_changes_nothing() {
        let mut all = of(&[(1, 2)]);
        assert!(!all.add(files(1), files(2)) && !all.add(files(3), files(3)) && !all.keep_only(|of| of != files(2)));
        assert!(all.keep_only(|of| of != files(1)));
        assert_eq!(all, Successions::default());
    }

    #[test]
    fn the_oldest_successions_are_forgotten() {
        let pairs: Vec<(u64, u64)> = (0..70).map(|n| (2 * n, 2 * n + 1)).collect();
        let all = of(&pairs);
        assert_eq!([10, 12].map(|n| all.successor_of(files(n)).version), [10, 13]);
    }

    #[test]
    fn successions_round_trip_when_encoded() {
        let all = of(&[(1, 2), (5, 6)]);
        assert_eq!(Successions::decode(&all.encode()), Some(all.clone()));
        assert_eq!(Successions::decode(&all.encode()[1..]), None);
        assert_eq!(Successions::decode(&[]), Some(Successions::default()));
    }
}
