//! Measures plug-ins that call another model: CPU time of the whole process a request, next to the same request without a plug-in. It runs
//! in this process, with 64 requests in flight at all times. The request without a plug-in is measured twice; the difference is noise. One
//! plug-in calls once, another [`CALLS`] times. Their difference is the cost of the calls, without the request around them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nix::time::ClockId;
use sequor::backend::mock::MockBackend;
use sequor::model::{InferRequest, NamedTensor, Repository, RepositoryOptions, SequenceStep, Tensor};
use sequor::processing::{PlaceRules, ProcessorComponent};
use sequor::telemetry::Metrics;
use sequor_core::{DataType, Dialect, Shape};
use sequor_wasm::engine::{Engine, Mode};
use sequor_wasm::grants::{GrantTable, Grants};
use sequor_wasm::plugin_error::PluginError;
use tempfile::TempDir;

use crate::BenchResult;
use sequor::processing::wat_guest::{ALIKE, WatGuest};

const UNDER_WAY: usize = 64;
const REQUESTS: usize = 40_000;
const TURNS: usize = 7;
/// Calls of the plug-in that makes several.
const CALLS: usize = 9;

/// Calls `echo` with its unchanged input, and replies with the output. For a call's list, the name "INPUT" is at 700, and the value's
/// content follows.
const CALL: &str = r#"
    (import "sequor:plugin/models@0.1.0" "infer" (func $infer (param i32 i32 i32 i32 i32)))
    (data (i32.const 700) "INPUT")
    (data (i32.const 710) "echo")"#;
const ONE_CALL: &str = "
    (i32.store (i32.const 400) (i32.const 700))
    (i32.store (i32.const 404) (i32.const 5))
    (memory.copy (i32.const 408) (i32.add (local.get 11) (i32.const 4)) (i32.const 24))
    (call $infer (i32.const 710) (i32.const 4) (i32.const 400) (i32.const 1) (i32.const 480))
    (if (i32.load8_u (i32.const 480)) (then unreachable))";
const REPLY: &str = "
    (i32.store (i32.const 600) (i32.const 0))
    (memory.copy (i32.const 604) (i32.add (i32.load (i32.const 488)) (i32.const 8)) (i32.const 24))
    (call $reply (i32.const 600) (i32.const 1))";

const TENSORS: &str = "
    input [ { name: \"INPUT\" data_type: TYPE_INT32 dims: [ 1 ] } ]
    output [ { name: \"OUTPUT\" data_type: TYPE_INT32 dims: [ 1 ] } ]";

fn serve(folder: &TempDir) -> BenchResult<Repository> {
    let repository = Repository::new(Arc::new(MockBackend::new()), RepositoryOptions::default(), Metrics::new(true))?;
    let engine = Arc::new(Engine::new(Mode::Serving)?);
    let make = move |name: &str, bytes: &[u8]| {
        let grants = Grants { models: true, ..Grants::default() };
        let made = ProcessorComponent::new(&engine, &format!("{name}.wasm"), bytes, grants, None);
        made.map(Arc::new).map_err(|e| PluginError::Invalid(e.to_string()))
    };
    let grants = GrantTable::parse(["caller=model:echo", "caller-of-many=model:echo"])?;
    let dir = Some(folder.path().to_owned());
    let rules = PlaceRules { dir, strikes: 3, grants, instances: UNDER_WAY, ..PlaceRules::default() };
    repository.run_processors(rules, Box::new(make))?;
    for (name, calls) in [("caller", 1), ("caller-of-many", CALLS)] {
        let pre = ONE_CALL.repeat(calls) + REPLY;
        let manifest = "wants = [\"pre\"]\n";
        let guest = WatGuest { extra: CALL, configure: ALIKE, pre: &pre, post: "unreachable", manifest };
        std::fs::write(folder.path().join(format!("{name}.wasm")), guest.component())?;
    }
    let batching = "max_batch_size: 64 dynamic_batching { } instance_group [ { kind: KIND_CPU count: 1 } ]";
    for (name, config, toml) in [
        ("echo", format!("backend: \"onnxruntime\" {batching} {TENSORS}"), ""),
        ("scorer", format!("max_batch_size: 64 {TENSORS}"), "[model]\nplugin = \"caller\"\n"),
        ("scorer_of_many", format!("max_batch_size: 64 {TENSORS}"), "[model]\nplugin = \"caller-of-many\"\n"),
    ] {
        let model = folder.path().join(name);
        std::fs::create_dir_all(model.join("1"))?;
        std::fs::write(model.join("config.pbtxt"), config)?;
        std::fs::write(model.join("sequor.toml"), toml)?;
        if toml.is_empty() {
            std::fs::write(model.join("1/model.onnx"), "identity INT32")?;
        }
        repository.load(&model);
        repository.find(name, "").map_err(|e| format!("{e}: {:?}", repository.statuses()))?;
    }
    Ok(repository)
}

fn request(model: &str) -> InferRequest {
    let data = Bytes::from_static(&[7, 0, 0, 0]);
    let tensor = Tensor { dtype: DataType::Int32, shape: Shape::new(&[1, 1]), data };
    InferRequest {
        model: model.to_owned(),
        version: String::new(),
        id: String::new(),
        sequence: SequenceStep::default(),
        priority: 0,
        timeout: None,
        inputs: vec![NamedTensor { name: "INPUT".to_owned(), tensor }],
        outputs: Vec::new(),
        parameters: Vec::new(),
        dialect: Dialect::TRITON,
    }
}

/// Microseconds of this process's CPU time a request.
fn cost(repository: &Repository, model: &str) -> BenchResult<f64> {
    let own_time = || -> BenchResult<Duration> { Ok(ClockId::CLOCK_PROCESS_CPUTIME_ID.now()?.into()) };
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let before = own_time()?;
    let ran: BenchResult<()> = runtime.block_on(async {
        let mut under_way = VecDeque::with_capacity(UNDER_WAY);
        for n in 0..REQUESTS + UNDER_WAY {
            if n >= UNDER_WAY
                && let Some(pending) = under_way.pop_front()
            {
                let pending: sequor::model::Pending = pending;
                let answer = pending.await.map_err(|e| format!("{e:?}"))?;
                if answer.outputs[0].tensor.data[..] != [7, 0, 0, 0] {
                    return Err("a wrong answer".into());
                }
            }
            if n < REQUESTS {
                under_way.push_back(repository.submit(request(model)).map_err(|e| format!("{e:?}"))?);
            }
        }
        Ok(())
    });
    ran?;
    Ok((own_time()? - before).as_secs_f64() * 1e6 / REQUESTS as f64)
}

pub(crate) fn figures() -> BenchResult<()> {
    let folder = TempDir::new()?;
    let repository = serve(&folder)?;
    let [mut direct, mut again, mut called, mut often] = [const { Vec::new() }; 4];
    for _ in 0..TURNS {
        direct.push(cost(&repository, "echo")?);
        called.push(cost(&repository, "scorer")?);
        often.push(cost(&repository, "scorer_of_many")?);
        again.push(cost(&repository, "echo")?);
    }
    let middle = |mut of: Vec<f64>| {
        of.sort_by(f64::total_cmp);
        of[of.len() / 2]
    };
    let [direct, again, called, often] = [direct, again, called, often].map(middle);
    let without = f64::midpoint(direct, again);
    let a_call = (often - called) / (CALLS - 1) as f64;
    println!("a request of one number, {UNDER_WAY} under way, CPU of the process:");
    println!("  to the model:                        {direct:>7.2} us");
    println!("  to the model, again:                 {again:>7.2} us (A/A {:+.2})", again - direct);
    println!("  to a plug-in that calls it once:     {called:>7.2} us ({:+.2})", called - without);
    println!("  to a plug-in that calls it {CALLS} times:  {often:>7.2} us");
    println!("  a call of it by a plug-in:           {a_call:>7.2} us ({:+.2}; aim 5)", a_call - without);
    repository.stop();
    Ok(())
}
