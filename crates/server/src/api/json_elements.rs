//! Writes elements of tensors as JSON. Numbers are as short as possible, and parse back to the same value.

use half::f16;
use sequor_core::DataType;

/// Why data cannot be written as JSON.
pub(crate) type Unwritable = String;

/// Writes a tensor's elements as one flat array. Numbers that are not finite are written as Python reads and writes them, because strict
/// JSON has no form for them.
pub(crate) fn write(out: &mut Vec<u8>, dtype: DataType, data: &[u8]) -> Result<(), Unwritable> {
    out.push(b'[');
    match dtype {
        DataType::Bool => each(out, data, |out, [b]: [u8; 1]| number(out, b != 0)),
        DataType::Uint8 => each(out, data, |out, b| number(out, u8::from_le_bytes(b))),
        DataType::Uint16 => each(out, data, |out, b| number(out, u16::from_le_bytes(b))),
        DataType::Uint32 => each(out, data, |out, b| number(out, u32::from_le_bytes(b))),
        DataType::Uint64 => each(out, data, |out, b| number(out, u64::from_le_bytes(b))),
        DataType::Int8 => each(out, data, |out, b| number(out, i8::from_le_bytes(b))),
        DataType::Int16 => each(out, data, |out, b| number(out, i16::from_le_bytes(b))),
        DataType::Int32 => each(out, data, |out, b| number(out, i32::from_le_bytes(b))),
        DataType::Int64 => each(out, data, |out, b| number(out, i64::from_le_bytes(b))),
        DataType::Fp16 => each(out, data, |out, b| float32(out, f16::from_le_bytes(b).to_f32())),
        DataType::Bf16 => each(out, data, |out, b| float32(out, half::bf16::from_le_bytes(b).to_f32())),
        DataType::Fp32 => each(out, data, |out, b| float32(out, f32::from_le_bytes(b))),
        DataType::Fp64 => each(out, data, |out, b| float64(out, f64::from_le_bytes(b))),
        DataType::Bytes => texts(out, data)?,
    }
    out.push(b']');
    Ok(())
}

fn each<const N: usize>(out: &mut Vec<u8>, data: &[u8], put: impl Fn(&mut Vec<u8>, [u8; N])) {
    for (i, element) in data.as_chunks::<N>().0.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        put(out, *element);
    }
}

/// Writing to a `Vec` cannot fail.
fn number(out: &mut Vec<u8>, n: impl serde::Serialize) {
    let _ = serde_json::to_writer(out, &n);
}

/// Writes the shortest text that parses back to the same number.
fn float32(out: &mut Vec<u8>, x: f32) {
    if x.is_finite() { number(out, x) } else { odd(out, f64::from(x)) }
}

fn float64(out: &mut Vec<u8>, x: f64) {
    if x.is_finite() { number(out, x) } else { odd(out, x) }
}

fn odd(out: &mut Vec<u8>, x: f64) {
    let text: &[u8] = match x {
        x if x.is_nan() => b"NaN",
        x if x > 0.0 => b"Infinity",
        _ => b"-Infinity",
    };
    out.extend_from_slice(text);
}

fn texts(out: &mut Vec<u8>, mut data: &[u8]) -> Result<(), Unwritable> {
    let mut first = true;
    while let Some((len, rest)) = data.split_first_chunk::<4>() {
        let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
        let (text, rest) = rest.split_at_checked(len).ok_or("its elements do not fill it")?;
        let text = std::str::from_utf8(text).map_err(|_| "an element is not UTF-8")?;
        if !std::mem::replace(&mut first, false) {
            out.push(b',');
        }
        number(out, text);
        data = rest;
    }
    Ok(())
}
