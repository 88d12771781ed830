//! The refusals of shared memory. They belong to the table of refusals.

use crate::api::refusal::{BAD_INPUT, PEER_LIMIT, RETRY_AFTER};
use crate::api::{Code, Status};

/// A fault of a region, or of a request for it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RegionFault<'a> {
    Exists,
    Empty,
    /// The name or the key has this many bytes, more than the maximum.
    LongName {
        what: &'static str,
        bytes: usize,
        limit: usize,
    },
    TooMany(usize),
    TooManyOfAPeer(usize),
    /// Clients may register no shared memory.
    Off,
    /// The key does not begin with the prefix that clients must use.
    OtherPrefix {
        key: &'a str,
        prefix: &'a str,
    },
    NotOpened {
        key: &'a str,
        why: &'a str,
    },
    DoesNotFit {
        key: &'a str,
        offset: u64,
        size: u64,
        there: u64,
    },
    /// A status query names a region that is not registered.
    NotRegistered,
    /// A tensor names a region that is not registered.
    Unknown,
    BadOffset,
    BadSize,
    TooLarge {
        size: u64,
        limit: usize,
    },
    /// The tensors of one request exceed the maximum size of a request in total.
    TooLargeInAll {
        size: u64,
        limit: usize,
    },
    TooSmall {
        output: &'a str,
        size: u64,
        needed: u64,
    },
    /// The region has changed since its registration.
    Broken {
        why: &'a str,
    },
    NoCuda,
    NotRegisteredCuda,
}

pub(crate) fn region(name: &str, fault: &RegionFault<'_>) -> Status {
    match fault {
        RegionFault::Exists => {
            Status::new(Code::AlreadyExists, BAD_INPUT, format!("shared memory region '{name}' already in manager"))
        }
        RegionFault::TooMany(most) => {
            let text = format!(
                "{most} shared memory regions are registered, the maximum of all clients; unregister one first"
            );
            limit("region_limit", text)
        }
        RegionFault::TooManyOfAPeer(most) => {
            let text =
                format!("this client has registered {most} shared memory regions, the maximum; unregister one first");
            limit(PEER_LIMIT, text)
        }
        RegionFault::Off => denied(
            name,
            "this server takes no shared memory of clients (shared_memory.allow is \"off\", the default unless HTTP and \
             gRPC listen on loopback)",
        ),
        RegionFault::OtherPrefix { key, prefix } => {
            denied(name, &format!("key '{key}' does not begin with '{prefix}' (shared_memory.prefix)"))
        }
        RegionFault::NotRegistered => not_found("system shared memory region", name),
        RegionFault::NotRegisteredCuda => not_found("cuda shared memory region", name),
        RegionFault::Unknown => not_found("shared memory region", name),
        RegionFault::TooLarge { size, limit } => {
            too_large(format!("{size} bytes of shared memory region '{name}' are more than {limit} (limits.request)"))
        }
        RegionFault::TooLargeInAll { size, limit } => too_large(format!(
            "the request's inputs in shared memory up to region '{name}' have {size} bytes; at most {limit} are read (limits.request)"
        )),
        RegionFault::NoCuda => Status::unimplemented(format!(
            "shared memory region '{name}' is not registered: CUDA shared memory is not served here; use system shared memory"
        )),
        RegionFault::Empty => bad(format!("shared memory region '{name}' needs a name and a size")),
        RegionFault::LongName { what, bytes, limit } => {
            bad(format!("the {what} of a shared memory region has {bytes} bytes; the maximum is {limit}"))
        }
        RegionFault::NotOpened { key, why } => bad(format!("Unable to open shared memory region: '{key}' ({why})")),
        RegionFault::DoesNotFit { key, offset, size, there } => bad(format!(
            "failed to register shared memory region '{name}': {size} bytes from {offset} on do not lie within '{key}', \
             which has {there}"
        )),
        RegionFault::BadOffset => bad(format!("Invalid offset for shared memory region: '{name}'")),
        RegionFault::BadSize => bad(format!("Invalid offset + byte size for shared memory region: '{name}'")),
        RegionFault::TooSmall { output, size, needed } => bad(format!(
            "shared memory size specified with the request for output '{output}' ({size} bytes) should be at least \
             {needed} bytes to hold the results"
        )),
        RegionFault::Broken { why } => bad(format!("shared memory region '{name}' is not what was registered: {why}")),
    }
}

fn bad(text: String) -> Status {
    Status::new(Code::InvalidArgument, BAD_INPUT, text)
}

fn too_large(text: String) -> Status {
    Status::new(Code::TooLarge, BAD_INPUT, text)
}

fn limit(reason: &'static str, text: String) -> Status {
    Status::new(Code::Unavailable, reason, text).retry_after(RETRY_AFTER)
}

fn denied(name: &str, why: &str) -> Status {
    Status::new(Code::Denied, "denied", format!("shared memory region '{name}' is not registered: {why}"))
}

fn not_found(what: &str, name: &str) -> Status {
    Status::new(Code::NotFound, BAD_INPUT, format!("Unable to find {what}: '{name}'"))
}
