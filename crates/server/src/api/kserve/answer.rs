//! Encodes answers as HTTP bodies: JSON, followed by the outputs that the client wants in binary form.

use bytes::Bytes;
use sequor_core::DataType;
use serde_json::{Value, json};

use super::response_format::ResponseFormat;
use crate::api::order::{INLINE_BYTES, off_task};
use crate::api::refusal::{BAD_INPUT, unsent};
use crate::api::{Code, Status, json_elements, triton};
use crate::model::{InferAnswer, Metadata, NamedTensor, Parameter, TensorMetadata};

/// An encoded body. If bytes follow its JSON, `json_length` is the length of the JSON.
#[derive(Debug)]
pub(crate) struct EncodedBody {
    pub(crate) bytes: Bytes,
    pub(crate) json_length: Option<usize>,
}

/// Refuses a request whose answer could not be written, before the model runs.
pub(crate) fn check(metadata: &Metadata, wanted: &[String], form: &ResponseFormat) -> Result<(), Status> {
    let is_wanted = |name: &String| wanted.is_empty() || wanted.contains(name);
    let half = |output: &&TensorMetadata| matches!(output.dtype, DataType::Fp16 | DataType::Bf16);
    let mut outputs = metadata.outputs.iter().filter(half);
    match outputs
        .find(|output| is_wanted(&output.name) && form.is_plain(&output.name) && !form.wants_bytes(&output.name))
    {
        None => Ok(()),
        Some(TensorMetadata { name, dtype, .. }) => {
            let text = format!(
                "sending {dtype} data via JSON is not supported. Please use the binary data format for output '{name}'"
            );
            Err(Status::new(Code::InvalidArgument, "bad_input", text))
        }
    }
}

/// Bytes that can be copied in the time that one byte takes to be written as JSON.
const COPIED_FOR_ONE: usize = 16;

/// Whether writing an answer takes too long for a connection's task. Bytes that follow the JSON are only copied.
pub(crate) fn is_long(answer: &InferAnswer, form: &ResponseFormat) -> bool {
    let work = |output: &NamedTensor| match form.is_plain(&output.name) && form.wants_bytes(&output.name) {
        true => output.tensor.data.len() / COPIED_FOR_ONE,
        false => output.tensor.data.len(),
    };
    answer.outputs.iter().map(work).sum::<usize>() > INLINE_BYTES
}

/// Writes an answer. A large one is written on another thread.
pub(crate) async fn write_in_time(answer: InferAnswer, form: ResponseFormat) -> Result<EncodedBody, Status> {
    let is_long = is_long(&answer, &form);
    off_task(is_long, move || write(answer, &form)).await.map_err(|failure| unsent(triton::status(&failure)))?
}

pub(crate) fn write(answer: InferAnswer, form: &ResponseFormat) -> Result<EncodedBody, Status> {
    write_body(answer, form).map_err(unsent)
}

fn write_body(answer: InferAnswer, form: &ResponseFormat) -> Result<EncodedBody, Status> {
    let mut out = Vec::with_capacity(256 + answer.outputs.iter().map(|o| o.tensor.data.len() * 3).sum::<usize>());
    out.push(b'{');
    if !answer.id.is_empty() {
        member(&mut out, "id", &answer.id.into());
        out.push(b',');
    }
    member(&mut out, "model_name", &answer.model.into());
    out.push(b',');
    member(&mut out, "model_version", &answer.version.to_string().into());
    if !answer.parameters.is_empty() {
        out.push(b',');
        member(&mut out, "parameters", &answer.parameters.into_iter().map(|(k, v)| (k, parameter(v))).collect());
    }
    out.extend_from_slice(b",\"outputs\":[");
    let mut blobs = Vec::new();
    for (i, output) in answer.outputs.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        blobs.extend(write_output(&mut out, output, form)?);
    }
    out.extend_from_slice(b"]}");
    let json_length = (!blobs.is_empty()).then_some(out.len());
    for blob in blobs {
        out.extend_from_slice(&blob);
    }
    Ok(EncodedBody { bytes: out.into(), json_length })
}

/// Writes an output. Returns its data if it must follow the JSON as bytes.
fn write_output(out: &mut Vec<u8>, output: NamedTensor, form: &ResponseFormat) -> Result<Option<Bytes>, Status> {
    let (NamedTensor { name, tensor }, window) = form.place_output(output)?;
    let as_bytes = form.wants_bytes(&name);
    out.push(b'{');
    member(out, "name", &name.as_str().into());
    out.push(b',');
    member(out, "datatype", &tensor.dtype.name().into());
    out.push(b',');
    member(out, "shape", &tensor.shape.0.into());
    if window.is_some() {
        // The output names no region: Triton's C++ client takes any parameters as those of binary data.
        out.push(b'}');
        return Ok(None);
    }
    out.push(b',');
    if as_bytes {
        member(out, "parameters", &json!({ "binary_data_size": tensor.data.len() }));
    } else {
        out.extend_from_slice(b"\"data\":");
        json_elements::write(out, tensor.dtype, &tensor.data).map_err(|why| {
            let text = format!("output '{name}' cannot be sent as JSON: {why}. Please use the binary data format");
            // A fault of the request, because the client could have asked for the binary form.
            Status::new(Code::InvalidArgument, BAD_INPUT, text)
        })?;
    }
    out.push(b'}');
    Ok(as_bytes.then_some(tensor.data))
}

/// Writing to a `Vec` cannot fail.
pub(super) fn member(out: &mut Vec<u8>, key: &str, value: &Value) {
    let _ = serde_json::to_writer(&mut *out, key);
    out.push(b':');
    let _ = serde_json::to_writer(out, value);
}

pub(super) fn parameter(value: Parameter) -> Value {
    match value {
        Parameter::Bool(b) => b.into(),
        Parameter::Int(n) => n.into(),
        Parameter::Uint(n) => n.into(),
        Parameter::Double(x) => x.into(),
        Parameter::Text(text) => text.into(),
    }
}

pub(crate) fn metadata(metadata: &Metadata) -> Value {
    let tensor = |t: &TensorMetadata| json!({ "name": t.name, "datatype": t.dtype.name(), "shape": t.dims.to_wire() });
    json!({
        "name": metadata.name,
        "versions": metadata.versions.iter().map(u64::to_string).collect::<Vec<_>>(),
        "platform": metadata.platform,
        "inputs": metadata.inputs.iter().map(tensor).collect::<Vec<_>>(),
        "outputs": metadata.outputs.iter().map(tensor).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use sequor_core::{Dims, Shape};

    use super::*;
    use crate::api::ServerLimits;
    use crate::api::kserve::json::JsonRequestHead;
    use crate::api::kserve::model_inputs::AnyInputs;
    use crate::api::kserve::shared_memory::Regions;
    use crate::api::order::run_and_see_if_inline;
    use crate::api::queued::QueuedBytesPermit;
    use crate::api::refusal::ANSWER_UNSENT;
    use crate::config::server::settings::SharedMemory;
    use crate::model::Tensor;

    fn answer() -> InferAnswer {
        let named = |name: &str, dtype, data: Vec<u8>| {
            let tensor = Tensor { dtype, shape: Shape::new(&[1, 1]), data: data.into() };
            NamedTensor { name: name.to_owned(), tensor }
        };
        InferAnswer {
            model: "acc".to_owned(),
            version: 1,
            id: "r-1".to_owned(),
            outputs: vec![
                named("y", DataType::Fp32, 0.1f32.to_le_bytes().to_vec()),
                named("z", DataType::Fp16, vec![1, 2]),
            ],
            parameters: vec![("n".to_owned(), Parameter::Int(-3))],
            held: None,
        }
    }

    /// Asks for all outputs but `text` in binary form, as a client would.
    fn bytes_but(text: &str) -> ResponseFormat {
        let request = format!(
            r#"{{"parameters":{{"binary_data_output":true}},"inputs":[],
                "outputs":[{{"name":"{text}","parameters":{{"binary_data":false}}}}]}}"#
        );
        let regions = Regions::new(0, SharedMemory::On);
        let head = JsonRequestHead {
            model: "m",
            version: "",
            sequence: None,
            json_length: None,
            regions: &regions,
            inputs: &AnyInputs,
            limits: &ServerLimits::default(),
        };
        crate::api::kserve::json::infer(head, &request.into(), &mut QueuedBytesPermit::unlimited())
            .expect("a request")
            .1
    }

    #[test]
    fn output_tensors_are_written_as_json_or_as_bytes_after_the_json() {
        let body = write(answer(), &bytes_but("y")).expect("a body");
        let length = body.json_length.expect("bytes follow");
        let said = std::str::from_utf8(&body.bytes[..length]).expect("UTF-8");
        let want = concat!(
            r#"{"id":"r-1","model_name":"acc","model_version":"1","parameters":{"n":-3},"outputs":["#,
            r#"{"name":"y","datatype":"FP32","shape":[1,1],"data":[0.1]},"#,
            r#"{"name":"z","datatype":"FP16","shape":[1,1],"parameters":{"binary_data_size":2}}]}"#
        );
        assert_eq!((said, &body.bytes[length..]), (want, [1u8, 2].as_slice()));
    }

    #[test]
    fn large_answers_are_written_on_another_thread() {
        let answer = |bytes: usize| {
            let tensor =
                Tensor { dtype: DataType::Uint8, shape: Shape::new(&[1, bytes as u64]), data: vec![7; bytes].into() };
            InferAnswer { outputs: vec![NamedTensor { name: "y".to_owned(), tensor }], ..answer() }
        };
        let is_here = |bytes: usize, form: ResponseFormat| {
            let (body, is_here) = run_and_see_if_inline(write_in_time(answer(bytes), form));
            assert!(body.expect("a body").bytes.len() > bytes);
            is_here
        };
        assert!(is_here(INLINE_BYTES, ResponseFormat::default()));
        assert!(!is_here(INLINE_BYTES + 1, ResponseFormat::default()));
        // Bytes that follow the JSON are only copied.
        assert!(is_here(INLINE_BYTES * COPIED_FOR_ONE, bytes_but("x")));
        assert!(!is_here((INLINE_BYTES + 1) * COPIED_FOR_ONE, bytes_but("x")));
    }

    #[test]
    fn without_bytes_there_is_no_length_of_the_json() {
        let mut answer = answer();
        answer.outputs.pop();
        assert_eq!(write(answer, &ResponseFormat::default()).expect("a body").json_length, None);
    }

    #[test]
    fn an_answer_that_cannot_be_written_reports_that_its_request_has_run() {
        let text =
            Tensor { dtype: DataType::Bytes, shape: Shape::new(&[1]), data: b"\x01\0\0\0\xff".as_slice().into() };
        let outputs = vec![NamedTensor { name: "t".to_owned(), tensor: text }];
        let refused = write(InferAnswer { outputs, ..answer() }, &ResponseFormat::default()).expect_err("no text");
        assert_eq!((refused.code, refused.reason), (Code::InvalidArgument, ANSWER_UNSENT));
        assert!(refused.message.starts_with("output 't' cannot be sent as JSON"), "{}", refused.message);
        assert!(refused.message.contains("the request has run"), "{}", refused.message);
    }

    #[test]
    fn half_floats_are_refused_before_they_are_computed() {
        let half = TensorMetadata { name: "z".to_owned(), dtype: DataType::Fp16, dims: Dims::from_wire(&[1]) };
        let of = Metadata {
            name: "m".to_owned(),
            versions: vec![],
            platform: String::new(),
            inputs: vec![],
            outputs: vec![half],
        };
        let said = check(&of, &[], &ResponseFormat::default()).expect_err("refused").message;
        assert_eq!(
            said,
            "sending FP16 data via JSON is not supported. Please use the binary data format for output 'z'"
        );
        assert_eq!(check(&of, &["y".to_owned()], &ResponseFormat::default()), Ok(()));
        assert_eq!(check(&of, &[], &bytes_but("y")), Ok(()));
    }
}
