//! The report as one HTML file: no script, no external resources, readable in light and in dark.

use std::fmt::Write as _;

use super::SimulationReport;
use super::plot::{self, Axis, Group, PlotLine, escape};
use super::words::{count, fine_percent, number, percent, span};
use crate::simulate::outcome::Outcome;

const STYLE: &str = ":root{color-scheme:light dark;--back:#fff;--fore:#1b1f24;--soft:#59636e;--grid:#d1d9e0;\
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b35a93;--c4:#a87400;--c5:#3a9bd1;--c6:#6e7781}\
@media(prefers-color-scheme:dark){:root{--back:#0d1117;--fore:#e6edf3;--soft:#9198a1;--grid:#2f3742;\
--c0:#58a6e8;--c1:#ff8f4f;--c2:#3fc49a;--c3:#e39ac6;--c4:#e3b341;--c5:#8fd0f5;--c6:#b1bac4}}\
body{background:var(--back);color:var(--fore);font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.3rem}h2{font-size:1.05rem;margin:2rem 0 .3rem}p,figcaption{color:var(--soft);margin:.2rem 0}\
figure{margin:1.2rem 0}svg{width:100%;height:auto;font:12px system-ui,sans-serif}svg text{fill:var(--soft)}\
.end{text-anchor:end}.mid{text-anchor:middle}.grid{stroke:var(--grid);fill:none}.line{fill:none;stroke-linejoin:round}.dashed{stroke-dasharray:6 4}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{text-align:right;padding:.2rem .7rem;\
border-bottom:1px solid var(--grid);white-space:nowrap}th:first-child,td:first-child{text-align:left}\
.key{display:inline-block;width:1.6em;height:.3em;vertical-align:middle;margin-right:.5em}";

impl SimulationReport {
    /// The page.
    pub fn html(&self) -> String {
        page(self)
    }
}

fn page(report: &SimulationReport) -> String {
    let title = escape(&report.head());
    let mut out = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    out.push_str(
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>sequor simulate</title>",
    );
    let _ = write!(out, "<style>{STYLE}{}</style></head><body>\n<h1>sequor simulate</h1>\n<p>{title}</p>\n", colours());
    out.push_str(&table(report));
    out.push_str(&remarks(report));
    figure(
        &mut out,
        "Waiting time",
        "How long requests waited before their batch was taken: the share that waited no longer, up to the slowest.",
        &waits(report),
    );
    figure(&mut out, "Batch sizes", "Share of the batches that held so many requests.", &sizes(report));
    figure(&mut out, "Slots used", "Share of all slots that held a sequence, over time.", &slots(report));
    let tenants = tenants(report);
    if !tenants.is_empty() {
        figure(
            &mut out,
            "Tenants",
            "The wait that 99 of 100 of a tenant's requests did not exceed; the busiest tenants first.",
            &tenants,
        );
    }
    out + "</body></html>\n"
}

fn colours() -> String {
    (0..plot::COLOURS).fold(String::new(), |mut out, n| {
        let _ = write!(
            out,
            ".line.c{n}{{stroke:var(--c{n})}}.bar.c{n}{{fill:var(--c{n})}}.key.c{n}{{background:var(--c{n})}}"
        );
        out
    })
}

fn figure(out: &mut String, title: &str, about: &str, drawing: &str) {
    let _ = writeln!(out, "<h2>{title}</h2>\n<figure>{drawing}<figcaption>{about}</figcaption></figure>");
}

// === the table ===

fn table(report: &SimulationReport) -> String {
    let titles = [
        "policy",
        "instances",
        "batch",
        "slots used",
        "busy",
        "wait p50",
        "p99",
        "p99.9",
        "answer p99",
        "missed deadlines",
        "worst tenant p99",
        "rejected",
        "fallbacks",
    ];
    let titles: String = titles.iter().map(|t| format!("<th>{t}</th>")).collect();
    let mut out = format!("<div class=\"wide\"><table><thead><tr>{titles}</tr></thead><tbody>\n");
    for (n, run) in report.runs.iter().enumerate() {
        let key = format!("<span class=\"key {}\"></span>{}", plot::class(n), escape(&run.policy));
        let cells: String = cells(run).iter().map(|c| format!("<td>{}</td>", escape(c))).collect();
        let _ = writeln!(out, "<tr><td>{key}</td>{cells}</tr>");
    }
    out + "</tbody></table></div>\n"
}

fn cells(run: &Outcome) -> [String; 12] {
    let none = || "-".to_owned();
    [
        run.instances.to_string(),
        format!("{:.1}", run.batches.mean),
        percent(run.slots.share),
        percent(run.busy),
        span(run.wait.p50_us),
        span(run.wait.p99_us),
        span(run.wait.p999_us),
        span(run.answer.p99_us),
        run.deadlines.map_or_else(none, |d| fine_percent(d.share)),
        run.worst_tenant().map_or_else(none, |t| format!("{} {}", t.name, span(t.wait.p99_us))),
        count(run.rejected),
        run.rounds.map_or_else(none, |r| count(r.fallbacks)),
    ]
}

/// The lines of the text report below its table.
fn remarks(report: &SimulationReport) -> String {
    let text = report.table();
    let below = text.lines().skip(report.runs.len() + 1);
    below.map(|line| format!("<p>{}</p>\n", escape(line))).collect()
}

// === the drawings ===

fn of_each(report: &SimulationReport, points: impl Fn(&Outcome) -> Vec<(f64, f64)>) -> Vec<PlotLine> {
    let line = |(class, run): (usize, &Outcome)| PlotLine { name: report.name(run), class, points: points(run) };
    report.runs.iter().enumerate().map(line).collect()
}

/// Waits in decades, over the number of nines.
fn waits(report: &SimulationReport) -> String {
    let low = report.runs.iter().flat_map(|r| &r.curve).map(|(_, w)| *w).filter(|w| *w > 0.0).fold(f64::MAX, f64::min);
    let high = report.runs.iter().map(|r| r.wait.most_us).fold(1.0, f64::max);
    let high_decade = high.log10().ceil();
    // Six decades are enough to read. Shorter waits are drawn at the bottom.
    let from = low.min(high).log10().floor().max(high_decade - 6.0).min(high_decade - 1.0);
    let mark = |n: u32| (from + f64::from(n), span(10f64.powf(from + f64::from(n))));
    let decades = (high_decade - from).round() as u32;
    let y = Axis { title: "wait".to_owned(), from, to: high_decade, marks: (0..=decades).map(mark).collect() };
    let nines = [
        (0.0, "0"),
        (0.5, "50 %"),
        (0.9, "90 %"),
        (0.99, "99 %"),
        (0.999, "99.9 %"),
        (0.9999, "99.99 %"),
        (0.99999, "99.999 %"),
    ];
    let most = report.runs.iter().flat_map(|r| r.curve.last()).map(|(share, _)| depth(*share)).fold(1.0, f64::max);
    let marks = nines
        .iter()
        .map(|(share, label)| (depth(*share), (*label).to_owned()))
        .filter(|(at, _)| *at <= most + 1e-6)
        .collect();
    let x = Axis { title: "share of the requests".to_owned(), from: 0.0, to: most, marks };
    let lines =
        of_each(report, |run| run.curve.iter().map(|(share, wait)| (depth(*share), wait.max(1e-3).log10())).collect());
    plot::lines("wait by percentile", &x, &y, &lines)
}

/// The number of nines of a share.
fn depth(share: f64) -> f64 {
    -(1.0 - share).log10()
}

fn sizes(report: &SimulationReport) -> String {
    let most = report.runs.iter().map(|r| r.batches.most).max().unwrap_or(1);
    let share = |run: &Outcome, size: u32| {
        let n = run.batches.sizes.get(&size).copied().unwrap_or(0);
        if run.batches.count == 0 { 0.0 } else { n as f64 / run.batches.count as f64 }
    };
    let points = |run: &Outcome| (1..=most).map(|size| (f64::from(size), share(run, size))).collect::<Vec<_>>();
    let highest = report.runs.iter().flat_map(points).map(|(_, s)| s).fold(0.01, f64::max);
    let x = Axis::from_zero("requests of a batch", f64::from(most.max(5)), |v| format!("{v:.0}"))
        .until(f64::from(most.max(5)));
    let y = Axis::from_zero("share of the batches", highest, |v| format!("{:.0} %", v * 100.0));
    plot::lines("batch sizes", &x, &y, &of_each(report, points))
}

fn slots(report: &SimulationReport) -> String {
    let seconds = report.workload.seconds.max(f64::MIN_POSITIVE);
    let parts = report.runs.first().map_or(1, |r| r.slots.over_time.len()).max(1) as f64;
    let x = Axis::from_zero("seconds", seconds, number).until(seconds);
    let y = Axis::from_zero("slots used", 1.0, |v| format!("{:.0} %", v * 100.0));
    let points = |run: &Outcome| {
        (0u32..).zip(&run.slots.over_time).map(|(n, s)| ((f64::from(n) + 0.5) / parts * seconds, *s)).collect()
    };
    plot::lines("slots used over time", &x, &y, &of_each(report, points))
}

/// Maximum tenants drawn. The others are in the JSON.
const TENANTS: usize = 12;

fn tenants(report: &SimulationReport) -> String {
    let busiest = report.runs.first().map(|r| r.tenants.iter().take(TENANTS)).into_iter().flatten();
    let of = |name: &str| -> Group {
        let bars = report.runs.iter().enumerate().filter_map(|(n, run)| {
            let tenant = run.tenants.iter().find(|t| t.name == name)?;
            Some((n, tenant.wait.p99_us / 1e3, format!("{}: {}", report.name(run), span(tenant.wait.p99_us))))
        });
        (name.to_owned(), bars.collect())
    };
    let groups: Vec<Group> = busiest.map(|t| of(&t.name)).collect();
    if groups.len() < 2 {
        return String::new();
    }
    let most = groups.iter().flat_map(|(_, bars)| bars).map(|(_, value, _)| *value).fold(0.001, f64::max);
    plot::bars("wait p99 by tenant", &Axis::from_zero("wait p99, ms", most, number), &groups)
}
