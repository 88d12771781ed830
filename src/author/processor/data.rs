//! Tensors of a case: from a WAV or npy file, from the lines of a text, or from a list in the case itself.

use std::io::Cursor;
use std::path::Path;

use bytes::Bytes;
use sequor_core::{DataType, Shape};
use serde::Deserialize;
use toml::Value;

use super::npy;
use crate::processing::TensorPort;
use crate::tensor::Tensor;
use crate::tensor::rows::push_text;

/// The source of a tensor of a case.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum DataSource {
    /// A file beside the case: .wav (16 bit, the first channel), .npy, or .txt (an element of type BYTES a line).
    File(String),
    List(Vec<Value>),
}

/// A tensor of a case. Packets divide its first dimension.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseData {
    pub tensor: Tensor,
    /// Samples a second, if the source is a WAV file.
    pub rate: Option<u32>,
}

impl DataSource {
    /// Reads the data for an input or output of this type. The error names the file.
    pub fn read(&self, folder: &Path, dtype: DataType) -> Result<CaseData, String> {
        match self {
            DataSource::List(values) => Ok(CaseData { tensor: list(values, dtype)?, rate: None }),
            DataSource::File(name) => file(&folder.join(name), dtype).map_err(|what| format!("{name}: {what}")),
        }
    }
}

fn file(path: &Path, dtype: DataType) -> Result<CaseData, String> {
    let bytes = std::fs::read(path).map_err(|e| e.to_string())?;
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    let (is, shape, data, rate) = match extension {
        "wav" => {
            let (rate, samples) = sound(&bytes)?;
            let data = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect::<Vec<_>>();
            (DataType::Int16, vec![samples.len() as u64], data, Some(rate))
        }
        "npy" => {
            let (is, shape, data) = npy::parse(&bytes)?;
            (is, shape, data, None)
        }
        "txt" => {
            let text = String::from_utf8(bytes).map_err(|e| e.to_string())?;
            let (mut data, mut lines) = (Vec::new(), 0);
            for line in text.lines() {
                push_text(&mut data, line.as_bytes());
                lines += 1;
            }
            (DataType::Bytes, vec![lines], data, None)
        }
        _ => return Err("a file of a case is .wav, .npy or .txt".to_owned()),
    };
    if is != dtype {
        return Err(format!("its elements are {is}; {dtype} is wanted"));
    }
    Ok(CaseData { tensor: Tensor { dtype, shape: Shape(shape), data: Bytes::from(data) }, rate })
}

/// The sample rate and the first channel of a WAV file with 16-bit samples.
fn sound(wav: &[u8]) -> Result<(u32, Vec<i16>), String> {
    let mut reader = hound::WavReader::new(Cursor::new(wav)).map_err(|e| e.to_string())?;
    let spec = reader.spec();
    if (spec.bits_per_sample, spec.sample_format) != (16, hound::SampleFormat::Int) {
        return Err(format!("its samples have {} bits; 16 are wanted", spec.bits_per_sample));
    }
    let samples = reader.samples::<i16>().step_by(usize::from(spec.channels.max(1)));
    Ok((spec.sample_rate, samples.collect::<Result<_, _>>().map_err(|e| e.to_string())?))
}

fn list(values: &[Value], dtype: DataType) -> Result<Tensor, String> {
    let mut data = Vec::new();
    for value in values {
        element(value, dtype, &mut data).ok_or_else(|| format!("{value} is no element of type {dtype}"))?;
    }
    Ok(Tensor { dtype, shape: Shape(vec![values.len() as u64]), data: Bytes::from(data) })
}

/// Appends an element. Returns `None` if the value is of another type.
fn element(value: &Value, dtype: DataType, to: &mut Vec<u8>) -> Option<()> {
    macro_rules! integer {
        ($type:ty) => {
            to.extend(<$type>::try_from(value.as_integer()?).ok()?.to_le_bytes())
        };
    }
    let number = || value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    match dtype {
        DataType::Bool => to.push(u8::from(value.as_bool()?)),
        DataType::Uint8 => integer!(u8),
        DataType::Uint16 => integer!(u16),
        DataType::Uint32 => integer!(u32),
        DataType::Uint64 => integer!(u64),
        DataType::Int8 => integer!(i8),
        DataType::Int16 => integer!(i16),
        DataType::Int32 => integer!(i32),
        DataType::Int64 => integer!(i64),
        DataType::Fp16 => to.extend(half::f16::from_f64(number()?).to_le_bytes()),
        DataType::Bf16 => to.extend(half::bf16::from_f64(number()?).to_le_bytes()),
        DataType::Fp32 => to.extend((number()? as f32).to_le_bytes()),
        DataType::Fp64 => to.extend(number()?.to_le_bytes()),
        DataType::Bytes => push_text(to, value.as_str()?.as_bytes()),
    }
    Some(())
}

impl CaseData {
    /// Size of the first dimension.
    pub fn rows(&self) -> u64 {
        self.tensor.shape.0.first().copied().unwrap_or(1)
    }

    /// Rows `from..to` as a tensor for this port. If the port has one dimension more than the data, adds a 1 in front. The error says what
    /// does not fit.
    pub fn part(&self, port: &TensorPort, from: u64, to: u64) -> Result<Tensor, String> {
        let Tensor { dtype, shape, data } = &self.tensor;
        let row = shape.0.get(1..).unwrap_or_default();
        let count = to.saturating_sub(from);
        let mut dims: Vec<u64> = [&[count][..], row].concat();
        if port.dims.rank() == dims.len() + 1 {
            dims.insert(0, 1);
        }
        let range = match dtype.size() {
            Some(size) => {
                let bytes = row.iter().product::<u64>().saturating_mul(size as u64);
                (from.saturating_mul(bytes), to.saturating_mul(bytes))
            }
            None => (text_at(data, from), text_at(data, to)),
        };
        let part = usize::try_from(range.0).ok().zip(usize::try_from(range.1).ok());
        let part = part.filter(|(from, to)| from <= to && *to <= data.len()).map(|(from, to)| data.slice(from..to));
        let data = part.ok_or_else(|| format!("\"{}\" has no rows {from} to {to}", port.name))?;
        let tensor = Tensor { dtype: *dtype, shape: Shape(dims), data };
        port.check(&tensor)?;
        Ok(tensor)
    }
}

/// The offset of element `n` of BYTES data.
fn text_at(data: &[u8], n: u64) -> u64 {
    let mut texts = crate::tensor::rows::BytesElements(data);
    for _ in 0..n {
        if texts.next().is_none() {
            break;
        }
    }
    (data.len() - texts.0.len()) as u64
}

#[cfg(test)]
mod tests {
    use sequor_core::Dims;

    use super::*;

    fn port(dtype: DataType, dims: &[i64]) -> TensorPort {
        TensorPort { name: "x".to_owned(), dtype, dims: Dims::from_wire(dims), optional: false }
    }

    #[test]
    fn a_list_is_cut_into_packets() {
        let list = |text: &str| DataSource::deserialize(text.parse::<toml::Value>().unwrap()).unwrap();
        let data = list("[1, 2, 3]").read(Path::new(""), DataType::Int16).unwrap();
        let part = data.part(&port(DataType::Int16, &[1, -1]), 1, 3).unwrap();
        assert_eq!((part.shape, &part.data[..]), (Shape::new(&[1, 2]), &[2, 0, 3, 0][..]));
        assert!(data.part(&port(DataType::Int16, &[2]), 0, 3).is_err());
        let texts = list("[\"ab\", \"\", \"c\"]").read(Path::new(""), DataType::Bytes).unwrap();
        let part = texts.part(&port(DataType::Bytes, &[-1]), 1, 3).unwrap();
        assert_eq!((texts.rows(), &part.data[..]), (3, &b"\0\0\0\0\x01\0\0\0c"[..]));
        assert!(list("[70000]").read(Path::new(""), DataType::Int16).unwrap_err().starts_with("70000 is no element"));
    }

    #[test]
    fn text_lines_and_sound_files_are_read_as_rows() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("t.txt"), "a\nbc\n").unwrap();
        let read = |name: &str, dtype| DataSource::File(name.to_owned()).read(folder.path(), dtype);
        assert_eq!(read("t.txt", DataType::Bytes).unwrap().rows(), 2);
        assert_eq!(read("t.txt", DataType::Fp32).unwrap_err(), "t.txt: its elements are BYTES; FP32 is wanted");
        let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/vad/samples");
        let sound = DataSource::File("speech.wav".to_owned()).read(&samples, DataType::Int16).unwrap();
        assert_eq!((sound.rate, sound.rows() > 90_000), (Some(16_000), true));
        assert!(read("none.npy", DataType::Int8).unwrap_err().starts_with("none.npy: No such file"));
    }
}
