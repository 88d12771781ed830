//! Identifiers: keys with generations, correlation ids, loads and instances.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            pub ix: u32,
            pub generation: NonZeroU32,
        }

        impl $name {
            pub const fn new(ix: u32, generation: NonZeroU32) -> Self {
                Self { ix, generation }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({}.{})", stringify!($name), self.ix, self.generation)
            }
        }

        impl crate::slab::SlabKey for $name {
            fn make(ix: u32, generation: NonZeroU32) -> Self {
                Self { ix, generation }
            }
            fn ix(self) -> u32 {
                self.ix
            }
            fn generation(self) -> NonZeroU32 {
                self.generation
            }
        }
    )* };
}

// Each is a table index and the generation of that entry, so a stale key never matches again.
keys! {
    /// A live or ending sequence.
    Seq,
    /// A request, in the driver's table of requests.
    Req,
    /// A slot of one instance. `ix` counts from 0 within the instance; in `direct` it is the batch row.
    Slot,
    /// A batch that was handed out and has not ended.
    BatchId,
    /// A question to an external policy.
    RoundId,
    /// One loaded incarnation of one version of a model, in the driver's table of loads.
    LoadId,
}

impl Seq {
    /// The sequence as policies know it: one number, never the client's id and never 0.
    pub fn handle(self) -> u64 {
        u64::from(self.generation.get()) << 32 | u64::from(self.ix)
    }

    /// The sequence of a handle. It may have ended.
    pub fn of_handle(handle: u64) -> Option<Seq> {
        let generation = NonZeroU32::new(u32::try_from(handle >> 32).ok()?)?;
        Some(Seq::new(u32::try_from(handle & u64::from(u32::MAX)).ok()?, generation))
    }
}

impl LoadId {
    /// The first key that a table of loads gives out.
    pub const FIRST: LoadId = LoadId::new(0, NonZeroU32::MIN);
}

/// One instance (an executing thread) of a load.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Instance {
    pub load: LoadId,
    pub n: u16,
}

/// A client's correlation id. An integer and a text are never equal, even if they read alike.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Id {
    /// Integer 0, an empty text or nothing: not part of a sequence.
    #[default]
    None,
    Int(u64),
    Str(Arc<str>),
}

impl From<u64> for Id {
    fn from(id: u64) -> Self {
        if id == 0 { Id::None } else { Id::Int(id) }
    }
}

impl From<&str> for Id {
    fn from(id: &str) -> Self {
        if id.is_empty() { Id::None } else { Id::Str(id.into()) }
    }
}

/// As clients read it in messages: `7`, `call-77`, and nothing for no id.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::None => Ok(()),
            Id::Int(id) => write!(f, "{id}"),
            Id::Str(id) => f.write_str(id),
        }
    }
}
