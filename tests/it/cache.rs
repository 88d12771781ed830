//! Tests the response cache in a real server: which answers come from it, its counters, and its size.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use serde_json::{Value, json};

use crate::server::{Call, Server, get, root};

/// A model whose OUTPUT is twice INPUT.
const TWICE: &str = r#"
    backend: "onnxruntime" max_batch_size: 4
    input { name: "INPUT" data_type: TYPE_FP32 dims: 1 }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: 1 }
    instance_group { count: 1 kind: KIND_CPU }
"#;

/// Writes a model with this graph of tests/models.
pub(crate) fn write(repository: &Path, name: &str, graph: &str, config: &str) {
    let model = repository.join(name);
    fs::create_dir_all(model.join("1")).unwrap();
    fs::write(model.join("config.pbtxt"), config).unwrap();
    let graph = root().join("tests/models").join(graph).with_extension("onnx");
    fs::copy(graph, model.join("1/model.onnx")).unwrap();
}

/// Status, head and body of the answer to a POST.
pub(crate) fn send(http: SocketAddr, path: &str, body: &Value) -> (u16, String, String) {
    let body = body.to_string();
    let mut stream = TcpStream::connect(http).unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close");
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

fn served(arguments: &[&str]) -> Server {
    let call = Call::serve("repository").arguments(arguments);
    let repository = call.folder.path().join("repository");
    write(&repository, "twice", "optional", &format!("{TWICE} response_cache {{ enable: true }}"));
    write(&repository, "plain", "optional", TWICE);
    call.start()
}

fn twice(server: &Server, model: &str, value: f64) -> f64 {
    let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "FP32", "data": [value] });
    let (status, _, body) = send(server.http, &format!("/v2/models/{model}/infer"), &json!({ "inputs": [input] }));
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    answer["outputs"][0]["data"][0].as_f64().unwrap()
}

/// Numbers of runs, answered requests, hits and misses.
fn counts(server: &Server, model: &str) -> [u64; 4] {
    let (_, body) = server.get(&format!("/v2/models/{model}/stats"));
    let stats: Value = serde_json::from_str(&body).unwrap();
    let of = &stats["model_stats"][0];
    let count = |kind: &str| of["inference_stats"][kind]["count"].as_u64().unwrap();
    [of["execution_count"].as_u64().unwrap(), count("success"), count("cache_hit"), count("cache_miss")]
}

/// The value of a series.
pub(crate) fn metric(server: &Server, series: &str) -> f64 {
    let (_, body) = get(server.metrics, "/metrics");
    let line = body.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in {body}")).parse().unwrap()
}

#[test]
fn the_same_inputs_are_run_once_and_a_reload_forgets_them() {
    let server = served(&["--cache-config=local,size=1048576", "--model-control-mode=explicit", "--load-model=*"]);
    for value in [1.0, 1.5, 1.0, 1.0] {
        assert_eq!(twice(&server, "twice", value), 2.0 * value);
        assert_eq!(twice(&server, "plain", value), 2.0 * value);
    }
    assert_eq!(counts(&server, "twice"), [2, 4, 2, 2]);
    assert_eq!(counts(&server, "plain"), [4, 4, 0, 0]);
    let labels = "{model=\"twice\",version=\"1\"}";
    let of = |name: &str| metric(&server, &format!("{name}{labels}"));
    assert_eq!((of("nv_cache_num_hits_per_model"), of("nv_cache_num_misses_per_model")), (2.0, 2.0));
    assert_eq!(metric(&server, "sequor_cache_lookups_total{model=\"twice\",version=\"1\",result=\"hit\"}"), 2.0);
    let kept = metric(&server, "sequor_cache_bytes");
    assert!(kept > 0.0 && kept < 2000.0, "{kept}");

    let config = server.process.folder().join("repository/twice/config.pbtxt");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("# anew\n{text}")).unwrap();
    let (status, _, body) = send(server.http, "/v2/repository/models/twice/load", &json!({}));
    assert_eq!(status, 200, "{body}");
    assert_eq!(twice(&server, "twice", 1.0), 2.0);
    assert_eq!(counts(&server, "twice"), [3, 5, 2, 3]);
}

#[test]
fn the_cache_holds_no_more_bytes_than_it_may() {
    let server = served(&["--cache-size=16KiB"]);
    for n in 0..100 {
        assert_eq!(twice(&server, "twice", f64::from(n)), f64::from(2 * n));
        let kept = metric(&server, "sequor_cache_bytes");
        assert!(kept <= 16384.0, "{kept} after {n}");
    }
    assert!(metric(&server, "sequor_cache_evicted_total") > 20.0);
    assert_eq!(counts(&server, "twice"), [100, 100, 0, 100]);
}

#[test]
fn an_ineffective_cache_is_logged_and_a_cache_for_sequences_is_refused() {
    let server = served(&[]);
    assert_eq!((twice(&server, "twice", 1.0), twice(&server, "twice", 1.0)), (2.0, 2.0));
    assert_eq!(counts(&server, "twice"), [2, 2, 0, 0]);
    let message = server.stop().stderr;
    assert!(message.contains("response_cache has no effect: the server has no cache; set cache.size"), "{message}");

    let call = Call::serve("repository").arguments(["--cache-size=1MiB", "--exit-on-error"]);
    let sequence = "response_cache { enable: true } sequence_batching { state { input_name: \"INPUT_STATE\" \
        output_name: \"OUTPUT_STATE\" data_type: TYPE_FP32 dims: 1 } }";
    let config = TWICE.replace("instance_group", &format!("{sequence} instance_group"));
    write(&call.folder.path().join("repository"), "sum", "sum_fp32", &config);
    let ended = call.end();
    let refused =
        "response_cache cannot be used with sequence_batching for sum [an answer depends on the steps before it]";
    assert!(ended.stdout.contains(refused) || ended.stderr.contains(refused), "{ended:?}");
}
