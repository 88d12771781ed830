//! Tests command lines of `tritonserver` with `sequor serve`.

use std::fs;

use crate::server::{Call, copy, models};

/// Creates a repository with one model without a configuration.
fn bare(call: &Call) {
    let repository = call.folder.path().join("repository");
    copy(&models().join("gru"), &repository.join("gru"));
    fs::remove_file(repository.join("gru/config.pbtxt")).unwrap();
}

#[test]
fn a_model_without_a_configuration_is_completed_unless_that_is_forbidden() {
    for (flags, is_ready) in [
        (&["--strict-model-config=false"][..], true),
        (&["--strict-model-config=true"], false),
        (&["--disable-auto-complete-config"], false),
        (&["--model-auto-complete=false"], false),
    ] {
        let call = Call::serve("repository").arguments(flags);
        bare(&call);
        let server = call.start();
        assert_eq!(server.get("/v2/models/gru/ready").0 == 200, is_ready, "{flags:?}");
    }
}

#[test]
fn backend_config_sets_the_batch_size_of_a_completed_model() {
    let call = Call::serve("repository").arguments(["--backend-config=onnxruntime,default-max-batch-size=9"]);
    bare(&call);
    let (status, config) = call.start().get("/v2/models/gru/config");
    assert_eq!(status, 200, "{config}");
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["max_batch_size"], 9);
}

#[test]
fn flags_without_effect_are_logged_once_and_other_flags_apply() {
    let call = Call::serve(models()).arguments([
        "--log-verbose=1",
        "--log-info=true",
        "--id=asr-01",
        "--exit-timeout-secs=7",
        "--allow-metrics=false",
        "--http-thread-count=16",
        "--pinned-memory-pool-byte-size=268435456",
        "--grpc-infer-allocation-pool-size",
        "16",
    ]);
    let process = call.begin();
    let ended = process.stop_after("ready in ");
    assert!(ended.stdout.contains("   node asr-01   "), "{}", ended.stdout);
    assert!(ended.stdout.contains("   metrics  off"), "{}", ended.stdout);
    let lines_with = |what: &str| ended.stderr.lines().filter(|line| line.contains(what)).count();
    assert_eq!(
        lines_with("--http-thread-count has no effect: the number of threads is not a setting"),
        1,
        "{}",
        ended.stderr
    );
    assert_eq!(lines_with("--pinned-memory-pool-byte-size has no effect"), 1);
    assert_eq!(lines_with("has no effect"), 3);
}

#[test]
fn http_can_be_left_out() {
    let ended = Call::serve(models()).arguments(["--allow-http=false"]).begin().stop_after("ready in ");
    assert!(ended.stdout.contains("http  off   grpc  127.0.0.1:"), "{}", ended.stdout);
    let none = Call::serve(models()).arguments(["--allow-http=false", "--allow-grpc=false"]).end();
    assert_eq!(none.code, Some(3));
    assert_eq!(none.stderr, "sequor: --allow-grpc: neither HTTP nor gRPC is enabled: nothing would be served\n");
}

#[test]
fn unsupported_triton_flags_are_refused_with_advice() {
    let flags =
        ["--grpc-use-ssl=true", "--grpc-header-forward-pattern=x-.*", "--cache-config=redis,host=r", "--node=x"];
    let ended = Call::serve(models()).arguments(flags).end();
    let message = "sequor: --cache-config: \"redis,host=r\" is not served: the one cache is `local`, in the server's memory; write local,size=BYTES\n\
        sequor: --grpc-header-forward-pattern: not served: headers are not forwarded to models; send request parameters\n\
        sequor: --grpc-use-ssl: not served: TLS is set for gRPC and HTTP together: --tls-cert, --tls-key, --tls-client-ca\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(3), message));
}

#[test]
fn unsupported_or_inconsistent_settings_are_refused() {
    let refused = |name: &str, value: &str, why: &str| {
        let ended = Call::serve(models()).environment(name, value).end();
        assert_eq!((ended.code, ended.stderr), (Some(3), format!("sequor: {name}: {why}\n")));
    };
    let no_url = "\"ftp://c\" is no URL of a collector; write http://HOST:PORT or https://HOST:PORT";
    refused("SEQUOR_OTLP_ENDPOINT", "ftp://c", no_url);
    let never = "limits.queued (1MiB) must be at least limits.request (64MiB), or such a request never fits";
    refused("SEQUOR_LIMITS_QUEUED", "1MiB", never);
    let never = "limits.queued (4GiB) must be at least limits.request (5GiB), or such a request never fits";
    refused("SEQUOR_LIMITS_REQUEST", "5GiB", never);
}
