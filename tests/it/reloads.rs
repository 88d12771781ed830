//! Reloads a model repeatedly: each load takes over at once, and none leaves memory behind. `SEQUOR_SOAK_RELOADS=N` sets the number;
//! `cargo xtask soak` uses it.

use std::fs;
use std::time::Instant;

use serde_json::{Value, json};

use crate::load::{resident, settled};
use crate::operator::ask;
use crate::server::{Call, Server};
use crate::steps::accumulators;

const MODEL: &str = "oldest";

fn reloads() -> u32 {
    let asked = std::env::var("SEQUOR_SOAK_RELOADS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(200)
}

fn post(server: &Server, path: &str, body: &Value) -> Value {
    let (status, text) = ask(server.http, "POST", path, "application/json", body.to_string().as_bytes());
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

/// A sequence of one step, whose sum is its input.
fn infer(server: &Server, id: u32) {
    let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [id] });
    let parameters = json!({ "sequence_id": id, "sequence_start": true, "sequence_end": true });
    let answer =
        post(server, &format!("/v2/models/{MODEL}/infer"), &json!({ "inputs": [input], "parameters": parameters }));
    assert_eq!(answer["outputs"][0]["data"], json!([id]), "{answer}");
}

#[tokio::test]
async fn repeated_reloads_do_not_leak_memory() {
    let call = Call::serve("repository").arguments(["--model-control-mode=explicit", "--load-model=oldest"]);
    let repository = call.folder.path().join("repository");
    accumulators(&repository, 8, 600_000_000);
    let server = call.start();
    let file = repository_of(&server).join(MODEL).join("config.pbtxt");
    let config = fs::read_to_string(&file).unwrap();
    let (count, began) = (reloads(), Instant::now());
    let mut early = 0;
    for n in 1..=count {
        let slots = 8 + n % 2;
        let changed = config.replace("max_candidate_sequences: 8", &format!("max_candidate_sequences: {slots}"));
        fs::write(&file, format!("# {n}\n{changed}")).unwrap();
        post(&server, &format!("/v2/repository/models/{MODEL}/load"), &json!({}));
        infer(&server, n);
        if n == count / 10 {
            early = resident(&server);
        }
        if n % 50 == 0 {
            let served: Value = serde_json::from_str(&server.get(&format!("/v2/models/{MODEL}/config")).1).unwrap();
            let oldest = &served["sequence_batching"]["oldest"];
            assert_eq!(oldest["max_candidate_sequences"], json!(slots), "{served}");
        }
    }
    // The last loads are removed in the background.
    let late = settled(&server, early as f64 * 1.1).await;
    let mib = |bytes: u64| bytes as f64 / 1048576.0;
    println!(
        "reloads: {count} in {:.1} s; resident {:.1} MiB after {}, {:.1} MiB after all",
        began.elapsed().as_secs_f64(),
        mib(early),
        count / 10,
        mib(late)
    );
    assert!(late as f64 <= early as f64 * 1.1, "memory grows with reloads: {early} bytes, then {late}");
    assert_eq!(server.stop().code, Some(0));
}

fn repository_of(server: &Server) -> std::path::PathBuf {
    server.process.folder().join("repository")
}
