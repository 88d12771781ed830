//! The second act of the demo: raw PCM as input, lines of text as output. Two processors of the demo's model cut packets into windows, and
//! turn probabilities into segments of speech.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use bytes::Bytes;
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use sequor_proto::{InferParameter, ModelInferRequest};
use tonic::transport::Channel;

use crate::cli::{Failed, audio};
use crate::tensor::rows::BytesElements;

/// Built from the guests in `plugins/guests`. A test compares them with the sources.
const COMPONENTS: [(&str, &[u8]); 2] =
    [("pcm-window", include_bytes!("pcm-window.wasm")), ("speech-segments", include_bytes!("speech-segments.wasm"))];
/// Appended to the model's settings. Clients talk to the first processor. The demo does not show the time of calls, so the limits are large
/// enough for a busy machine.
const PROCESSORS: &str = "
[sequence]
end_without_inputs = true

[[plugins.processor]]
use = \"speech-segments\"
time = \"10s\"

[[plugins.processor]]
use = \"pcm-window\"
time = \"10s\"
";
/// Samples of a packet: 20 ms.
const PACKET: usize = 320;
/// Seconds of a window.
const WINDOW: f64 = 0.032;

/// Writes the components, and a model that uses them, with the graph, the configuration and the settings of the first act.
pub(super) fn write(folder: &Path, graph: &[u8], config: &str, settings: &str) -> std::io::Result<()> {
    for (name, component) in COMPONENTS {
        fs_err::write(folder.join(format!("{name}.wasm")), component)?;
    }
    let model = folder.join("speech");
    fs_err::create_dir_all(model.join("1"))?;
    fs_err::write(model.join("1/model.onnx"), graph)?;
    fs_err::write(model.join("config.pbtxt"), config.replace("\"vad\"", "\"speech\""))?;
    fs_err::write(model.join("sequor.toml"), format!("{settings}{PROCESSORS}"))
}

/// Streams a sound in packets of 20 ms, and returns the lines of the answers.
pub(super) async fn segments(channel: Channel, wav: &[u8]) -> Result<Vec<String>, Failed> {
    let mut client = GrpcInferenceServiceClient::new(channel);
    let samples = audio::samples("speech.wav", wav)?;
    let packets = samples.chunks(PACKET).map(Some).chain([None]);
    let mut lines = Vec::new();
    for (n, packet) in packets.enumerate() {
        let answer = client.model_infer(request(packet, n == 0)).await;
        let answer = answer.map_err(|status| Failed::Failed(format!("packet {n}: {}", status.message())))?;
        for raw in answer.into_inner().raw_output_contents {
            lines.extend(BytesElements(&raw).map(|line| String::from_utf8_lossy(line).into_owned()));
        }
    }
    Ok(lines)
}

/// A request with a packet, or the END without one.
fn request(packet: Option<&[i16]>, is_start: bool) -> ModelInferRequest {
    let parameter = |choice| InferParameter { parameter_choice: Some(choice) };
    let flags = [("sequence_start", is_start), ("sequence_end", packet.is_none())];
    let flags = flags.map(|(name, is)| (name.to_owned(), parameter(ParameterChoice::BoolParam(is))));
    let id = ("sequence_id".to_owned(), parameter(ParameterChoice::Int64Param(1)));
    let input = |samples: &[i16]| InferInputTensor {
        name: "AUDIO".to_owned(),
        datatype: "INT16".to_owned(),
        shape: vec![i64::try_from(samples.len()).unwrap_or(i64::MAX)],
        ..InferInputTensor::default()
    };
    let raw = |samples: &[i16]| Bytes::from(samples.iter().flat_map(|s| s.to_le_bytes()).collect::<Vec<u8>>());
    ModelInferRequest {
        model_name: "speech".to_owned(),
        parameters: flags.into_iter().chain([id]).collect::<BTreeMap<_, _>>(),
        inputs: packet.map(input).into_iter().collect(),
        raw_input_contents: packet.map(raw).into_iter().collect(),
        ..ModelInferRequest::default()
    }
}

/// The expected segments for these probabilities, one per window. A value of 0.5 begins a segment, and 100 ms below 0.35 end it.
pub(super) fn expected(probabilities: &[f32]) -> Vec<String> {
    let line = |from: usize, to: usize| format!("{:.2} s to {:.2} s", from as f64 * WINDOW, to as f64 * WINDOW);
    let (mut lines, mut began, mut pause) = (Vec::new(), None::<usize>, None::<usize>);
    for (n, probability) in probabilities.iter().enumerate() {
        match (began, *probability) {
            (None, p) if p >= 0.5 => began = Some(n),
            (Some(_), p) if p >= 0.5 => pause = None,
            (Some(from), p) if p < 0.35 => {
                let to = *pause.get_or_insert(n);
                if (n + 1 - to) as f64 * WINDOW >= 0.1 {
                    lines.push(line(from, to));
                    (began, pause) = (None, None);
                }
            }
            _ => {}
        }
    }
    lines.extend(began.map(|from| line(from, probabilities.len())));
    lines
}

/// The text of the second act, and whether its segments are correct.
pub(super) fn verdict(heard: &[String], probabilities: &[f32]) -> (String, bool) {
    let good = !heard.is_empty() && heard == expected(probabilities);
    let mut text =
        "\n\nraw PCM in packets of 20 ms, through the processors pcm-window and speech-segments:\n".to_owned();
    for line in heard {
        let _ = writeln!(text, "    speech from {line}");
    }
    let (equals, end) = if good { ("equal to", "OK") } else { ("NOT equal to", "FAILED") };
    let _ = write!(text, "{} segments; {equals} those of the probabilities above       {end}", heard.len());
    (text, good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_four_windows_ends_a_segment() {
        let p = [0.1, 0.6, 0.1, 0.1, 0.1, 0.9, 0.4, 0.1, 0.1, 0.1, 0.1, 0.7];
        assert_eq!(expected(&p), ["0.03 s to 0.22 s", "0.35 s to 0.38 s"]);
        assert_eq!(expected(&[0.1]), Vec::<String>::new());
    }
}
