//! Pieces of bodies that a file of cases can describe.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Deserialize;

/// A part of a body.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Piece {
    /// Text, in which $ID is replaced by the sequence's id.
    Text(String),
    Made(Made),
}

/// Bytes: `of` or `hex`, or `gzip` repetitions of it compressed; then `fill` spaces and an end of line. All of this is repeated `times`
/// times, and `cut` bytes are removed from the end.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Made {
    hex: Option<String>,
    of: Option<String>,
    times: Option<usize>,
    fill: usize,
    gzip: Option<usize>,
    cut: usize,
}

pub(super) fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

impl Made {
    fn bytes(&self) -> Vec<u8> {
        let of = self.hex.as_ref().map_or_else(|| self.of.clone().unwrap_or_default().into_bytes(), |text| hex(text));
        let mut one = match self.gzip {
            Some(count) => {
                let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
                packer.write_all(&of.repeat(count)).unwrap();
                packer.finish().unwrap()
            }
            None => of,
        };
        if self.fill > 0 {
            one.resize(one.len() + self.fill, b' ');
            one.extend_from_slice(b"\r\n");
        }
        let mut bytes = one.repeat(self.times.unwrap_or(1));
        bytes.truncate(bytes.len() - self.cut);
        bytes
    }
}

/// The bytes of all pieces.
pub(super) fn bytes(pieces: &[Piece], id: i64) -> Vec<u8> {
    let piece = |piece: &Piece| match piece {
        Piece::Text(text) => text.replace("$ID", &id.to_string()).into_bytes(),
        Piece::Made(made) => made.bytes(),
    };
    pieces.iter().flat_map(piece).collect()
}
