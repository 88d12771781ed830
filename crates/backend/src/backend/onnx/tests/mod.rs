//! Tests the backend against the real library, on the small models of `tests/models`. If this machine has no library, one is installed.

mod bound;
mod failures;
mod numbers;
mod strings;
mod tuning;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use sequor_core::{DataType, Shape};

use super::context::OnnxContext;
use super::library::{LOCAL, Library, System, find};
use super::{OnnxBackend, OnnxGraph, install, library};
use crate::backend::{BackendError, Context, Feed, Fetch, LoadOptions, Produced};
use crate::config::server::file::RuntimeLogLevel;
use crate::device::{MemorySpan, MemorySpanMut};

/// The library of the repository, or one that the system has. Tests run in the folder of their package, so `find` sees the second alone.
pub(in crate::backend::onnx) fn library() -> &'static Library {
    static FOUND: OnceLock<Library> = OnceLock::new();
    FOUND.get_or_init(|| {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(LOCAL);
        let file = target.join(library::FILE);
        if !file.is_file() {
            if let Ok(found) = find(None, &System) {
                return found;
            }
            install::install(install::Package::Cpu, &target, &mut |_| {}).unwrap();
        }
        find(Some(&file), &System).unwrap()
    })
}

pub(super) fn backend() -> OnnxBackend {
    OnnxBackend::new(&library().path).unwrap()
}

fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models").join(name).with_extension("onnx")
}

fn open(name: &str) -> OnnxGraph {
    backend().open(&model(name), &LoadOptions::default()).unwrap()
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn context(model: &str, inputs: &[&str], outputs: &[&str]) -> OnnxContext {
    open(model).open_context(&names(inputs), &names(outputs)).unwrap()
}

/// Bytes aligned to 64, like those of the staging.
struct Buffer {
    room: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    fn new(bytes: &[u8]) -> Buffer {
        let mut room = vec![0; bytes.len() + 64];
        let start = room.as_ptr().align_offset(64);
        room[start..start + bytes.len()].copy_from_slice(bytes);
        Buffer { room, start, len: bytes.len() }
    }

    fn fp32(values: &[f32]) -> Buffer {
        Buffer::new(&fp32(values))
    }

    fn bytes(&self) -> &[u8] {
        &self.room[self.start..self.start + self.len]
    }

    fn span(&self) -> MemorySpan<'_> {
        MemorySpan::host(self.bytes())
    }

    fn span_mut(&mut self) -> MemorySpanMut<'_> {
        MemorySpanMut::host(&mut self.room[self.start..self.start + self.len])
    }
}

fn fp32(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn feed<'a>(dtype: DataType, shape: &'a Shape, buffer: &'a Buffer) -> Feed<'a> {
    Feed { dtype, shape, data: buffer.span() }
}

/// Runs with all outputs allocated by the runtime.
fn run_new(context: &mut OnnxContext, feeds: &[Feed<'_>], outputs: usize) -> Result<Vec<Produced>, BackendError> {
    let mut fetches: Vec<Fetch<'_>> = (0..outputs).map(|_| Fetch::New(None)).collect();
    context.run(feeds, &mut fetches)?;
    let produced = fetches.into_iter().map(|fetch| match fetch {
        Fetch::New(Some(produced)) => produced,
        other => panic!("{other:?}"),
    });
    Ok(produced.collect())
}

#[test]
fn a_second_onnx_runtime_library_is_refused() {
    backend();
    backend();
    let error = OnnxBackend::new(Path::new("/elsewhere/libonnxruntime.so")).unwrap_err();
    assert!(error.0.contains("is loaded already"), "{error}");
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(text)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_onnx_runtime_logs_at_the_level_that_is_set() {
    let (written, backend) = (Lines::default(), backend());
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let lines = |level| {
            backend.set_log_level(level);
            backend.open(&model("sum_fp32"), &LoadOptions::default()).unwrap();
            let text = String::from_utf8(std::mem::take(&mut *written.0.lock())).unwrap();
            text.lines().filter(|line| line.contains(" onnxruntime")).count()
        };
        assert!(lines(RuntimeLogLevel::Verbose) > 0);
        assert_eq!(lines(RuntimeLogLevel::Error), 0);
    });
}
