//! Compression of HTTP bodies and gRPC messages with gzip and deflate, in both directions.

use std::io::{Read, Write};

use axum::http::HeaderMap;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};

use super::order::{INLINE_BYTES, off_task};
use super::queued::QueuedBytesPermit;
use super::{Code, Status};
use crate::error::{ExceededLimit, Failure};

/// Minimum bytes of an answer that is compressed. A smaller one fits into a packet.
const WORTH_IT: usize = 1024;

/// Initial size of the buffer for a decompressed message, and maximum bytes of each growth.
const FIRST_STEP: usize = 4 << 10;
const LONGEST_STEP: usize = 8 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Gzip,
    /// With zlib's header and checksum, as the standard and clients expect.
    Deflate,
}

impl Packing {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Packing::Gzip => "gzip",
            Packing::Deflate => "deflate",
        }
    }

    /// Parses `grpc-encoding`. Unlike HTTP's header, it is case-sensitive.
    pub(crate) fn of_encoding(name: &str) -> Option<Packing> {
        [Packing::Gzip, Packing::Deflate].into_iter().find(|p| p.name() == name)
    }

    fn from_name(name: &str) -> Option<Packing> {
        [Packing::Gzip, Packing::Deflate].into_iter().find(|p| p.name().eq_ignore_ascii_case(name))
    }

    /// The compression that the client accepts for the answer. The first supported name in its header counts.
    pub(crate) fn accepted(headers: &HeaderMap) -> Option<Packing> {
        let names = headers.get(ACCEPT_ENCODING)?.to_str().ok()?.split(',');
        names
            .filter_map(|name| {
                let (name, weight) = name.split_once(';').unwrap_or((name, ""));
                let never = weight.trim().strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
                Packing::from_name(name.trim()).filter(|_| !never)
            })
            .next()
    }

    /// Compresses an answer if it is large enough. Up to 256 KiB the connection's task does it; larger answers go to another thread.
    pub(crate) async fn pack_answer(self, body: &Bytes) -> Result<Option<Bytes>, Failure> {
        let (is_long, body) = (body.len() > INLINE_BYTES, body.clone());
        off_task(is_long, move || self.pack(&body)).await
    }

    /// Compresses a body if it is large enough.
    fn pack(self, body: &[u8]) -> Option<Bytes> {
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

/// Why a message could not be decompressed.
#[derive(Debug)]
pub(crate) enum InflateError {
    /// The decompressed message exceeds the limit.
    TooLarge,
    Refused(Failure),
    Broken(std::io::Error),
}

impl From<ExceededLimit> for InflateError {
    fn from(exceeded: ExceededLimit) -> InflateError {
        InflateError::Refused(exceeded.into())
    }
}

impl InflateError {
    /// The status for an HTTP client, in the words of its protocol.
    pub(crate) fn status(self, limit: usize, words: fn(&Failure) -> Status) -> Status {
        match self {
            InflateError::TooLarge => words(&ExceededLimit::RequestBytes { limit }.into()),
            InflateError::Refused(failure) => words(&failure),
            InflateError::Broken(error) => {
                let text = format!("the request's body could not be unpacked: {error}");
                Status::new(Code::InvalidArgument, "bad_input", text)
            }
        }
    }
}

/// The compression of a request's body.
pub(crate) fn packing(headers: &HeaderMap) -> Result<Option<Packing>, Status> {
    let Some(name) = headers.get(CONTENT_ENCODING).filter(|name| name.as_bytes() != b"identity") else {
        return Ok(None);
    };
    match name.to_str().ok().and_then(Packing::from_name) {
        Some(packing) => Ok(Some(packing)),
        None => {
            Err(Status::unimplemented(format!("content-encoding {name:?} is not served here; gzip and deflate are")))
        }
    }
}

impl Packing {
    /// Decompresses a client's message, up to `limit` bytes. The permit counts memory before it is allocated. The connection's task
    /// decompresses up to 256 KiB; a larger message goes to another thread.
    pub(crate) async fn inflate(
        self,
        packed: Bytes,
        limit: usize,
        mut permit: QueuedBytesPermit,
    ) -> Result<(Bytes, QueuedBytesPermit), InflateError> {
        if packed.len() <= INLINE_BYTES
            && let Some(bytes) = self.inflate_up_to(&packed, limit, Some(INLINE_BYTES), &mut permit)?
        {
            return Ok((bytes, permit));
        }
        // While the message waits for another thread, its compressed size counts.
        permit.resize(packed.len() as u64)?;
        let whole = move || {
            let bytes = self.inflate_up_to(&packed, limit, None, &mut permit)?;
            Ok((bytes.unwrap_or_default(), permit))
        };
        off_task(true, whole).await.map_err(InflateError::Refused)?
    }

    /// Decompresses a message. `None` if it has more than `stop` bytes.
    fn inflate_up_to(
        self,
        packed: &[u8],
        limit: usize,
        stop: Option<usize>,
        permit: &mut QueuedBytesPermit,
    ) -> Result<Option<Bytes>, InflateError> {
        let mut reader: Box<dyn Read + '_> = match self {
            Packing::Gzip => Box::new(MultiGzDecoder::new(packed)),
            Packing::Deflate => Box::new(ZlibDecoder::new(packed)),
        };
        let mut out = Vec::new();
        loop {
            // Reads up to one byte more than the limit, to detect a message that exceeds it.
            let step = (out.len() / 2).max(packed.len() * 2).clamp(FIRST_STEP, LONGEST_STEP);
            let step = step.min(limit.saturating_add(1) - out.len());
            permit.grow(step as u64)?;
            out.reserve_exact(step);
            let read = reader.by_ref().take(step as u64).read_to_end(&mut out).map_err(InflateError::Broken)?;
            if out.len() > limit {
                return Err(InflateError::TooLarge);
            }
            if read < step {
                permit.resize(out.len() as u64)?;
                return Ok(Some(out.into()));
            }
            if stop.is_some_and(|stop| out.len() >= stop) {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::order::run_and_see_if_inline;
    use crate::api::queued::QueuedBytes;
    use crate::api::triton;
    use crate::telemetry::kinds::Gauge;

    fn headers(name: axum::http::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    async fn inflate(packing: Packing, packed: Bytes, limit: usize, room: u64) -> Result<(Bytes, i64), Code> {
        let shown = Gauge::default();
        let permit = QueuedBytes::new(room, shown.clone()).permit(&crate::api::peers::Peer::default());
        let inflated =
            packing.inflate(packed, limit, permit).await.map_err(|error| error.status(limit, triton::status).code);
        let counted = shown.get();
        let outcome = inflated.map(|(bytes, _permit)| (bytes, counted));
        assert_eq!(shown.get(), 0, "given back");
        outcome
    }

    #[tokio::test]
    async fn a_packed_message_is_unpacked_within_its_limit_and_counted_while_it_is_there() {
        for (packing, size) in [(Packing::Gzip, 100_000), (Packing::Deflate, 100_000), (Packing::Gzip, 3_000_000)] {
            let body = Bytes::from(vec![7; size]);
            let packed = packing.pack(&body).unwrap();
            assert!(packed.len() < size / 100);
            let room = size as u64 * 2;
            assert_eq!(inflate(packing, packed.clone(), size, room).await, Ok((body, size as i64)));
            assert_eq!(inflate(packing, packed.clone(), size - 1, room).await, Err(Code::TooLarge));
            let half = packed.slice(..packed.len() / 2);
            assert_eq!(inflate(packing, half, size, room).await, Err(Code::InvalidArgument));
            assert_eq!(inflate(packing, packed, size, size as u64 / 2).await, Err(Code::Unavailable));
            assert_eq!(packing.pack(b"short"), None);
        }
    }

    #[test]
    fn large_answers_are_packed_on_another_thread() {
        for (body, is_here) in [(vec![7; INLINE_BYTES], true), (vec![7; 4 << 20], false)] {
            let body = Bytes::from(body);
            let (packed, was_here) = run_and_see_if_inline(Packing::Gzip.pack_answer(&body));
            assert_eq!((packed.unwrap(), was_here), (Packing::Gzip.pack(&body), is_here));
        }
    }

    #[test]
    fn a_packing_that_is_not_served_is_refused() {
        assert_eq!(packing(&headers(CONTENT_ENCODING, "br")).unwrap_err().code, Code::Unimplemented);
        assert_eq!(packing(&headers(CONTENT_ENCODING, "identity")), Ok(None));
        assert_eq!(packing(&headers(CONTENT_ENCODING, "GZip")), Ok(Some(Packing::Gzip)));
    }

    #[test]
    fn the_first_packing_that_the_client_takes_is_used() {
        let accepted = |value: &str| Packing::accepted(&headers(ACCEPT_ENCODING, value));
        assert_eq!(accepted("br, GZIP;q=0.5, deflate"), Some(Packing::Gzip));
        assert_eq!(accepted("gzip;q=0, deflate"), Some(Packing::Deflate));
        assert_eq!((accepted("identity"), Packing::accepted(&HeaderMap::new())), (None, None));
    }
}
