//! A protobuf message as a list of its fields. An unchanged field is written as it was read, so no part of a file is lost.

use std::borrow::Cow;

/// The bytes are not a protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the file is not an ONNX model: its bytes are no protobuf message")]
pub struct NotAMessage;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum WireValue<'a> {
    Number(u64),
    Fixed64([u8; 8]),
    Bytes(Cow<'a, [u8]>),
    Fixed32([u8; 4]),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct WireField<'a> {
    pub(super) number: u32,
    pub(super) value: WireValue<'a>,
}

impl WireField<'_> {
    pub(super) fn bytes(number: u32, bytes: Vec<u8>) -> WireField<'static> {
        WireField { number, value: WireValue::Bytes(Cow::Owned(bytes)) }
    }

    pub(super) fn text(number: u32, text: &str) -> WireField<'static> {
        WireField::bytes(number, text.as_bytes().to_vec())
    }

    pub(super) fn number(number: u32, value: u64) -> WireField<'static> {
        WireField { number, value: WireValue::Number(value) }
    }
}

/// A message, field by field, in the order of the file.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Message<'a>(pub(super) Vec<WireField<'a>>);

impl<'a> Message<'a> {
    pub(super) fn parse(mut bytes: &'a [u8]) -> Result<Message<'a>, NotAMessage> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes)?;
            let number = u32::try_from(key >> 3).ok().filter(|number| *number > 0).ok_or(NotAMessage)?;
            let value = match key & 7 {
                0 => WireValue::Number(varint(&mut bytes)?),
                1 => WireValue::Fixed64(*take_chunk(&mut bytes)?),
                2 => {
                    let len = usize::try_from(varint(&mut bytes)?).map_err(|_| NotAMessage)?;
                    let (value, rest) = bytes.split_at_checked(len).ok_or(NotAMessage)?;
                    bytes = rest;
                    WireValue::Bytes(Cow::Borrowed(value))
                }
                5 => WireValue::Fixed32(*take_chunk(&mut bytes)?),
                _ => return Err(NotAMessage),
            };
            fields.push(WireField { number, value });
        }
        Ok(Message(fields))
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for WireField { number, value } in &self.0 {
            let key = |wire: u64| (u64::from(*number) << 3) | wire;
            match value {
                WireValue::Number(value) => {
                    push_varint(&mut out, key(0));
                    push_varint(&mut out, *value);
                }
                WireValue::Fixed64(bytes) => {
                    push_varint(&mut out, key(1));
                    out.extend_from_slice(bytes);
                }
                WireValue::Bytes(bytes) => {
                    push_varint(&mut out, key(2));
                    push_varint(&mut out, bytes.len() as u64);
                    out.extend_from_slice(bytes);
                }
                WireValue::Fixed32(bytes) => {
                    push_varint(&mut out, key(5));
                    out.extend_from_slice(bytes);
                }
            }
        }
        out
    }

    /// The values of a field with bytes: texts and messages.
    pub(super) fn all(&self, number: u32) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |field| field.number == number).filter_map(|field| match &field.value {
            WireValue::Bytes(bytes) => Some(bytes.as_ref()),
            _ => None,
        })
    }

    /// The last value of such a field, which overrides the earlier ones.
    pub(super) fn last(&self, number: u32) -> Option<&[u8]> {
        self.all(number).last()
    }

    pub(super) fn text(&self, number: u32) -> String {
        self.last(number).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
    }

    pub(super) fn texts(&self, number: u32) -> Vec<String> {
        self.all(number).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    pub(super) fn number(&self, number: u32) -> Option<u64> {
        self.0.iter().rev().filter(|field| field.number == number).find_map(|field| match &field.value {
            WireValue::Number(value) => Some(*value),
            _ => None,
        })
    }

    /// The numbers of a repeated field, packed or not.
    pub(super) fn numbers(&self, number: u32) -> Result<Vec<u64>, NotAMessage> {
        let mut numbers = Vec::new();
        for field in self.0.iter().filter(|field| field.number == number) {
            match &field.value {
                WireValue::Number(value) => numbers.push(*value),
                WireValue::Bytes(packed) => {
                    let mut rest = packed.as_ref();
                    while !rest.is_empty() {
                        numbers.push(varint(&mut rest)?);
                    }
                }
                WireValue::Fixed64(_) | WireValue::Fixed32(_) => return Err(NotAMessage),
            }
        }
        Ok(numbers)
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64, NotAMessage> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(NotAMessage)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(NotAMessage)
}

fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_chunk<'a, const N: usize>(bytes: &mut &'a [u8]) -> Result<&'a [u8; N], NotAMessage> {
    let (chunk, rest) = bytes.split_first_chunk().ok_or(NotAMessage)?;
    *bytes = rest;
    Ok(chunk)
}
