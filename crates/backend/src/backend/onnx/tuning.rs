//! Options of a session, from the server's and the model's configuration.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::ptr;

use ort::AsPointer as _;
use ort::environment::Environment;
use ort::session::builder::{BuilderResult, GraphOptimizationLevel, SessionBuilder};

use super::status::{check, describe};
use crate::backend::{BackendError, LoadOptions};
use crate::config::model::settings::GraphLevel;

const OPENVINO: &str = "OpenVINOExecutionProvider";

/// The options that sessions on the host and on accelerators share.
pub(super) fn builder(environment: &Environment, options: &LoadOptions) -> Result<SessionBuilder, BackendError> {
    let tuning = &options.tuning;
    let level = match tuning.level {
        GraphLevel::None => GraphOptimizationLevel::Disable,
        GraphLevel::Basic => GraphOptimizationLevel::Level1,
        GraphLevel::Extended => GraphOptimizationLevel::Level2,
        GraphLevel::All => GraphOptimizationLevel::All,
    };
    let threads = tuning.intra_threads.unwrap_or(options.threads);
    let mut builder = SessionBuilder::new(environment).map_err(|error| describe(&error))?;
    builder = set(builder.with_intra_threads(usize::from(threads)))?;
    builder = set(builder.with_intra_op_spinning(options.spinning))?;
    builder = set(builder.with_inter_op_spinning(options.spinning))?;
    builder = set(builder.with_optimization_level(level))?;
    if let Some(threads) = tuning.inter_threads {
        builder = set(builder.with_inter_threads(usize::from(threads)))?;
    }
    if let Some(parallel) = tuning.parallel {
        builder = set(builder.with_parallel_execution(parallel))?;
    }
    if let Some(pattern) = tuning.memory_pattern {
        builder = set(builder.with_memory_pattern(pattern))?;
    }
    match tuning.arena {
        None => builder = set(builder.with_env_allocators())?,
        Some(true) => {}
        // SAFETY: the options are alive and nothing else uses them.
        Some(false) => check(unsafe { (ort::api().DisableCpuMemArena)(builder.ptr_mut()) })?,
    }
    for (name, value) in &tuning.entries {
        builder = set(builder.with_config_entry(name, value))?;
    }
    Ok(builder)
}

fn set(changed: BuilderResult) -> Result<SessionBuilder, BackendError> {
    changed.map_err(|error| describe(&error))
}

/// The options of a session on the host.
pub(super) fn on_host(environment: &Environment, options: &LoadOptions) -> Result<SessionBuilder, BackendError> {
    let mut builder = builder(environment, options)?;
    if let Some(provider) = &options.tuning.openvino {
        with_openvino(&mut builder, provider)?;
    }
    Ok(builder)
}

fn with_openvino(builder: &mut SessionBuilder, provider: &[(String, String)]) -> Result<(), BackendError> {
    let texts = |of: fn(&(String, String)) -> &String| -> Result<Vec<CString>, BackendError> {
        let text = |pair| CString::new(of(pair).as_str());
        let texts: Result<Vec<_>, _> = provider.iter().map(text).collect();
        texts.map_err(|_| BackendError("an option of the OpenVINO provider has a zero byte".to_owned()))
    };
    let (keys, values) = (texts(|pair| &pair.0)?, texts(|pair| &pair.1)?);
    let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
    let (key_pointers, value_pointers) = (pointers(&keys), pointers(&values));
    // SAFETY: the options are alive; both lists have one text for each pair, and live through the call.
    check(unsafe {
        (ort::api().SessionOptionsAppendExecutionProvider_OpenVINO_V2)(
            builder.ptr_mut(),
            key_pointers.as_ptr(),
            value_pointers.as_ptr(),
            provider.len(),
        )
    })
}

/// Checks that the library was built with the OpenVINO provider.
pub(super) fn has_openvino(library: &Path) -> Result<(), BackendError> {
    if providers()?.iter().any(|name| name == OPENVINO) {
        return Ok(());
    }
    let what = format!(
        "ONNX Runtime {} has no OpenVINO provider; that of the Python package onnxruntime-openvino has one, and [runtime] onnxruntime names the library",
        library.display()
    );
    Err(BackendError(what))
}

/// The providers that the loaded library was built with.
fn providers() -> Result<Vec<String>, BackendError> {
    let (mut list, mut count): (*mut *mut c_char, c_int) = (ptr::null_mut(), 0);
    // SAFETY: both may be written to.
    check(unsafe { (ort::api().GetAvailableProviders)(&raw mut list, &raw mut count) })?;
    let names = (0..usize::try_from(count).unwrap_or(0)).map(|n| {
        // SAFETY: the list has this many C strings, until it is released below.
        unsafe { CStr::from_ptr(*list.add(n)) }.to_string_lossy().into_owned()
    });
    let names: Vec<String> = names.collect();
    // SAFETY: this function owns the list, and nothing points into it.
    check(unsafe { (ort::api().ReleaseAvailableProviders)(list, count) })?;
    Ok(names)
}
