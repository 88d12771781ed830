//! Converts BYTES between wire format (each element a 4-byte length and that many bytes) and ONNX Runtime's string tensors. Elements may
//! hold any bytes, NUL included.

use std::ffi::c_char;
use std::ptr;

use sequor_core::Shape;

use super::status::check;
use super::value::OnnxValue;
use crate::backend::{BackendError, Port};

/// Creates a string tensor with these elements.
pub(super) fn tensor(port: &Port, wire: &[u8], shape: &Shape) -> Result<OnnxValue, BackendError> {
    let elements = parse(wire).ok_or_else(|| broken(port, "their data ends inside an element"))?;
    if shape.elements() != Some(elements.len() as u64) {
        return Err(broken(port, &format!("there are {} of them for the shape {shape}", elements.len())));
    }
    let value = OnnxValue::strings(shape)?;
    for (index, element) in elements.iter().enumerate() {
        let mut buffer: *mut c_char = ptr::null_mut();
        // SAFETY: the value is a string tensor with exactly this many elements, and no other code has it yet.
        check(unsafe {
            (ort::api().GetResizedStringTensorElementBuffer)(value.as_ptr(), index, element.len(), &raw mut buffer)
        })?;
        if !element.is_empty() {
            // SAFETY: the call above allocated this many bytes at `buffer`, which no other code uses.
            unsafe { ptr::copy_nonoverlapping(element.as_ptr(), buffer.cast(), element.len()) };
        }
    }
    Ok(value)
}

/// The elements of a string tensor with `count` of them, in wire format.
pub(super) fn wire(value: &OnnxValue, count: usize) -> Result<Vec<u8>, BackendError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut len = 0;
    // SAFETY: the value is alive, `len` may be written to.
    check(unsafe { (ort::api().GetStringTensorDataLength)(value.as_ptr(), &raw mut len) })?;
    let (mut text, mut starts) = (vec![0u8; len], vec![0usize; count]);
    // SAFETY: there is room for all the bytes and for the start of every element; an empty vector's pointer is not null.
    check(unsafe {
        (ort::api().GetStringTensorContent)(value.as_ptr(), text.as_mut_ptr().cast(), len, starts.as_mut_ptr(), count)
    })?;
    let ends = starts.iter().copied().skip(1).chain([len]);
    let mut wire = Vec::with_capacity(len + 4 * count);
    for (start, end) in starts.iter().copied().zip(ends) {
        let element =
            text.get(start..end).ok_or_else(|| BackendError("ONNX Runtime gave strings no order".to_owned()))?;
        let len =
            u32::try_from(element.len()).map_err(|_| BackendError("an element is longer than 4 GiB".to_owned()))?;
        wire.extend_from_slice(&len.to_le_bytes());
        wire.extend_from_slice(element);
    }
    Ok(wire)
}

/// Splits the bytes into elements; `None` if the last one is incomplete.
fn parse(mut wire: &[u8]) -> Option<Vec<&[u8]>> {
    let mut elements = Vec::new();
    while !wire.is_empty() {
        let (len, rest) = wire.split_first_chunk::<4>()?;
        let (element, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)?;
        elements.push(element);
        wire = rest;
    }
    Some(elements)
}

fn broken(port: &Port, why: &str) -> BackendError {
    BackendError(format!("'{}' does not hold the BYTES elements it should: {why}", port.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_taken_apart_only_when_whole() {
        assert_eq!(parse(b"\x02\0\0\0a\0\0\0\0\0"), Some(vec![&b"a\0"[..], &b""[..]]));
        assert_eq!(parse(b""), Some(Vec::new()));
        assert_eq!(parse(b"\x02\0\0\0a"), None);
        assert_eq!(parse(b"\x02\0\0"), None);
    }
}
