//! `sequor replay`: runs the steps of a captured sequence again, with the model on this machine, and compares the outputs bit for bit.

use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command, value_parser};
use sequor_core::{Dialect, Id};
use serde::Serialize;

use super::{Failed, launch, settings, stdout};
use crate::api::triton;
use crate::config::model::versions;
use crate::config::server::GivenFlags;
use crate::error::Failure;
use crate::model::{Availability, InferRequest, ModelHandle, NamedTensor, Repository, SequenceStep};
use crate::state::{Capture, CapturedStep};
use crate::telemetry::Metrics;

/// Maximum differences to print.
const SHOWN: usize = 10;

pub(super) fn command() -> Command {
    let capture = Arg::new("capture")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .required(true)
        .help("A file that `sequor sequence capture` has written");
    let folder = Arg::new("folder")
        .value_name("DIR")
        .value_parser(value_parser!(PathBuf))
        .required_unless_present("model")
        .help("Directory of the model, with the files that the server had, or a repository with the model");
    let model = Arg::new("model")
        .long("model")
        .value_name("DIR")
        .value_parser(value_parser!(PathBuf))
        .conflicts_with("folder")
        .help("The same as DIR");
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .help("A server's settings file: runtime, limits, plug-ins");
    let output = Arg::new("output")
        .long("output")
        .value_name("FORM")
        .default_value("table")
        .value_parser(PossibleValuesParser::new(["table", "json"]))
        .help("Output format");
    Command::new("replay")
        .about("Run a captured sequence again and compare its outputs bit for bit")
        .after_help("Exit: 0 all outputs are equal, 1 an output differs, 3 the model is not the captured one.")
        .args([capture, folder, model, config, output])
}

/// The result of a replay.
#[derive(Debug, Default, Serialize)]
struct Replayed {
    model: String,
    version: String,
    /// The last step before the captured state.
    step: String,
    steps: usize,
    equal: usize,
    differences: Vec<Difference>,
}

/// An output that differs from the captured one.
#[derive(Debug, PartialEq, Serialize)]
struct Difference {
    step: u64,
    output: String,
    /// The first byte that differs; `None` if types or shapes do, or if the captured step was refused.
    byte: Option<usize>,
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let path = |name: &str| matches.get_one::<PathBuf>(name).cloned().unwrap_or_default();
    let (file, given_folder) = (path("capture"), path(if matches.contains_id("model") { "model" } else { "folder" }));
    let failed = |e: &dyn std::fmt::Display| Failed::Failed(format!("{}: {e}", file.display()));
    let snapshot = fs_err::read(&file).map_err(|e| Failed::Failed(e.to_string()))?;
    let capture = Capture::parse(&snapshot).map_err(|e| failed(&e))?;
    let given = GivenFlags::of_file(matches.get_one::<String>("config").cloned());
    let settings = settings::load(&given)?;
    let library = launch::find_runtime(&settings.runtime.onnxruntime)?;
    let repository = launch::trial(&library, &settings, &Metrics::new(false), false)?;
    let folder = model_folder(given_folder, capture.note("sequor.model"));
    let replayed = replay(&repository, &folder, &snapshot, &capture);
    repository.stop();
    let replayed = replayed?;
    match matches.get_one::<String>("output").map(String::as_str) {
        Some("json") => {
            stdout::line(format_args!("{}", serde_json::to_string_pretty(&replayed).unwrap_or_default()))?;
        }
        _ => stdout::text(format_args!("{}", table(&replayed)))?,
    }
    match replayed.steps - replayed.equal {
        0 => Ok(()),
        differ => Err(Failed::Failed(format!("{differ} of {} steps differ", replayed.steps))),
    }
}

fn replay(repository: &Repository, folder: &Path, snapshot: &[u8], capture: &Capture) -> Result<Replayed, Failed> {
    let (model, version) = (capture.note("sequor.model"), capture.note("sequor.version"));
    let served = served(repository, folder, (model, version))?;
    let digest = served.digest().map_err(|e| Failed::Configuration(e.to_string()))?;
    if digest != capture.digest {
        let at = folder.join(version);
        let what = format!(
            "the files in {} are not those of the capture: their SHA-256 is {digest}, that of the capture {}",
            at.display(),
            capture.digest
        );
        return Err(Failed::Configuration(what));
    }
    served.import(capture.id.clone(), snapshot).map_err(|e| Failed::Failed(e.to_string()))?;
    let sockets = launch::sockets()?;
    let mut replayed = Replayed {
        model: model.to_owned(),
        version: version.to_owned(),
        step: capture.note("sequor.step").to_owned(),
        steps: capture.steps.len(),
        ..Replayed::default()
    };
    for step in &capture.steps {
        let request = request(step, &capture.id, (model, version));
        let answer = served.submit(request).map_err(|e| failed_step(step, &e))?;
        let differences = match sockets.block_on(answer) {
            Ok(answer) => differences(step, &answer.outputs),
            Err(_) if step.refused => Vec::new(),
            Err(e) => return Err(failed_step(step, &e)),
        };
        replayed.equal += usize::from(differences.is_empty());
        replayed.differences.extend(differences);
    }
    Ok(replayed)
}

fn failed_step(step: &CapturedStep, failure: &Failure) -> Failed {
    Failed::Failed(format!("step {} is not answered: {}", step.number, triton::status(failure).message))
}

/// The directory of the model: the given one, or the one of this name in a repository.
fn model_folder(given: PathBuf, model: &str) -> PathBuf {
    let inner = given.join(model);
    let is_model = !model.is_empty() && !versions::is_model_directory(&given) && versions::is_model_directory(&inner);
    if is_model { inner } else { given }
}

/// Loads the captured version of the model from this directory.
fn served(repository: &Repository, folder: &Path, (model, version): (&str, &str)) -> Result<ModelHandle, Failed> {
    let wrong = |what: String| Failed::Configuration(format!("{}: {what}", folder.display()));
    let root = fs_err::canonicalize(folder).map_err(|e| Failed::Configuration(e.to_string()))?;
    if root.file_name().is_none_or(|name| name.to_string_lossy() != model) {
        return Err(wrong(format!("the capture is of model '{model}', and a model has the name of its directory")));
    }
    repository.load(&root);
    for status in repository.statuses() {
        if let Availability::Failed(faults) = status.availability {
            let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
            return Err(wrong(lines.join("\n")));
        }
    }
    repository.find(model, version).map_err(|e| wrong(triton::status(&e).message))
}

fn request(step: &CapturedStep, id: &Id, (model, version): (&str, &str)) -> InferRequest {
    InferRequest {
        model: model.to_owned(),
        version: version.to_owned(),
        id: String::new(),
        sequence: SequenceStep { id: id.clone(), start: step.start, end: step.end, ..SequenceStep::default() },
        priority: 0,
        timeout: None,
        inputs: step.inputs.clone(),
        outputs: Vec::new(),
        parameters: Vec::new(),
        dialect: Dialect::TRITON,
    }
}

/// The outputs that differ from the captured ones.
fn differences(step: &CapturedStep, outputs: &[NamedTensor]) -> Vec<Difference> {
    let difference = |captured: &NamedTensor| {
        let difference = |byte| Some(Difference { step: step.number, output: captured.name.clone(), byte });
        let Some(now) = outputs.iter().find(|output| output.name == captured.name) else { return difference(None) };
        let (now, then) = (&now.tensor, &captured.tensor);
        if (now.dtype, &now.shape, now.data.len()) != (then.dtype, &then.shape, then.data.len()) {
            return difference(None);
        }
        let byte = now.data.iter().zip(&then.data).position(|(now, then)| now != then)?;
        difference(Some(byte))
    };
    if step.refused {
        // The captured step was refused, but the replay answers it.
        let now =
            outputs.iter().map(|output| Difference { step: step.number, output: output.name.clone(), byte: None });
        return now.collect();
    }
    step.outputs.iter().filter_map(difference).collect()
}

fn table(replayed: &Replayed) -> String {
    let Replayed { model, version, step, steps, equal, differences } = replayed;
    let mut text = format!("{model} {version}: {steps} steps from step {step} on\n");
    for Difference { step, output, byte } in differences.iter().take(SHOWN) {
        text += &match byte {
            Some(byte) => format!("step {step}: output \"{output}\" differs from byte {byte} on\n"),
            None => format!("step {step}: output \"{output}\" has another type or shape, or is not in both\n"),
        };
    }
    if differences.len() > SHOWN {
        text += &format!("and {} more differences\n", differences.len() - SHOWN);
    }
    text + &format!("{equal} of {steps} steps are equal, bit for bit\n")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sequor_core::{DataType, Shape};

    use super::*;
    use crate::model::Tensor;

    fn output(name: &str, data: &'static [u8]) -> NamedTensor {
        let tensor = Tensor { dtype: DataType::Uint8, shape: Shape::new(&[2]), data: Bytes::from_static(data) };
        NamedTensor { name: name.to_owned(), tensor }
    }

    #[test]
    fn every_captured_output_is_compared_to_its_last_byte() {
        let outputs = vec![output("A", b"ab"), output("B", b"ab")];
        let step = CapturedStep { number: 4, start: false, end: false, refused: false, inputs: Vec::new(), outputs };
        assert_eq!(differences(&step, &[output("B", b"ab"), output("A", b"ab")]), []);
        let other = |output: &str, byte| Difference { step: 4, output: output.to_owned(), byte };
        assert_eq!(
            differences(&step, &[output("A", b"ac"), output("C", b"ab")]),
            [other("A", Some(1)), other("B", None)]
        );
        let refused = CapturedStep { refused: true, outputs: Vec::new(), ..step };
        assert_eq!(differences(&refused, &[output("A", b"ab")]), [other("A", None)]);
        let differs = Replayed { steps: 1, differences: vec![other("A", Some(1))], ..Replayed::default() };
        assert!(table(&differs).ends_with("differs from byte 1 on\n0 of 1 steps are equal, bit for bit\n"));
    }
}
