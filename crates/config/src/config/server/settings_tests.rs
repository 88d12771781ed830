//! Tests of the settings from all layers together.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::access::{ApiGroup, WireProtocol};
use super::file::ControlMode;
use super::settings::SharedMemory;
use super::{GivenFlags, HostInfo, HostMemory, Settings, config_path, load};
use crate::config::units::{Size, Span};

const FILE: &str = "schema = 1\n[http]\nport = 9000\naddress = \"127.0.0.1\"\n[limits]\nrequest = \"1MiB\"\n";

fn given(args: &[&str]) -> GivenFlags {
    let command = clap::Command::new("serve").args(crate::config::server::args());
    GivenFlags::from_matches(
        &command.try_get_matches_from(std::iter::once("serve").chain(args.iter().copied())).unwrap(),
    )
}

fn settings(file: &str, variables: &[(&str, &str)], args: &[&str]) -> Result<Settings, Vec<String>> {
    let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    let memory = HostMemory { bytes: 1 << 30, source: "MemTotal of /proc/meminfo".to_owned() };
    let host = HostInfo { name: "here".to_owned(), memory: Some(memory) };
    load(Some((Path::new("sequor.toml"), file)), &variable, &given(args), &host)
        .map_err(|faults| faults.iter().map(ToString::to_string).collect())
}

#[test]
fn flags_are_over_variables_over_the_file_over_defaults() {
    let settings = settings(
        FILE,
        &[("SEQUOR_HTTP_PORT", "9100"), ("SEQUOR_GRPC_PORT", "9101"), ("SEQUOR_MODEL_REPOSITORY", "/a, /b")],
        &["--grpc-port", "9201", "--model-control-mode", "explicit", "--exit-timeout-secs", "7"],
    )
    .unwrap();
    assert_eq!((settings.http.port, settings.http.address.to_string()), (9100, "127.0.0.1".to_owned()));
    assert_eq!((settings.grpc.port, settings.metrics.port), (9201, 8002));
    assert_eq!(settings.model.repository, [Path::new("/a"), Path::new("/b")]);
    assert_eq!(
        (settings.model.control_mode, settings.drain.exit_timeout),
        (ControlMode::Explicit, Span(Duration::from_secs(7)))
    );
    assert_eq!(
        (settings.limits.request, settings.limits.queued, settings.limits.state, settings.node.as_str()),
        (Size(1 << 20), Size(256 << 20), Some(Size(512 << 20)), "here")
    );
    let origin = |path: &str| settings.origins.get(path).map_or_else(|| "default".to_owned(), ToString::to_string);
    assert_eq!(origin("http.port"), "SEQUOR_HTTP_PORT");
    assert_eq!(origin("http.address"), "sequor.toml:4:1");
    assert_eq!(origin("grpc.port"), "--grpc-port");
    assert_eq!(origin("drain.exit_timeout"), "--exit-timeout-secs");
    assert_eq!(origin("metrics.port"), "default");
}

#[test]
fn limits_derived_from_the_memory_name_their_source() {
    let row = |args: &[&str], key: &str| {
        let shown = settings("", &[], args).unwrap().shown;
        shown.into_iter().find(|row| row.key == key).map(|row| (row.value, row.origin)).unwrap()
    };
    let row_of = |value: &str, origin: &str| (format!("\"{value}\""), origin.to_owned());
    let from = "default: a quarter of 1 GiB (MemTotal of /proc/meminfo)";
    assert_eq!(row(&[], "limits.queued"), row_of("256MiB", from));
    let from = "default: three quarters of 1 GiB (MemTotal of /proc/meminfo), less limits.queued";
    assert_eq!(row(&[], "limits.state"), row_of("512MiB", from));
    assert_eq!(row(&["--limits-queued", "1GiB"], "limits.queued"), row_of("1GiB", "--limits-queued"));
    assert_eq!(row(&["--limits-state", "1GiB"], "limits.state"), row_of("1GiB", "--limits-state"));
}

#[test]
fn models_to_load_need_the_control_mode_in_which_they_are_chosen() {
    let explicit = settings("", &[], &["--load-model=vad", "--model-control-mode=explicit"]);
    assert_eq!(explicit.map(|settings| settings.model.load), Ok(vec!["vad".to_owned()]));
    let begin =
        "Use of '--load-model' requires setting '--model-control-mode=explicit' as well. (model.control_mode is";
    let refused = settings("", &[], &["--load-model=vad"]).unwrap_err();
    assert_eq!(refused, [format!("--load-model: {begin} \"none\": every model of the repository is loaded)")]);
    let refused = settings("[model]\nload = [\"vad\"]\ncontrol_mode = \"poll\"\n", &[], &[]).unwrap_err();
    assert_eq!(refused, [format!("sequor.toml:2:1: {begin} \"poll\": every model of the repository is loaded)")]);
}

#[test]
fn a_recording_has_a_file_and_a_size() {
    let record = |args: &[&str]| settings("", &[], args).map(|s| s.record);
    assert_eq!(record(&[]), Ok(None));
    assert_eq!(record(&["--record", "/t.jsonl"]), Ok(Some((PathBuf::from("/t.jsonl"), 1 << 30))));
    assert_eq!(record(&["--record", "t", "--record-max", "1MiB"]), Ok(Some((PathBuf::from("t"), 1 << 20))));
    assert_eq!(
        record(&["--record-max", "1023KiB"]),
        Err(vec!["--record-max: record_max must be at least 1MiB".to_owned()])
    );
}

#[test]
fn settings_without_any_source_are_the_defaults() {
    let settings = load(None, &|_| None, &GivenFlags::default(), &HostInfo::default()).unwrap();
    assert_eq!((settings.http.port, settings.grpc.port, settings.metrics.port), (8000, 8001, 8002));
    assert_eq!((settings.limits.in_flight, settings.limits.state), (65536, None));
    assert!(settings.strict_readiness && !settings.exit_on_error && settings.origins.is_empty());
}

#[test]
fn faults_of_all_settings_layers_are_reported_together() {
    let file = "[grpc]\nport = 8000\n[auth]\nrestricted = [\"trace\"]\n[otlp]\nendpoint = \"x y\"\n[plugins]\ntime = \"0s\"\ngrants = [\"edf=clok\", \"clock\"]\n[runtime]\nthreads_per_instance = 0\n";
    let variables = [("SEQUOR_LIMITS_STATE", "24GB"), ("SEQUOR_STATE_URL", "/x"), ("SEQUOR_LOG_FORMAT", "xml")];
    let faults = settings(file, &variables, &["--metrics-port", "70000", "--strict-readiness=maybe"]).unwrap_err();
    insta::assert_snapshot!(faults.join("\n"));
}

#[test]
fn an_open_admin_needs_keys_or_client_certificates() {
    let open = ["--admin-address", "0.0.0.0"];
    let message = "--admin-address: admin on 0.0.0.0:8003 without keys or client certificates would let anyone load code. \
        Set admin.keys_file, tls.client_ca, or admin.address = \"127.0.0.1\".";
    assert_eq!(settings("", &[], &open).unwrap_err(), [message]);
    let with = |more: &[&str]| settings("", &[], &[&open[..], more].concat()).map(|s| s.admin.address.to_string());
    assert_eq!(with(&["--admin-keys-file", "k"]), Ok("0.0.0.0".to_owned()));
    let mutual = ["--tls-cert", "c", "--tls-key", "k", "--tls-client-ca", "a"];
    assert_eq!(with(&mutual), Ok("0.0.0.0".to_owned()));
    assert_eq!(with(&["--admin-enabled=false"]), Ok("0.0.0.0".to_owned()));
    assert!(settings("", &[], &["--admin-address", "::1"]).is_ok());
    assert!(with(&["--tls-cert", "c", "--tls-key", "k"]).is_err(), "a server's certificate authenticates no client");
}

#[test]
fn tls_is_whole_or_not_at_all() {
    let tls = |args: &[&str]| settings("", &[], args).map(|s| s.tls.is_some());
    assert_eq!((tls(&[]), tls(&["--tls-cert", "c", "--tls-key", "k"])), (Ok(false), Ok(true)));
    assert_eq!(tls(&["--tls-cert", "c"]), Err(vec!["--tls-cert: tls.cert is of no use without tls.key".to_owned()]));
    assert!(tls(&["--tls-key", "k"]).is_err() && tls(&["--tls-client-ca", "a"]).is_err());
}

#[test]
fn a_fault_of_the_file_is_reported_at_its_line() {
    let fault = |file: &str| settings(file, &[], &[]).unwrap_err().join("\n");
    assert_eq!(
        fault("[limits]\nstate = \"24GB\""),
        "sequor.toml:2:9: \"24GB\" is not a size (did you mean \"24GiB\"?)"
    );
    assert_eq!(fault("[http]\nprot = 1"), "sequor.toml:2:1: unknown field `prot`; did you mean \"port\"?");
    assert!(fault("[http]\nname = 1").starts_with("sequor.toml:2:1: unknown field `name`, expected one of"));
    assert!(fault("[http]\nport = 70000").starts_with("sequor.toml:2:8: invalid value"));
    assert_eq!(fault("\nschema = 2"), "sequor.toml:2:1: schema must be 1");
    for prefix in ["/", "//"] {
        let message = fault(&format!("[shared_memory]\nallow = \"prefix\"\nprefix = \"{prefix}\""));
        assert!(
            message.starts_with(&format!("sequor.toml:3:1: shared_memory.prefix \"{prefix}\" allows every")),
            "{message}"
        );
    }
    let prefix =
        |prefix: &str| settings(&format!("[shared_memory]\nallow = \"prefix\"\nprefix = \"{prefix}\""), &[], &[]);
    assert!(prefix("").is_err() && prefix("/triton-").is_ok());
}

#[test]
fn all_faults_of_the_file_are_reported_at_their_lines() {
    let file = "schema = 1\nstrict_redines = true\n[http]\nport = 70000\naddress = \"here\"\n[limits]\nstate = \"24GB\"\n\
        [metricz]\nport = 9000\n[drain]\nfinish = 20\n[connections]\nmax = 0\n";
    let lines = settings(file, &[], &[]).unwrap_err();
    let places: Vec<&str> = lines.iter().filter_map(|line| line.split_once(": ")).map(|(place, _)| place).collect();
    let at = |line: u32, column: u32| format!("sequor.toml:{line}:{column}");
    assert_eq!(places, [at(2, 1), at(4, 8), at(5, 11), at(7, 9), at(8, 2), at(11, 10), at(13, 1)], "{lines:#?}");
}

#[test]
fn a_faulty_entry_hides_no_other_fault_and_brings_no_fault_of_its_own() {
    let faults = |file: &str| settings(file, &[], &[]).unwrap_err();
    // The port that is left out is 8000 by default, and the certificate is none.
    let follows = faults("[http]\nport = 70000\n[grpc]\nport = 8000\n[tls]\ncert = 7\nkey = \"k\"\n");
    assert_eq!(follows.len(), 2, "{follows:#?}");
    let others = faults("[http]\nport = 70000\n[tls]\nkey = \"k\"\n[drain]\nfinish = \"5\"\n");
    assert_eq!(others.len(), 3, "{others:#?}");
    assert_eq!(others[1], "sequor.toml:4:1: tls.key is of no use without tls.cert");
    let unparsed = faults("[http]\nport = \n[limits]\nstate = \"24GB\"\n");
    assert!(unparsed.len() == 2 && unparsed[1].starts_with("sequor.toml:4:9: \"24GB\""), "{unparsed:#?}");
}

#[test]
fn restricted_groups_come_from_every_layer_and_are_shown_without_their_secrets() {
    let given = |file: &str, variables: &[(&str, &str)], args: &[&str]| settings(file, variables, args);
    let file = "[http]\nrestricted_api = [\"model-repository,health:k=s3cret\"]\n[grpc]\nrestricted_protocol = \"trace:k=s3cret\"\n";
    let from_file = given(file, &[], &[]).unwrap();
    let header = |settings: &Settings, protocol, group| {
        settings.restricted.of(protocol).of(group).map(|restriction| restriction.header.clone())
    };
    let (http, grpc) = (WireProtocol::Http, WireProtocol::Grpc);
    assert_eq!(header(&from_file, http, ApiGroup::Health).as_deref(), Some("k"));
    assert_eq!(header(&from_file, grpc, ApiGroup::Trace).as_deref(), Some("triton-grpc-protocol-k"));
    let variable = [("SEQUOR_HTTP_RESTRICTED_API", "health,trace:k=s3cret\n inference:other=s3cret ")];
    let from_variable = given(file, &variable, &[]).unwrap();
    assert_eq!(header(&from_variable, http, ApiGroup::Inference).as_deref(), Some("other"));
    let flags = ["--http-restricted-api=metadata,logging:a=s3cret", "--http-restricted-api", "health:b=s3cret"];
    let from_flags = given(file, &variable, &flags).unwrap();
    assert_eq!(header(&from_flags, http, ApiGroup::Logging).as_deref(), Some("a"));
    assert_eq!(header(&from_flags, http, ApiGroup::Health).as_deref(), Some("b"));
    assert_eq!(header(&from_flags, http, ApiGroup::Inference), None, "the flag takes the variable's place");
    for settings in [&from_file, &from_variable, &from_flags] {
        let shown = settings.shown.iter().find(|row| row.key == "http.restricted_api").unwrap();
        assert!(shown.value.contains("=***\""), "{shown:?}");
        assert!(!format!("{settings:?}").contains("s3cret"));
    }
}

#[test]
fn a_fault_of_restricted_groups_has_its_place_and_no_secret() {
    let fault = |file: &str, args: &[&str]| settings(file, &[], args).unwrap_err().join("\n");
    let twice = ["--grpc-restricted-protocol=health:k=s3cret", "--grpc-restricted-protocol=health:k2=s3cret"];
    assert_eq!(
        fault("", &twice),
        "--grpc-restricted-protocol: restricted protocol 'health' can not be specified in multiple config groups"
    );
    let unknown = fault("[http]\nrestricted_api = [\"model-reposit:k=s3cret\"]\n", &[]);
    assert!(unknown.starts_with("sequor.toml:2:1: unknown restricted api 'model-reposit' ("), "{unknown}");
    for wrong in ["\"s3cret\"", "[\"s3cret\"]", "[[\"s3cret\"]]", "{ health = \"s3cret\" }"] {
        let message = fault(&format!("[http]\nrestricted_api = {wrong}\n"), &[]);
        assert!(!message.contains("s3cret"), "{message}");
    }
}

#[test]
fn the_file_is_named_by_flag_or_variable() {
    let variable = |name: &str| (name == "SEQUOR_CONFIG").then(|| "/v".to_owned());
    assert_eq!(config_path(&variable, &given(&["--config", "/f"])), Some(PathBuf::from("/f")));
    assert_eq!(config_path(&variable, &GivenFlags::default()), Some(PathBuf::from("/v")));
    assert_eq!(config_path(&|_| None, &GivenFlags::default()), None);
}

#[test]
fn shared_memory_is_on_by_default_only_for_local_addresses() {
    let allowed = |text: &str| {
        let text = format!("schema = 1\n{text}");
        let file = Some((Path::new("sequor.toml"), text.as_str()));
        load(file, &|_| None, &GivenFlags::default(), &HostInfo::default()).map(|settings| settings.shared_memory)
    };
    const LOCAL: &str = "[http]\naddress = \"127.0.0.1\"\n[grpc]\naddress = \"::1\"\n";
    assert_eq!(allowed(""), Ok(SharedMemory::Off));
    assert_eq!(allowed(LOCAL), Ok(SharedMemory::On));
    assert_eq!(allowed("[http]\naddress = \"127.0.0.1\"\n[grpc]\nenabled = false\n"), Ok(SharedMemory::On));
    assert_eq!(allowed("[http]\naddress = \"127.0.0.1\"\n"), Ok(SharedMemory::Off));
    assert_eq!(allowed(&format!("{LOCAL}[shared_memory]\nallow = \"off\"")), Ok(SharedMemory::Off));
    assert_eq!(allowed("[shared_memory]\nallow = \"on\""), Ok(SharedMemory::On));
    let prefix = allowed("[shared_memory]\nallow = \"prefix\"\nprefix = \"triton-\"");
    assert_eq!(prefix, Ok(SharedMemory::Prefix("triton-".to_owned())));
    assert!(allowed("[shared_memory]\nallow = \"prefix\"").is_err());
}
