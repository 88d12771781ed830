//! Scans the bytes of a `ModelInferRequest` before decoding: the model, the numbers of inputs, outputs and parameters, and the memory that
//! decoding needs. Two bytes of a message can become an input of about 280 bytes in memory.
//!
//! The scan allocates nothing. At malformed bytes it stops. Decoding stops there too, and reports the error.

use crate::api::ServerLimits;
use crate::api::order::INLINE_BYTES;
use crate::api::wire::{Field, FieldValue, MessageFields};
use crate::error::ExceededLimit;

/// Memory of an input, an output or a parameter, without its texts.
const ITEM: u64 = 320;
/// If decoding a message takes at most this many bytes, they are not counted.
pub(crate) const UNCOUNTED: u64 = 64 << 10;
/// Memory of an element of `bytes_contents`, without its bytes.
const ELEMENT: u64 = 32;

/// The result of a scan.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Scanned<'m> {
    pub(crate) model: &'m [u8],
    pub(crate) version: &'m [u8],
    /// The request's own id.
    pub(crate) id: &'m [u8],
    /// Bytes of memory that decoding needs beyond the message itself. Raw contents need none.
    pub(crate) unpacked: u64,
    /// Bytes of shared memory that the request reads.
    pub(crate) shared: u64,
    /// Whether the scan reached the end of the message.
    pub(crate) is_well_formed: bool,
    /// The limit that the message exceeds. The scan stopped there.
    pub(crate) refused: Option<ExceededLimit>,
    inputs: usize,
    raw: usize,
    outputs: usize,
    parameters: usize,
}

/// Whether a message is too short to exceed a limit: each part of it has at least two bytes, and takes no more memory than an item.
pub(crate) fn is_needless(message: &[u8], limits: &ServerLimits) -> bool {
    let parts = message.len() / 2;
    let fewest = limits.inputs.min(limits.outputs).min(limits.parameters);
    parts as u64 * ITEM <= UNCOUNTED && parts <= fewest
}

/// Whether scanning takes too long for a connection's task. Raw contents are skipped and take no time.
pub(crate) fn is_long(message: &[u8]) -> bool {
    // The usual case, without a look at the fields.
    if message.len() <= INLINE_BYTES {
        return false;
    }
    let (mut fields, mut raw) = (MessageFields(message), 0);
    while let Some(field) = fields.next() {
        if let Field { number: 7, value: FieldValue::Bytes(contents) } = field {
            raw += contents.len();
        }
        if message.len() - fields.0.len() - raw > INLINE_BYTES {
            return true;
        }
    }
    false
}

/// Scans a message.
pub(crate) fn scan<'m>(message: &'m [u8], limits: &ServerLimits) -> Scanned<'m> {
    let mut scanned = Scanned::default();
    scanned.refused = scanned.message(message, limits).err();
    scanned
}

impl<'m> Scanned<'m> {
    fn message(&mut self, message: &'m [u8], limits: &ServerLimits) -> Result<(), ExceededLimit> {
        let mut fields = MessageFields(message);
        self.is_well_formed = true;
        for field in fields.by_ref() {
            match field {
                Field { value: FieldValue::Group, .. } => self.is_well_formed = false,
                Field { number: 1, value: FieldValue::Bytes(text) } => self.model = text,
                Field { number: 2, value: FieldValue::Bytes(text) } => self.version = text,
                Field { number: 3, value: FieldValue::Bytes(text) } => self.id = text,
                Field { number: 4, value: FieldValue::Bytes(entry) } => self.parameter(entry),
                Field { number: 5, value: FieldValue::Bytes(input) } => {
                    self.inputs += 1;
                    self.take(ITEM);
                    self.input(input, limits)?;
                }
                Field { number: 6, value: FieldValue::Bytes(output) } => {
                    self.outputs += 1;
                    self.take(ITEM);
                    self.output(output, limits)?;
                }
                Field { number: 7, value: FieldValue::Bytes(_) } => self.raw += 1,
                Field { .. } => {}
            }
            self.check(limits)?;
        }
        self.is_well_formed &= fields.0.is_empty();
        Ok(())
    }

    fn check(&self, limits: &ServerLimits) -> Result<(), ExceededLimit> {
        let counts = [
            (self.inputs, limits.inputs, "inputs", "limits.inputs"),
            (self.raw, limits.inputs, "raw_input_contents", "limits.inputs"),
            (self.outputs, limits.outputs, "outputs", "limits.outputs"),
            (self.parameters, limits.parameters, "parameters", "limits.parameters"),
        ];
        match counts.into_iter().find(|(count, limit, ..)| count > limit) {
            None => Ok(()),
            Some((_, limit, what, setting)) => Err(ExceededLimit::Parts { what, limit, setting }),
        }
    }

    fn take(&mut self, bytes: u64) {
        self.unpacked = self.unpacked.saturating_add(bytes);
    }

    fn parameter(&mut self, entry: &'m [u8]) {
        self.parameters += 1;
        self.take(ITEM + entry.len() as u64);
    }

    fn input(&mut self, input: &'m [u8], limits: &ServerLimits) -> Result<(), ExceededLimit> {
        for field in MessageFields(input) {
            match field {
                Field { number: 1 | 2, value: FieldValue::Bytes(text) } => self.take(text.len() as u64),
                Field { number: 3, value } => self.take(value.numbers() * 8),
                Field { number: 4, value: FieldValue::Bytes(entry) } => {
                    self.parameter(entry);
                    self.shared = self.shared.saturating_add(shared_memory(entry));
                    self.check(limits)?;
                }
                Field { number: 5, value: FieldValue::Bytes(contents) } => self.contents(contents),
                Field { .. } => {}
            }
        }
        Ok(())
    }

    fn output(&mut self, output: &'m [u8], limits: &ServerLimits) -> Result<(), ExceededLimit> {
        for field in MessageFields(output) {
            match field {
                Field { number: 1, value: FieldValue::Bytes(text) } => self.take(text.len() as u64),
                Field { number: 2, value: FieldValue::Bytes(entry) } => {
                    self.parameter(entry);
                    self.check(limits)?;
                }
                Field { .. } => {}
            }
        }
        Ok(())
    }

    /// Counts a list twice: as the decoded list, and as the tensor made from it.
    fn contents(&mut self, contents: &'m [u8]) {
        for Field { number, value } in MessageFields(contents) {
            self.take(match (number, value) {
                (1, value) => value.numbers() * 2,
                (2 | 4, value) => value.numbers() * 8,
                (3 | 5, value) => value.numbers() * 16,
                (6 | 7, FieldValue::Bytes(packed)) => packed.len() as u64 * 2,
                (6 | 7, _) => 16,
                (8, FieldValue::Bytes(element)) => ELEMENT + element.len() as u64 * 2,
                _ => 0,
            });
        }
    }
}

/// The bytes of shared memory that a parameter names.
fn shared_memory(entry: &[u8]) -> u64 {
    let is_size =
        |field: &Field<'_>| matches!(field, Field { number: 1, value: FieldValue::Bytes(b"shared_memory_byte_size") });
    if !MessageFields(entry).any(|field| is_size(&field)) {
        return 0;
    }
    let parameters = MessageFields(entry).filter_map(|field| match field {
        Field { number: 2, value: FieldValue::Bytes(parameter) } => Some(parameter),
        _ => None,
    });
    let numbers = parameters.flat_map(MessageFields).filter_map(|field| match field {
        Field { number: 2, value: FieldValue::Number(n) } => Some(n),
        _ => None,
    });
    numbers.last().unwrap_or(0).min(i64::MAX as u64)
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
