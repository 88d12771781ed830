//! `sequor demo`: real speech and noise through a real model on a private server, compared with ONNX Runtime on the whole file. Then raw
//! PCM through processors in front of the same model ([`pcm`]).

mod pcm;

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::{ArgMatches, Command};
use sequor_core::{DataType, Shape};
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use sequor_proto::{InferParameter, ModelInferRequest};
use tonic::transport::Channel;

use super::settings::ProcessSettings;
use super::{Failed, audio, chart, host, launch, stdout};
use crate::backend::onnx::OnnxBackend;
use crate::backend::{Backend, Feed, Fetch, LoadOptions};
use crate::config::server::{self, GivenFlags};
use crate::device::{DeviceError, MemorySpan, Pool, Pooled};
use crate::model::Availability;
use crate::server::Stop;
use crate::telemetry::Metrics;

/// The model and the sounds are embedded, so the demo needs no folder.
const MODEL: &[u8] = include_bytes!("../../models/vad/1/model.onnx");
const CONFIG: &str = include_str!("../../models/vad/config.pbtxt");
const SEQUOR: &str = include_str!("../../models/vad/sequor.toml");
const SPEECH: &[u8] = include_bytes!("../../models/vad/samples/speech.wav");
const NOISE: &[u8] = include_bytes!("../../models/vad/samples/noise.wav");

/// Number of concurrent clients. Each has two sequences, one of speech and one of noise.
const CLIENTS: u64 = 4;

pub(super) fn command() -> Command {
    Command::new("demo")
        .about("Start a server with a speech model, stream speech and noise to it, and verify every answer")
}

/// A sound, cut into the model's chunks.
struct Sound {
    name: &'static str,
    chunks: Vec<Vec<f32>>,
    seconds: f64,
}

/// The answers of one sequence, and the time of each step.
struct DemoResult {
    speech: bool,
    probabilities: Vec<f32>,
    waits: Vec<Duration>,
}

pub(super) fn run(_: &ArgMatches) -> Result<(), Failed> {
    let sounds = [sound("speech.wav", SPEECH)?, sound("noise.wav", NOISE)?];
    let folder = tempfile::tempdir().map_err(|e| Failed::Failed(format!("no temporary folder: {e}")))?;
    write_model(folder.path())
        .and_then(|()| pcm::write(folder.path(), MODEL, CONFIG, SEQUOR))
        .map_err(|e| Failed::Failed(e.to_string()))?;
    let library = launch::find_runtime(Path::new(""))?;
    let settings = server::load(None, &|name| quiet(name, folder.path()), &GivenFlags::default(), &host::info())
        .map_err(|_| Failed::Failed("the demo's own settings do not hold".to_owned()))?;
    let process = ProcessSettings::before_start(&GivenFlags::default());
    process.check_descriptors(&settings)?;
    let settings = process.fit(settings);
    let metrics = Metrics::new(false);
    let (heard, batch, lines) = launch::sockets()?.block_on(async {
        let listeners = launch::bind(&settings)?;
        let (stop, stopped) = tokio::sync::mpsc::channel(1);
        let repository = launch::repository(&library, &settings, &metrics)?;
        let options = launch::server_options(&settings, &library, &repository)?;
        let running = crate::server::start(listeners, options, repository.clone(), metrics.clone(), stopped);
        for model in ["vad", "speech"] {
            repository.load(&folder.path().join(model));
        }
        refuse_broken(&repository)?;
        let port = running.addresses.grpc.map_or(0, |a| a.port());
        let heard = listen(port, &sounds).await?;
        let lines = pcm::segments(connect(port).await?, SPEECH).await?;
        let statistics = metrics.model("vad", 1).statistics();
        let _ = stop.send(Stop::Now).await;
        running.join().await;
        let stopping = repository.clone();
        let _ = tokio::task::spawn_blocking(move || stopping.stop()).await;
        Ok((heard, statistics.inference_count as f64 / statistics.execution_count.max(1) as f64, lines))
    })?;
    let whole = sounds.iter().map(|s| on_the_whole(&library.path, folder.path(), s)).collect::<Result<Vec<_>, _>>()?;
    let (text, good) = verdict(&sounds, &heard, &whole, batch);
    // The last window of a packet stream is completed with silence.
    let padded = Sound {
        chunks: audio::chunks_with_silence(&audio::read("speech.wav", SPEECH)?),
        name: "speech.wav",
        seconds: 0.0,
    };
    let (segments, also_good) = pcm::verdict(&lines, &on_the_whole(&library.path, folder.path(), &padded)?);
    stdout::line(format_args!("{text}{segments}"))?;
    if good && also_good { Ok(()) } else { Err(Failed::Failed("the demo did not come out as it should".to_owned())) }
}

/// The demo's settings: any free port, on this machine only.
fn quiet(name: &str, plugins: &Path) -> Option<String> {
    match name {
        "SEQUOR_HTTP_ADDRESS" | "SEQUOR_GRPC_ADDRESS" => Some("127.0.0.1".to_owned()),
        "SEQUOR_PLUGINS_DIR" => Some(plugins.display().to_string()),
        "SEQUOR_ADMIN_ENABLED" => Some("false".to_owned()),
        "SEQUOR_HTTP_PORT" | "SEQUOR_GRPC_PORT" | "SEQUOR_METRICS_PORT" => Some("0".to_owned()),
        _ => None,
    }
}

fn sound(name: &'static str, wav: &[u8]) -> Result<Sound, Failed> {
    let samples = audio::read(name, wav)?;
    Ok(Sound { name, chunks: audio::chunks(&samples), seconds: samples.len() as f64 / f64::from(audio::RATE) })
}

fn write_model(folder: &Path) -> std::io::Result<()> {
    let model = folder.join("vad");
    fs_err::create_dir_all(model.join("1"))?;
    fs_err::write(model.join("1/model.onnx"), MODEL)?;
    fs_err::write(model.join("config.pbtxt"), CONFIG)?;
    fs_err::write(model.join("sequor.toml"), SEQUOR)
}

fn refuse_broken(repository: &crate::model::Repository) -> Result<(), Failed> {
    for status in repository.statuses() {
        if let Availability::Failed(faults) = status.availability {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            return Err(Failed::Failed(faults.join("; ")));
        }
    }
    Ok(())
}

// === the clients ===

async fn listen(port: u16, sounds: &[Sound; 2]) -> Result<Vec<DemoResult>, Failed> {
    let mut tasks = Vec::new();
    for client in 0..CLIENTS {
        let channel = connect(port).await?;
        for (n, sound) in (0u64..).zip(sounds) {
            let id = client * 2 + n + 1;
            tasks.push(tokio::spawn(stream(channel.clone(), id, n == 0, sound.chunks.clone())));
        }
    }
    let mut heard = Vec::new();
    for task in tasks {
        heard.push(task.await.map_err(|e| Failed::Failed(e.to_string()))??);
    }
    Ok(heard)
}

async fn connect(port: u16) -> Result<Channel, Failed> {
    let channel = Channel::from_shared(format!("http://127.0.0.1:{port}"));
    let channel = channel.map_err(|e| Failed::Failed(e.to_string()))?.connect().await;
    channel.map_err(|e| Failed::Failed(format!("the demo's server does not answer: {e}")))
}

/// Runs one sequence: sends each chunk once the previous one is answered.
async fn stream(channel: Channel, id: u64, speech: bool, chunks: Vec<Vec<f32>>) -> Result<DemoResult, Failed> {
    let mut client = GrpcInferenceServiceClient::new(channel);
    let last = chunks.len().saturating_sub(1);
    let mut heard = DemoResult { speech, probabilities: Vec::new(), waits: Vec::new() };
    for (n, chunk) in chunks.iter().enumerate() {
        let began = Instant::now();
        let answer = client.model_infer(request(id, chunk, n == 0, n == last)).await;
        let answer =
            answer.map_err(|status| Failed::Failed(format!("sequence {id}, step {n}: {}", status.message())))?;
        heard.waits.push(began.elapsed());
        let raw = answer.into_inner().raw_output_contents.first().cloned().unwrap_or_default();
        let value = raw.first_chunk::<4>().map(|b| f32::from_le_bytes(*b));
        heard.probabilities.push(value.ok_or_else(|| Failed::Failed(format!("sequence {id}, step {n}: no answer")))?);
    }
    Ok(heard)
}

fn request(id: u64, chunk: &[f32], start: bool, end: bool) -> ModelInferRequest {
    let parameter = |choice| InferParameter { parameter_choice: Some(choice) };
    let id = parameter(ParameterChoice::Int64Param(i64::try_from(id).unwrap_or(i64::MAX)));
    let flags = [("sequence_start", start), ("sequence_end", end)];
    let flags = flags.map(|(name, is)| (name.to_owned(), parameter(ParameterChoice::BoolParam(is))));
    ModelInferRequest {
        model_name: "vad".to_owned(),
        parameters: flags.into_iter().chain([("sequence_id".to_owned(), id)]).collect(),
        inputs: vec![InferInputTensor {
            name: "input".to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![1, i64::try_from(chunk.len()).unwrap_or(i64::MAX)],
            ..InferInputTensor::default()
        }],
        raw_input_contents: vec![Bytes::from(bytes(chunk))],
        ..ModelInferRequest::default()
    }
}

// === the comparison ===

/// Runs the whole sound through ONNX Runtime directly, and carries the state itself.
fn on_the_whole(library: &Path, folder: &Path, sound: &Sound) -> Result<Vec<f32>, Failed> {
    let failed = |e: crate::backend::BackendError| Failed::Failed(e.to_string());
    let backend = OnnxBackend::new(library).map_err(failed)?;
    let options = LoadOptions::default();
    let graph = backend.load(&folder.join("vad/1/model.onnx"), &options).map_err(failed)?;
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let inputs = names(&["input", "state", "sr"]);
    let mut context = graph.context(&inputs, &names(&["output", "stateN"])).map_err(failed)?;
    let [input, kept, scalar] = [Shape::new(&[1, 576]), Shape::new(&[2, 1, 128]), Shape::new(&[])];
    let pool = Pool::new(1 << 20);
    let rate = aligned(&pool, &i64::from(audio::RATE).to_le_bytes())?;
    let mut state = aligned(&pool, &[0; 1024])?;
    let mut out = Vec::new();
    for chunk in &sound.chunks {
        let chunk = aligned(&pool, &bytes(chunk))?;
        let feeds = [
            Feed { dtype: DataType::Fp32, shape: &input, data: MemorySpan::host(chunk.as_ref()) },
            Feed { dtype: DataType::Fp32, shape: &kept, data: MemorySpan::host(state.as_ref()) },
            Feed { dtype: DataType::Int64, shape: &scalar, data: MemorySpan::host(rate.as_ref()) },
        ];
        let mut fetches = [Fetch::New(None), Fetch::New(None)];
        context.run(&feeds, &mut fetches).map_err(failed)?;
        if let [Fetch::New(Some(output)), Fetch::New(Some(next))] = &fetches {
            out.extend(floats(output.data.as_ref()));
            state = aligned(&pool, next.data.as_ref())?;
        }
    }
    Ok(out)
}

/// Copies values into memory with the alignment that a backend needs.
fn aligned(pool: &Pool, bytes: &[u8]) -> Result<Pooled, Failed> {
    let failed = |e: DeviceError| Failed::Failed(e.to_string());
    let mut memory = pool.take(bytes.len()).map_err(failed)?;
    if let Some(place) = memory.write().map_err(failed)?.as_host_mut() {
        place.copy_from_slice(bytes);
    }
    Ok(memory)
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).filter_map(|b| b.first_chunk::<4>()).map(|b| f32::from_le_bytes(*b)).collect()
}

// === the verdict ===

fn verdict(sounds: &[Sound; 2], heard: &[DemoResult], whole: &[Vec<f32>], batch: f64) -> (String, bool) {
    let of = |speech: bool| heard.iter().filter(move |h| h.speech == speech);
    let best = |h: &DemoResult| h.probabilities.iter().copied().fold(0.0, f32::max);
    let half = |h: &DemoResult| 2 * h.probabilities.iter().filter(|p| **p > 0.5).count() > h.probabilities.len();
    let spoken = of(true).filter(|h| best(h) >= 0.99 && half(h)).count();
    let mistaken = of(false).filter(|h| best(h) > 0.10).count();
    let equal = heard.iter().all(|h| whole.get(usize::from(!h.speech)).is_some_and(|w| same_bits(w, &h.probabilities)));
    let mut waits: Vec<Duration> = heard.iter().flat_map(|h| h.waits.iter().copied()).collect();
    waits.sort_unstable();
    let at = |share: usize| waits.get(waits.len().saturating_sub(1) * share / 100).copied().unwrap_or_default();
    let titles = sounds.iter().map(|s| {
        format!("{}  {} {:.1} s", if s.name.starts_with("speech") { "speech" } else { "noise" }, s.name, s.seconds)
    });
    let curves: Vec<(String, &[f32])> =
        titles.zip([true, false]).map(|(t, s)| (t, of(s).next().map_or(&[][..], |h| &h.probabilities))).collect();
    let millis = |d: Duration| d.as_secs_f64() * 1e3;
    let (all, noisy) = (of(true).count(), of(false).count());
    let good = equal && spoken == all && mistaken == 0 && all > 0;
    let mut text = chart::draw(&curves);
    let _ = writeln!(
        text,
        "\n{} sequences of {CLIENTS} clients, {} steps, {batch:.1} a batch, state never left the server        p50 {:.1} ms  p99 {:.1} ms",
        heard.len(),
        waits.len(),
        millis(at(50)),
        millis(at(99))
    );
    let equals = if equal { "equal to" } else { "NOT equal to" };
    let end = if good { "OK" } else { "FAILED" };
    let _ = write!(
        text,
        "speech found in {spoken} of {all}, in noise {mistaken} of {noisy}; {equals} ONNX Runtime on the whole file, bit for bit       {end}"
    );
    (text, good)
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}
