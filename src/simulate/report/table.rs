//! The report as text on a terminal.

use std::fmt::Write as _;

use super::SimulationReport;
use super::words::{count, fine_percent, long_span, percent, short_span, some, span};
use crate::simulate::outcome::Outcome;
use crate::text;

impl SimulationReport {
    /// One line about the simulated workload.
    pub fn head(&self) -> String {
        head(self)
    }

    /// The table, with the notes below it.
    pub fn table(&self) -> String {
        table(self)
    }
}

/// `poisson 120,000 requests, 200 sequences, 60 s; cost table 7 points; seed 1`.
fn head(report: &SimulationReport) -> String {
    let w = &report.workload;
    let sequences = some(u64::from(w.sequences), "sequence");
    format!(
        "{} {}, {sequences}, {}; {}; seed {}",
        w.about,
        some(w.requests, "request"),
        long_span(w.seconds),
        report.costs,
        report.seed
    )
}

fn table(report: &SimulationReport) -> String {
    let several = report.runs.windows(2).any(|pair| matches!(pair, [a, b] if a.instances != b.instances));
    let rows: Vec<_> = report.runs.iter().map(|run| row(run, several)).collect();
    let mut out = text::table(&titles(several), &rows);
    for run in &report.runs {
        out.push_str(&aside(report, run));
    }
    out.push_str(&live(report));
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

fn titles(several: bool) -> Vec<String> {
    let instances = several.then_some("INSTANCES");
    let rest =
        ["BATCH", "SLOTS USED", "WAIT p50", "p99", "MISSED DEADLINES", "WORST TENANT p99", "", "REJECTED", "FALLBACKS"];
    std::iter::once("POLICY").chain(instances).chain(rest).map(str::to_owned).collect()
}

/// The cells of a run, in the order of [`titles`]. The worst tenant has two cells: its name and its time.
fn row(run: &Outcome, several: bool) -> Vec<String> {
    let none = || "-".to_owned();
    let worst = run.worst_tenant();
    let instances = several.then(|| run.instances.to_string());
    let rest = [
        format!("{:.1}", run.batches.mean),
        percent(run.slots.share),
        span(run.wait.p50_us),
        span(run.wait.p99_us),
        run.deadlines.map_or_else(none, |d| fine_percent(d.share)),
        worst.map_or_else(none, |t| t.name.clone()),
        worst.map_or_else(String::new, |t| span(t.wait.p99_us)),
        count(run.rejected),
        run.rounds.map_or_else(none, |r| count(r.fallbacks)),
    ];
    std::iter::once(run.policy.clone()).chain(instances).chain(rest).collect()
}

/// Lines for a run's results that have no column.
fn aside(report: &SimulationReport, run: &Outcome) -> String {
    let mut out = String::new();
    let name = report.name(run);
    if !run.rejected_by_reason.is_empty() {
        let reasons: Vec<String> =
            run.rejected_by_reason.iter().map(|(reason, n)| format!("{reason} {}", count(*n))).collect();
        let _ = writeln!(out, "{name}: rejected {}", reasons.join(", "));
    }
    if run.unanswered > 0 {
        let _ = writeln!(
            out,
            "{name}: {} never had an answer: nothing ends the sequences that hold the slots",
            some(run.unanswered, "request")
        );
    }
    if let Some(rounds) = run.rounds.filter(|r| r.mean_us > 0.0) {
        let (mean, most) = (short_span(rounds.mean_us), short_span(rounds.most_us));
        let questions = some(rounds.questions, "question");
        let answered = match rounds.fallbacks {
            0 => String::new(),
            passed => format!("{} answered, ", count(rounds.questions.saturating_sub(passed))),
        };
        let _ = writeln!(out, "{name}: {questions}, {answered}{mean} each on the average, {most} at most");
    }
    if let Some(rounds) = run.rounds.filter(|r| r.faults > 0) {
        let _ = writeln!(out, "{name}: {} of the policy's answers were at fault", count(rounds.faults));
    }
    for line in &run.policy_lines {
        let _ = writeln!(out, "{name}: {line}");
    }
    out
}

fn live(report: &SimulationReport) -> String {
    let Some(live) = &report.live else { return String::new() };
    let policy = live.strategy.as_deref().unwrap_or("unknown");
    let seen = format!("WAIT p50 {}, p99 {}", span(live.wait.p50_us), span(live.wait.p99_us));
    let off = |share: Option<f64>| share.map_or("-".to_owned(), percent);
    let compared = match live.run {
        Some(_) => format!("simulator off by {} / {}", off(live.off_p50), off(live.off_p99)),
        None => "no run above is served alike".to_owned(),
    };
    format!("live that day (from the trace, policy {policy}): {seen} -> {compared}\n")
}
