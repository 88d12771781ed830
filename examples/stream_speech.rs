//! Speech through the voice activity model, chunk by chunk as it would come from a microphone: `cargo run --example stream_speech [ADDRESS [SOUND.wav]]`.
//! The client keeps nothing but its place in the sound; what the model remembers stays in the server.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use sequor_proto::{InferParameter, ModelInferRequest};

/// New samples that a request brings.
const CHUNK: usize = 512;
/// Samples of the chunk before that a request repeats.
const CONTEXT: usize = 64;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8001".to_owned());
    let path = arguments.next().unwrap_or_else(|| "models/vad/samples/speech.wav".to_owned());

    let sound = read_wav(&fs_err::read(path)?)?;
    let requests = requests(&sound, 7);
    let mut client = GrpcInferenceServiceClient::connect(format!("http://{address}")).await?;
    for request in requests {
        let chunk = request.id.clone();
        let answer = client.model_infer(request).await?.into_inner();
        let raw = answer.raw_output_contents.first().context("an answer without an output")?;
        let probability = f32::from_le_bytes(raw.as_ref().try_into().context("not one FP32 number")?);
        println!("chunk {chunk:>4}  {probability:.3}");
    }
    Ok(())
}

/// One request a chunk: the first starts the sequence, the last ends it.
fn requests(sound: &[f32], sequence: i64) -> Vec<ModelInferRequest> {
    let mut padded = vec![0.0; CONTEXT];
    padded.extend_from_slice(sound);
    let chunks: Vec<&[f32]> = padded.windows(CONTEXT + CHUNK).step_by(CHUNK).collect();
    let request = |(step, chunk): (usize, &&[f32])| ModelInferRequest {
        model_name: "vad".to_owned(),
        id: step.to_string(),
        parameters: BTreeMap::from([
            parameter("sequence_id", ParameterChoice::Int64Param(sequence)),
            parameter("sequence_start", ParameterChoice::BoolParam(step == 0)),
            parameter("sequence_end", ParameterChoice::BoolParam(step + 1 == chunks.len())),
        ]),
        inputs: vec![InferInputTensor {
            name: "input".to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![1, (CONTEXT + CHUNK) as i64],
            ..InferInputTensor::default()
        }],
        raw_input_contents: vec![chunk.iter().flat_map(|sample| sample.to_le_bytes()).collect()],
        ..ModelInferRequest::default()
    };
    chunks.iter().enumerate().map(request).collect()
}

fn parameter(name: &str, value: ParameterChoice) -> (String, InferParameter) {
    (name.to_owned(), InferParameter { parameter_choice: Some(value) })
}

/// The samples of a plain 16 kHz, 16 bit, mono sound, in -1..1.
fn read_wav(file: &[u8]) -> Result<Vec<f32>> {
    let (header, data) = file.split_at_checked(44).context("too short for a sound")?;
    // "fmt ", its size 16, PCM, one channel, 16,000 a second
    if header.get(12..28) != Some(b"fmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0".as_slice()) {
        bail!("not a 16 kHz, 16 bit, mono sound");
    }
    let (samples, _) = data.as_chunks::<2>();
    Ok(samples.iter().map(|&sample| f32::from(i16::from_le_bytes(sample)) / 32768.0).collect())
}
