//! Answers of predictions over HTTP: the outputs as nested arrays, in the layout of the request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sequor_core::DataType;

use super::json::{BodyLayout, rows};
use super::special::{AnswerId, SEQUENCE_ID};
use crate::api::refusal::{BAD_INPUT, unsent};
use crate::api::{Code, Status, json_elements};
use crate::model::{BytesElements, InferAnswer, NamedTensor, Tensor};

/// Writes an answer.
pub(crate) fn write(answer: &InferAnswer, layout: BodyLayout, id: AnswerId) -> Result<Bytes, Status> {
    write_body(answer, layout, id).map_err(unsent)
}

fn write_body(answer: &InferAnswer, layout: BodyLayout, id: AnswerId) -> Result<Bytes, Status> {
    let id = id.find(answer);
    let size: usize = answer.outputs.iter().map(|output| output.tensor.data.len() * 3).sum();
    let mut out = Vec::with_capacity(64 + size);
    let outputs: Vec<WrittenOutput<'_>> = answer.outputs.iter().map(WrittenOutput::new).collect();
    match layout {
        BodyLayout::Column => columns(&mut out, &outputs, id)?,
        BodyLayout::Row => predictions(&mut out, &outputs, id)?,
    }
    Ok(out.into())
}

/// An output, with its texts split once.
struct WrittenOutput<'a> {
    of: &'a NamedTensor,
    dims: Vec<usize>,
    /// Empty unless the type is BYTES.
    texts: Vec<&'a [u8]>,
}

impl<'a> WrittenOutput<'a> {
    fn new(of: &'a NamedTensor) -> WrittenOutput<'a> {
        let Tensor { dtype, shape, data } = &of.tensor;
        let dims = shape.0.iter().map(|dim| usize::try_from(*dim).unwrap_or(0)).collect();
        let texts = if dtype.size().is_none() { BytesElements(data).collect() } else { Vec::new() };
        WrittenOutput { of, dims, texts }
    }
}

/// Writes `{"outputs": …}`: all tensors by name, or the only tensor without its name.
fn columns(out: &mut Vec<u8>, outputs: &[WrittenOutput<'_>], id: Option<u64>) -> Result<(), Status> {
    out.extend_from_slice(b"{\"outputs\":");
    match (outputs, id) {
        ([only], None) => value(out, only, WrittenRows::All)?,
        _ => named(out, outputs, WrittenRows::All, id.map(|id| format!("[{id}]")))?,
    }
    out.push(b'}');
    Ok(())
}

/// Writes `{"predictions": […]}`: each item has one row of each tensor.
fn predictions(out: &mut Vec<u8>, outputs: &[WrittenOutput<'_>], id: Option<u64>) -> Result<(), Status> {
    let counts: Vec<Option<u64>> = outputs.iter().map(|output| rows(&output.of.tensor)).collect();
    let count = match counts.as_slice() {
        [Some(first), others @ ..] if others.iter().all(|count| *count == Some(*first)) => *first,
        // The answer of an END without a run has only the id of its sequence.
        [] => 1,
        _ => {
            let text = "the outputs have no common batch size, so row format cannot hold them; send `inputs` instead";
            return Err(Status::new(Code::InvalidArgument, BAD_INPUT, text));
        }
    };
    out.extend_from_slice(b"{\"predictions\":[");
    for row in 0..usize::try_from(count).unwrap_or(0) {
        if row > 0 {
            out.push(b',');
        }
        match (outputs, id) {
            ([only], None) => value(out, only, WrittenRows::One(row))?,
            _ => named(out, outputs, WrittenRows::One(row), id.map(|id| id.to_string()))?,
        }
    }
    out.extend_from_slice(b"]}");
    Ok(())
}

/// The rows of a tensor to write.
#[derive(Clone, Copy)]
enum WrittenRows {
    All,
    One(usize),
}

/// Writes an object of outputs, with the id of the sequence.
fn named(
    out: &mut Vec<u8>,
    outputs: &[WrittenOutput<'_>],
    rows: WrittenRows,
    id: Option<String>,
) -> Result<(), Status> {
    out.push(b'{');
    for (n, output) in outputs.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        key(out, &output.of.name);
        value(out, output, rows)?;
    }
    if let Some(id) = id {
        if !outputs.is_empty() {
            out.push(b',');
        }
        key(out, SEQUENCE_ID);
        out.extend_from_slice(id.as_bytes());
    }
    out.push(b'}');
    Ok(())
}

/// Writing to a `Vec` cannot fail.
fn key(out: &mut Vec<u8>, key: &str) {
    let _ = serde_json::to_writer(&mut *out, key);
    out.push(b':');
}

fn value(out: &mut Vec<u8>, output: &WrittenOutput<'_>, rows: WrittenRows) -> Result<(), Status> {
    let WrittenOutput { of: NamedTensor { name, tensor }, dims: whole, texts: all } = output;
    let Tensor { dtype, data, .. } = tensor;
    let unwritable = |why: String| {
        let text = format!("Could not parse output content (output '{name}': {why})");
        Status::new(Code::Internal, "internal", text)
    };
    match dtype.size() {
        Some(size) => {
            let (dims, data) = match rows {
                WrittenRows::All => (whole.as_slice(), &**data),
                WrittenRows::One(row) => {
                    let dims = whole.get(1..).unwrap_or_default();
                    let bytes = dims.iter().product::<usize>() * size;
                    (dims, data.get(row * bytes..(row + 1) * bytes).unwrap_or_default())
                }
            };
            numbers(out, *dtype, size, dims, data).map_err(unwritable)
        }
        None => {
            let (dims, texts) = match rows {
                WrittenRows::All => (whole.as_slice(), all.as_slice()),
                WrittenRows::One(row) => {
                    let dims = whole.get(1..).unwrap_or_default();
                    let count = dims.iter().product::<usize>();
                    (dims, all.get(row * count..(row + 1) * count).unwrap_or_default())
                }
            };
            self::texts(out, dims, texts);
            Ok(())
        }
    }
}

/// Writes numbers as nested arrays, or a single number if there are no dimensions.
fn numbers(out: &mut Vec<u8>, dtype: DataType, size: usize, dims: &[usize], data: &[u8]) -> Result<(), String> {
    match dims {
        [] => {
            let begin = out.len();
            json_elements::write(out, dtype, data)?;
            // Removes the brackets of the array.
            out.pop();
            out.remove(begin);
            Ok(())
        }
        [_] => json_elements::write(out, dtype, data),
        [first, rest @ ..] => {
            let bytes = rest.iter().product::<usize>() * size;
            out.push(b'[');
            for n in 0..*first {
                if n > 0 {
                    out.push(b',');
                }
                numbers(out, dtype, size, rest, data.get(n * bytes..(n + 1) * bytes).unwrap_or_default())?;
            }
            out.push(b']');
            Ok(())
        }
    }
}

/// Writes texts as nested arrays. Bytes that are not UTF-8 are written as `{"b64": …}`.
fn texts(out: &mut Vec<u8>, dims: &[usize], texts: &[&[u8]]) {
    let Some((first, rest)) = dims.split_first() else {
        let bytes = texts.first().copied().unwrap_or_default();
        match std::str::from_utf8(bytes) {
            Ok(text) => _ = serde_json::to_writer(out, text),
            Err(_) => out.extend_from_slice(format!("{{\"b64\":\"{}\"}}", STANDARD.encode(bytes)).as_bytes()),
        }
        return;
    };
    let count = rest.iter().product::<usize>();
    out.push(b'[');
    for n in 0..*first {
        if n > 0 {
            out.push(b',');
        }
        self::texts(out, rest, texts.get(n * count..(n + 1) * count).unwrap_or_default());
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use sequor_core::Shape;

    use super::*;

    fn named_tensor(name: &str, shape: &[u64], values: &[f32]) -> NamedTensor {
        let data: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let tensor = Tensor { dtype: DataType::Fp32, shape: Shape::new(shape), data: data.into() };
        NamedTensor { name: name.to_owned(), tensor }
    }

    fn written(outputs: Vec<NamedTensor>, layout: BodyLayout, id: AnswerId) -> Result<String, Status> {
        let (model, parameters) = ("m".to_owned(), Vec::new());
        let answer = InferAnswer { model, version: 1, id: String::new(), outputs, parameters, held: None };
        write(&answer, layout, id).map(|body| String::from_utf8(body.to_vec()).expect("JSON"))
    }

    #[test]
    fn answers_are_laid_out_as_their_requests() {
        let y = || named_tensor("y", &[2, 2], &[1.0, 2.0, 3.0, 4.5]);
        let z = || named_tensor("z", &[2], &[7.0, 8.0]);
        let rows = [
            (vec![y()], BodyLayout::Column, AnswerId::None, r#"{"outputs":[[1.0,2.0],[3.0,4.5]]}"#),
            (
                vec![y(), z()],
                BodyLayout::Column,
                AnswerId::None,
                r#"{"outputs":{"y":[[1.0,2.0],[3.0,4.5]],"z":[7.0,8.0]}}"#,
            ),
            (vec![y()], BodyLayout::Row, AnswerId::None, r#"{"predictions":[[1.0,2.0],[3.0,4.5]]}"#),
            (
                vec![y(), z()],
                BodyLayout::Row,
                AnswerId::None,
                r#"{"predictions":[{"y":[1.0,2.0],"z":7.0},{"y":[3.0,4.5],"z":8.0}]}"#,
            ),
            (
                vec![named_tensor("y", &[1, 1], &[1.0])],
                BodyLayout::Column,
                AnswerId::Given(10),
                r#"{"outputs":{"y":[[1.0]],"sequence_id":[10]}}"#,
            ),
            (
                vec![named_tensor("y", &[1, 1], &[1.0])],
                BodyLayout::Row,
                AnswerId::Given(10),
                r#"{"predictions":[{"y":[1.0],"sequence_id":10}]}"#,
            ),
        ];
        for (outputs, layout, id, want) in rows {
            assert_eq!(written(outputs, layout, id), Ok(want.to_owned()));
        }
        for (layout, want) in [
            (BodyLayout::Row, r#"{"predictions":[{"sequence_id":10}]}"#),
            (BodyLayout::Column, r#"{"outputs":{"sequence_id":[10]}}"#),
        ] {
            assert_eq!(written(Vec::new(), layout, AnswerId::Given(10)), Ok(want.to_owned()));
        }
        let other = named_tensor("other", &[3], &[1.0, 2.0, 3.0]);
        // Only the run shows that these outputs have no common batch size.
        let refused = written(vec![z(), other], BodyLayout::Row, AnswerId::None).expect_err("no rows");
        assert_eq!(refused.reason, crate::api::refusal::ANSWER_UNSENT);
        assert!(refused.message.contains("the request has run"), "{}", refused.message);
    }

    #[test]
    fn bytes_that_are_no_text_are_base64() {
        let data = Bytes::from_static(b"\x02\0\0\0ab\x01\0\0\0\xff");
        let tensor = Tensor { dtype: DataType::Bytes, shape: Shape::new(&[2, 1]), data };
        let texts = NamedTensor { name: "t".to_owned(), tensor };
        let want = r#"{"outputs":[["ab"],[{"b64":"/w=="}]]}"#;
        assert_eq!(written(vec![texts], BodyLayout::Column, AnswerId::None), Ok(want.to_owned()));
    }
}
