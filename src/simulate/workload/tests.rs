//! Workloads: flows have the properties of their names; files and traces are parsed, or refused with their line.

use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

use super::Workload;
use super::replay::Replay;
use crate::simulate::file::WorkloadFile;
use crate::simulate::{ComparedPolicy, Costs, Experiment, Serving};

const MS: u64 = 1_000_000;

fn made(text: &str, seed: u64) -> Workload {
    WorkloadFile::read(Path::new("x.toml"), text).unwrap().workload(seed).unwrap()
}

#[test]
fn each_kind_of_flow_generates_its_arrival_pattern() {
    let w = made("for = \"100s\"\n[[poisson]]\nrate = \"200/s\"\nsequences = 50\nsteps = 20\n", 1);
    let (n, starts) = (w.arrivals.len() as f64, w.arrivals.iter().filter(|a| a.start).count() as f64);
    assert!((19_500.0..20_500.0).contains(&n) && (18.0..22.0).contains(&(n / starts)), "{n} {starts}");

    let w = made("for = \"1s\"\n[[bursts]]\nevery = \"250ms\"\nsize = 3\nsequences = 5\n", 1);
    let times: Vec<u64> = w.arrivals.iter().map(|a| a.at.0 / MS).collect();
    assert_eq!(times, [0, 0, 0, 250, 250, 250, 500, 500, 500, 750, 750, 750]);

    let w = made("for = \"20s\"\n[[talkers]]\nsequences = 1\ntalk = \"1s\"\nsilence = \"500ms\"\n", 1);
    let gaps: Vec<u64> = w.arrivals.windows(2).filter(|p| !p[1].start).map(|p| (p[1].at.0 - p[0].at.0) / MS).collect();
    assert!(!gaps.is_empty() && gaps.iter().all(|g| *g == 32), "{gaps:?}");
    assert!(w.arrivals.windows(2).all(|p| p[0].end == p[1].start), "a spurt is a sequence");
    assert!(w.sequences > 5);
}

#[test]
fn a_call_is_one_sequence_with_silences() {
    let w = made("for = \"20s\"\n[[talkers]]\nsequences = 3\nsequence = \"call\"\n", 1);
    assert_eq!(
        (w.sequences, w.arrivals.iter().filter(|a| a.start).count(), w.arrivals.iter().any(|a| a.end)),
        (3, 3, false)
    );
}

#[test]
fn changing_a_flow_leaves_the_others_as_they_are() {
    let flows = |rate: &str| {
        made(
            &format!(
                "for = \"2s\"\n[[poisson]]\nrate = \"{rate}\"\ntenant = \"a\"\n[[poisson]]\nrate = \"100/s\"\ntenant = \"b\"\n"
            ),
            1,
        )
    };
    let of_b = |w: &Workload| w.arrivals.iter().filter(|a| a.tenant == 1).map(|a| a.at).collect::<Vec<_>>();
    assert_eq!(of_b(&flows("100/s")), of_b(&flows("900/s")));
}

#[test]
fn a_fault_of_the_file_is_reported_at_its_line() {
    let fault = |text: &str| WorkloadFile::read(Path::new("x.toml"), text).unwrap_err().to_string();
    assert!(fault("[[poisson]]\nrate = \"2000\"\n").starts_with("x.toml:2:8: \"2000\" is not a rate"));
    assert!(fault("[[poisson]]\nrate = \"1/s\"\nburst = 3\n").starts_with("x.toml:3:1: unknown field `burst`"));
    assert_eq!(fault("for = \"1s\"\n"), "x.toml: nothing arrives: name a flow, as [[poisson]]");
    assert!(
        fault("[[poisson]]\nrate = \"1/s\"\n[[bursts]]\nevery = \"1s\"\nsize = 9\n")
            .starts_with("x.toml:5:1: size must be")
    );
    assert!(fault("[[poisson]]\nrate = \"1/s\"\ntenants = { count = 0 }\n").starts_with("x.toml:3:1: tenants.count"));
    let much = WorkloadFile::read(Path::new("x.toml"), "for = \"1h\"\n[[poisson]]\nrate = \"1000000/s\"\n").unwrap();
    assert!(much.workload(1).unwrap_err().to_string().starts_with("about 3600 million requests in 1h"));
}

// === traces ===

const TRACE: &str = r#"{"sequor_trace":1,"zero_unix_us":1000000}
{"load":"vad","version":1,"strategy":"oldest","instances":1,"slots":8,"max_batch":2,"delay_us":0,"idle_us":1000000}
{"t":5000,"model":"vad","version":1,"seq":"00000000000000aa","bytes":4,"timeout_us":9000,"queue_us":0,"run_us":2000,"batch":1,"outcome":"ok"}
{"t":6000,"model":"vad","version":1,"seq":"00000000000000bb","start":true,"queue_us":1000,"run_us":2000,"batch":2,"outcome":"ok","tenant":"free"}
{"t":6000,"model":"vad","version":1,"seq":"00000000000000aa","end":true,"queue_us":1000,"run_us":2000,"batch":2,"outcome":"ok"}
{"t":5500,"model":"vad","version":1,"seq":"00000000000000cc","start":true,"queue_us":3500,"outcome":"cancelled"}
"#;

fn replayed(text: &str, model: Option<&str>) -> Result<Workload, String> {
    let mut replay = Replay::new(model);
    replay.file(Path::new("t.jsonl"), Cursor::new(text)).map_err(|e| e.to_string())?;
    replay.finish().map_err(|e| e.to_string())
}

#[test]
fn a_trace_is_replayed_and_compared_with_the_recorded_waits() {
    let workload = replayed(TRACE, None).unwrap();
    let shape: Vec<(u64, u32, bool, bool)> =
        workload.arrivals.iter().map(|a| (a.at.0 / 1000, a.sequence, a.start, a.end)).collect();
    assert_eq!(shape, [(0, 0, true, false), (500, 2, true, false), (1000, 1, true, false), (1000, 0, false, true)]);
    let live = workload.live.clone().unwrap();
    let serving = live.wishes.resolve().unwrap();
    assert_eq!((serving.slots, serving.max_batch, workload.arrivals[0].within), (8, 2, Some(Duration::from_millis(9))));
    let policies = vec![ComparedPolicy::named("oldest").unwrap()];
    let report = Experiment { workload, serving, costs: live.costs.unwrap(), policies, seed: 1 }.run();
    let table = report.table();
    assert!(
        table.contains("live that day (from the trace, policy oldest): WAIT p50 1 ms, p99 1 ms -> simulator off by"),
        "{table}"
    );
    assert!(table.contains("note: 1 sequences were under way"), "{table}");
}

#[test]
fn a_trace_of_several_models_needs_a_choice_and_a_cut_last_line_is_noted() {
    let two = format!("{TRACE}{}\n", r#"{"t":1,"model":"encoder","version":1,"queue_us":0,"outcome":"ok","batch":1}"#);
    assert_eq!(
        replayed(&two, None).unwrap_err(),
        "the trace is of several models, choose one with --model: encoder, vad"
    );
    assert_eq!(replayed(&two, Some("encoder")).unwrap().arrivals.len(), 1);
    assert_eq!(replayed(&two, Some("gone")).unwrap_err(), "the trace has no request of model gone");
    let cut = format!("{TRACE}{{\"t\":70");
    assert_eq!(replayed(&cut, None).unwrap().live.unwrap().notes[0], "t.jsonl: its last line is cut off");
    assert!(replayed(&TRACE.replace("\"t\":6000", "\"t\":-1"), None).unwrap_err().starts_with("t.jsonl:4: "));
}

#[test]
fn the_files_of_the_reference_page_are_read() {
    let page = include_str!("../../../docs/reference/simulate.md");
    let blocks: Vec<&str> = page.split("```toml\n").skip(1).filter_map(|b| b.split("```").next()).collect();
    let [load, cost] = &blocks[..] else { panic!("two files") };
    let file = WorkloadFile::read(Path::new("load.toml"), load).unwrap();
    let workload = file.workload(1).unwrap();
    assert_eq!((workload.about.as_str(), workload.tenants.len()), ("poisson + bursts + talkers", 21));
    assert_eq!(
        crate::simulate::ServingOptions::default().resolve().unwrap(),
        file.serve
            .resolve()
            .map(|s| Serving { instances: vec![1], backlog_timeout: None, backlog_levels: 0, ..s })
            .unwrap()
    );
    Costs::read(Path::new("cost.toml"), cost).unwrap();
    for line in page.lines().filter(|l| l.starts_with("{\"")) {
        crate::recording::trace::read(line).unwrap();
    }
}
