//! The facts about a stored state, which a tier knows without reading the state, and how keys and heads are encoded.

use std::time::Duration;

use sequor_core::{EndReason, Id};

/// A sequence of a model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TierKey {
    pub model: String,
    pub id: Id,
}

/// The facts about a stored state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateHead {
    pub version: u64,
    /// SHA-256 of the files of the model's version.
    pub digest: [u8; 32],
    /// The incarnation of the sequence id. A later one has a larger number.
    pub incarnation: u64,
    /// Steps that the state contains.
    pub step: u64,
    /// Maximum idle time of the sequence; `None` is no limit.
    pub idle: Option<Duration>,
    /// The idle time that was left when the state was written.
    pub idle_left: Option<Duration>,
    /// Total running time of the store's servers when the state was written. Zero in layouts without it.
    pub running: Duration,
    /// Whether the answer of the last step is kept with the state.
    pub answered: bool,
    /// Whether later steps may have been answered. Then only a client that numbers its steps may continue from the state.
    pub behind: bool,
    /// Bytes of the file.
    pub bytes: u64,
    /// Checksum of the file and of the fields above.
    sum: u32,
    /// The layout in which it was written, which the checksum covers.
    layout: u8,
}

/// The idle time of a sequence when its state is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IdleTime {
    /// The maximum; `None` is no limit.
    pub idle: Option<Duration>,
    /// The part that is left.
    pub left: Option<Duration>,
    /// Total running time of the store's servers.
    pub running: Duration,
}

/// A sequence that has ended, as a tier remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedState {
    pub why: EndReason,
    /// Its last committed step.
    pub step: u64,
    /// Its maximum idle time; `None` is no limit.
    pub idle: Option<Duration>,
    /// When it ended, since 1970.
    pub at: Duration,
}

/// The present layout of a head. Earlier layouts, which do not contain the time of the write, are read as well. A store with a later layout
/// is not read.
const LAYOUT: u8 = 3;
/// The first layout whose heads contain the time of the write.
const WITH_TIME: u8 = 3;
/// The layout of the record of an end. Earlier layouts are the same.
const END_LAYOUT: u8 = 2;
/// No limit, encoded as microseconds.
const NEVER: u64 = u64::MAX;

impl TierKey {
    pub fn new(model: &str, id: &Id) -> TierKey {
        TierKey { model: model.to_owned(), id: id.clone() }
    }

    /// Encodes the key: the model, a zero byte, the kind of the id, the id.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.model.len() + 10);
        key.extend_from_slice(self.model.as_bytes());
        key.push(0);
        match &self.id {
            Id::None => key.push(b'-'),
            Id::Int(id) => {
                key.push(b'i');
                key.extend_from_slice(&id.to_be_bytes());
            }
            Id::Str(id) => {
                key.push(b't');
                key.extend_from_slice(id.as_bytes());
            }
        }
        key
    }

    pub(super) fn decode(key: &[u8]) -> Option<TierKey> {
        let at = key.iter().position(|byte| *byte == 0)?;
        let (model, rest) = (key.get(..at)?, key.get(at + 1..)?);
        let (kind, id) = rest.split_first()?;
        let id = match kind {
            b'i' => Id::Int(u64::from_be_bytes(id.try_into().ok()?)),
            b't' => Id::from(std::str::from_utf8(id).ok()?),
            _ => return None,
        };
        Some(TierKey { model: std::str::from_utf8(model).ok()?.to_owned(), id })
    }
}

impl StateHead {
    pub fn new(
        (version, digest): (u64, [u8; 32]),
        (incarnation, step): (u64, u64),
        IdleTime { idle, left, running }: IdleTime,
        answered: bool,
        file: &[u8],
    ) -> StateHead {
        let head = StateHead {
            version,
            digest,
            incarnation,
            step,
            idle,
            idle_left: left,
            // Rounded, so that it is equal when it is read again.
            running: Duration::from_micros(micros(running)),
            answered,
            behind: false,
            bytes: file.len() as u64,
            sum: 0,
            layout: LAYOUT,
        };
        StateHead { sum: head.sum_of(file), ..head }
    }

    /// The head of the same state, once further steps may be answered. `running` is the running time of servers at that time.
    pub fn behind(self, file: &[u8], running: Duration) -> StateHead {
        let running = Duration::from_micros(micros(running));
        let head = StateHead { behind: true, running, layout: LAYOUT, ..self };
        StateHead { sum: head.sum_of(file), ..head }
    }

    /// The head of the same state of another sequence of its id: one that began with this incarnation, on another server or after a move.
    pub fn of_incarnation(self, incarnation: u64, file: &[u8]) -> StateHead {
        let head = StateHead { incarnation, layout: LAYOUT, ..self };
        StateHead { sum: head.sum_of(file), ..head }
    }

    /// Whether the head was made for this file.
    pub(super) fn fits(&self, file: &[u8]) -> bool {
        self.bytes == file.len() as u64 && self.sum == self.sum_of(file)
    }

    fn sum_of(&self, file: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.fields());
        hasher.update(file);
        hasher.finalize()
    }

    fn fields(&self) -> Vec<u8> {
        let (idle, left) = (self.idle.map_or(NEVER, micros), self.idle_left.map_or(NEVER, micros));
        let numbers = [self.version, self.incarnation, self.step, idle, left, self.bytes];
        let time = (self.layout >= WITH_TIME).then(|| micros(self.running));
        let mut fields = vec![self.layout, u8::from(self.answered) | u8::from(self.behind) << 1];
        fields.extend_from_slice(&self.digest);
        numbers.iter().chain(&time).for_each(|n| fields.extend_from_slice(&n.to_le_bytes()));
        fields
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut head = self.fields();
        head.extend_from_slice(&self.sum.to_le_bytes());
        head
    }

    /// The layout of an encoded head, if only a later version of Sequor can read it.
    pub(super) fn later_layout(head: &[u8]) -> Option<u8> {
        head.first().copied().filter(|layout| *layout > LAYOUT)
    }

    pub(super) fn decode(head: &[u8]) -> Option<StateHead> {
        let (layout, head) = head.split_first()?;
        let (flags, head) = head.split_first()?;
        let (digest, mut head) = head.split_first_chunk::<32>()?;
        let mut next = || {
            let (number, rest) = head.split_first_chunk::<8>()?;
            head = rest;
            Some(u64::from_le_bytes(*number))
        };
        let [version, incarnation, step, idle, left, bytes] = [next()?, next()?, next()?, next()?, next()?, next()?];
        let running = if *layout >= WITH_TIME { next()? } else { 0 };
        let sum = u32::from_le_bytes(head.try_into().ok()?);
        let span = |micros: u64| (micros != NEVER).then(|| Duration::from_micros(micros));
        let (idle, idle_left) = (span(idle), span(left));
        let head = StateHead {
            version,
            digest: *digest,
            incarnation,
            step,
            idle,
            idle_left,
            running: Duration::from_micros(running),
            answered: flags & 1 != 0,
            behind: flags & 2 != 0,
            bytes,
            sum,
            layout: *layout,
        };
        (1..=LAYOUT).contains(layout).then_some(head)
    }
}

impl EndedState {
    /// Encodes the end of this sequence: the fields, then the key.
    pub(super) fn encode(&self, key: &TierKey) -> Vec<u8> {
        let why = EndReason::ALL.iter().position(|why| *why == self.why).and_then(|n| u8::try_from(n).ok());
        let idle = self.idle.map_or(NEVER, micros);
        let mut record = vec![END_LAYOUT, why.unwrap_or(u8::MAX)];
        [self.step, idle, micros(self.at)].iter().for_each(|n| record.extend_from_slice(&n.to_le_bytes()));
        record.extend_from_slice(&key.encode());
        record
    }

    pub(super) fn decode(record: &[u8]) -> Option<(TierKey, EndedState)> {
        let (fields, key) = record.split_at_checked(26)?;
        let (layout, fields) = fields.split_first()?;
        let (why, fields) = fields.split_first()?;
        let number = |n: usize| Some(u64::from_le_bytes(fields.get(8 * n..8 * n + 8)?.try_into().ok()?));
        let why = EndReason::ALL.get(usize::from(*why)).copied()?;
        let (step, idle, at) = (number(0)?, number(1)?, Duration::from_micros(number(2)?));
        let idle = (idle != NEVER).then(|| Duration::from_micros(idle));
        let is_known = (1..=END_LAYOUT).contains(layout);
        is_known.then_some((TierKey::decode(key)?, EndedState { why, step, idle, at }))
    }
}

pub(super) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(NEVER)
}
