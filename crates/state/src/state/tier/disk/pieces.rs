//! The pieces of a file in the store. Each is a value of its own, so that a file takes little more space than it has bytes.

use std::ops::Range;

/// Bytes of a page that the page itself and the key need. The rest holds a piece.
const PAGE_FACTS: u64 = 512;
/// Maximum size of a page whose piece is not cut further.
const SMALL_PAGE: u64 = 4096;

/// The numbered pieces of a file of this many bytes. The store keeps a value in a page whose size is a power of two. Without pieces, a file a
/// little larger than such a page would take, and write, twice its size.
pub(super) fn pieces(bytes: u64) -> impl Iterator<Item = (u16, Range<usize>)> {
    let size = |rest: u64| {
        let wanted = rest.saturating_add(PAGE_FACTS);
        let page = wanted.checked_next_power_of_two().unwrap_or(u64::MAX);
        if page <= SMALL_PAGE || page - wanted <= page / 8 { rest } else { (page / 2 - PAGE_FACTS).min(rest) }
    };
    let mut from = 0;
    (0u16..).map_while(move |n| {
        let piece = (from < bytes).then(|| from..from + size(bytes - from))?;
        from = piece.end;
        Some((n, usize::try_from(piece.start).ok()?..usize::try_from(piece.end).ok()?))
    })
}

/// The keys of the pieces of a file: the key of the sequence, and the number of the piece. Keys of different sequences differ if they are
/// equally long, so the keys of their pieces differ, too.
pub(super) struct PieceKey(Vec<u8>);

impl PieceKey {
    /// The piece keys of a sequence's encoded key.
    pub(super) fn new(mut at: Vec<u8>) -> PieceKey {
        at.extend_from_slice(&[0; 2]);
        PieceKey(at)
    }

    pub(super) fn for_piece(&mut self, n: u16) -> &[u8] {
        if let Some(number) = self.0.last_chunk_mut::<2>() {
            *number = n.to_be_bytes();
        }
        &self.0
    }
}
