//! Bodies of HTTP, packed: gzip and deflate, both ways.

use std::io::{Read, Write};

use axum::http::HeaderMap;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};

use crate::api::{Code, Status};

/// Smaller answers fit into a packet as they are.
const WORTH_IT: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Gzip,
    /// With zlib's head and sum, as the standard and everybody's clients mean it.
    Deflate,
}

impl Packing {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Packing::Gzip => "gzip",
            Packing::Deflate => "deflate",
        }
    }

    fn of(name: &str) -> Option<Packing> {
        [Packing::Gzip, Packing::Deflate].into_iter().find(|p| p.name().eq_ignore_ascii_case(name))
    }

    /// What the client would like the answer to be packed with, if it names one of ours. The first it names wins.
    pub(crate) fn accepted(headers: &HeaderMap) -> Option<Packing> {
        let names = headers.get(ACCEPT_ENCODING)?.to_str().ok()?.split(',');
        names
            .filter_map(|name| {
                let (name, weight) = name.split_once(';').unwrap_or((name, ""));
                let never = weight.trim().strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
                Packing::of(name.trim()).filter(|_| !never)
            })
            .next()
    }

    /// Packs a body that is worth it.
    pub(crate) fn pack(self, body: &[u8]) -> Option<Bytes> {
        if body.len() < WORTH_IT {
            return None;
        }
        let out = Vec::with_capacity(body.len() / 2);
        let packed = match self {
            Packing::Gzip => {
                let mut packer = GzEncoder::new(out, Compression::fast());
                packer.write_all(body).and_then(|()| packer.finish())
            }
            Packing::Deflate => {
                let mut packer = ZlibEncoder::new(out, Compression::fast());
                packer.write_all(body).and_then(|()| packer.finish())
            }
        };
        packed.ok().map(Bytes::from)
    }
}

/// A request's body as it was before the client packed it; no larger than `limit`.
pub(crate) fn unpack(headers: &HeaderMap, body: Bytes, limit: usize) -> Result<Bytes, Status> {
    let Some(name) = headers.get(CONTENT_ENCODING).filter(|name| name.as_bytes() != b"identity") else {
        return Ok(body);
    };
    let Some(packing) = name.to_str().ok().and_then(Packing::of) else {
        return Err(Status::unimplemented(format!(
            "content-encoding {name:?} is not served here; gzip and deflate are"
        )));
    };
    let mut out = Vec::with_capacity(body.len().saturating_mul(2).min(limit));
    let most = limit as u64 + 1;
    let read = match packing {
        Packing::Gzip => MultiGzDecoder::new(&*body).take(most).read_to_end(&mut out),
        Packing::Deflate => ZlibDecoder::new(&*body).take(most).read_to_end(&mut out),
    };
    if let Err(error) = read {
        let text = format!("the request's body could not be unpacked: {error}");
        return Err(Status::new(Code::InvalidArgument, "bad_input", text));
    }
    if out.len() > limit {
        let text = format!("the request is larger than {limit} bytes (limits.request)");
        return Err(Status::new(Code::TooLarge, "bad_input", text));
    }
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: axum::http::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn what_was_packed_is_unpacked_to_the_same_and_no_further_than_the_limit() {
        let body = Bytes::from(vec![7; 100_000]);
        for packing in [Packing::Gzip, Packing::Deflate] {
            let packed = packing.pack(&body).unwrap();
            assert!(packed.len() < 1000);
            let said = headers(CONTENT_ENCODING, packing.name());
            assert_eq!(unpack(&said, packed.clone(), 100_000), Ok(body.clone()));
            assert_eq!(unpack(&said, packed.clone(), 99_999).unwrap_err().code, Code::TooLarge);
            assert_eq!(
                unpack(&said, packed.slice(..packed.len() / 2), 100_000).unwrap_err().code,
                Code::InvalidArgument
            );
            assert_eq!(packing.pack(b"short"), None);
        }
        let odd = unpack(&headers(CONTENT_ENCODING, "br"), body.clone(), 1).unwrap_err();
        assert_eq!(odd.code, Code::Unimplemented);
        assert_eq!(unpack(&headers(CONTENT_ENCODING, "identity"), body.clone(), 1), Ok(body));
    }

    #[test]
    fn the_first_packing_that_the_client_takes_is_used() {
        let accepted = |value: &str| Packing::accepted(&headers(ACCEPT_ENCODING, value));
        assert_eq!(accepted("br, GZIP;q=0.5, deflate"), Some(Packing::Gzip));
        assert_eq!(accepted("gzip;q=0, deflate"), Some(Packing::Deflate));
        assert_eq!((accepted("identity"), Packing::accepted(&HeaderMap::new())), (None, None));
    }
}
