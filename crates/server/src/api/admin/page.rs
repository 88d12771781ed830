//! The status page: one HTML document without scripts. Unknown figures are left out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::status::{Server, StatusReport, VersionStatus};
use crate::api::audit::names_a_hash;
use crate::api::remedies::remedy;
use crate::config::units::human;
use crate::scheduling::report::{Attached, BindingState, Summary};
use crate::text::numbers;

const STYLE: &str = "body{font:14px/1.5 ui-monospace,monospace;margin:2em;color:#222;background:#fff}\
    table{border-collapse:collapse;margin:.5em 0 1.5em}th,td{padding:.1em 1.2em .1em 0;text-align:left;white-space:nowrap}\
    th{font-weight:600;color:#666}td.n,th.n{text-align:right}h2{font-size:1em;margin:0}.bad{color:#b00}.good{color:#080}\
    p{margin:.3em 0 1em}p.facts{display:flex;flex-wrap:wrap;column-gap:2em}@media(prefers-color-scheme:dark){body{color:#ddd;background:#111}.bad{color:#f66}.good{color:#6c6}}";

/// The whole page.
pub(super) fn page(report: &StatusReport) -> String {
    let node = escaped(&report.server.node);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"2\">\
         <title>{node} - sequor</title><style>{STYLE}</style></head><body>\n"
    );
    head(&mut out, &report.server);
    for warning in &report.warnings {
        let _ = writeln!(out, "<p class=\"bad\">! {}</p>", escaped(warning));
    }
    models(&mut out, report);
    ended(&mut out, report);
    refused(&mut out, report);
    plugins(&mut out, &report.plugins);
    changes(&mut out, report);
    out.push_str("<p><a href=\"/admin/status.json\">the same as JSON</a></p>\n</body></html>\n");
    out
}

fn head(out: &mut String, server: &Server) {
    let Server { version, node, runtime, phase, ready, .. } = server;
    let class = if *ready { "good" } else { "bad" };
    let limit = server.state_limit.map(|limit| format!(" / {}", human(limit))).unwrap_or_default();
    let memory = server.memory_bytes.map(|bytes| format!("memory {}", human(bytes)));
    let first = format!("<b>sequor {version}</b>");
    let phase = format!("<b class=\"{class}\">{}</b> up {}", phase.to_uppercase(), numbers::uptime(server.up_seconds));
    let more = [
        format!("{} requests in flight", server.in_flight),
        format!("{} live sequences", server.live_sequences),
        format!("state {}{limit}", human(server.state_bytes)),
    ];
    facts(out, [first, escaped(node), phase].into_iter().chain(more).chain(memory).chain([escaped(runtime)]));
}

/// Writes facts side by side.
fn facts(out: &mut String, facts: impl Iterator<Item = String>) {
    out.push_str("<p class=\"facts\">");
    for fact in facts {
        let _ = write!(out, "<span>{fact}</span> ");
    }
    out.push_str("</p>\n");
}

/// The head of a column, and whether its cells are numbers.
#[derive(Clone, Copy)]
struct PageColumn(&'static str, bool);

const fn text(head: &'static str) -> PageColumn {
    PageColumn(head, false)
}

/// A column of numbers, aligned under one another.
const fn number(head: &'static str) -> PageColumn {
    PageColumn(head, true)
}

fn row<'t>(out: &mut String, cell: &str, columns: &[PageColumn], cells: impl Iterator<Item = &'t str>) {
    out.push_str("<tr>");
    for (text, PageColumn(_, is_number)) in cells.zip(columns) {
        let class = if *is_number { " class=\"n\"" } else { "" };
        let _ = write!(out, "<{cell}{class}>{}</{cell}>", escaped(text));
    }
    out.push_str("</tr>\n");
}

fn table<const N: usize>(
    out: &mut String,
    title: &str,
    columns: [PageColumn; N],
    rows: impl Iterator<Item = [String; N]>,
) {
    let _ = writeln!(out, "<h2>{}</h2><table>", escaped(title));
    row(out, "th", &columns, columns.iter().map(|PageColumn(head, _)| *head));
    for cells in rows {
        row(out, "td", &columns, cells.iter().map(String::as_str));
    }
    out.push_str("</table>\n");
}

fn models(out: &mut String, report: &StatusReport) {
    let columns = [
        text("MODEL"),
        number("V"),
        text("STATE"),
        number("INST"),
        number("LIVE"),
        number("SLOTS"),
        number("BACKLOG"),
        number("REQ/S"),
        number("BATCH p50/max"),
        number("QUEUE p99 ≤"),
        number("REQUEST p50/p99 ≤"),
        number("FAILED"),
        text("SCHEDULER"),
        text("REASON"),
    ];
    let seconds = report.server.rates_over_seconds;
    let title = format!("Models (REQ/S over the last {}; batches and times since the start)", numbers::span(seconds));
    let scheduler = |version: &VersionStatus| {
        let by = |plugin: &Summary| {
            let here = plugin.attached.iter().any(|a| {
                a.state == BindingState::Active && a.model == version.model && Some(a.version) == version.version
            });
            here.then(|| format!("{}@{}", plugin.name, plugin.sha256.get(..7).unwrap_or(&plugin.sha256)))
        };
        report.plugins.iter().find_map(by).or(version.strategy.map(str::to_owned)).unwrap_or_default()
    };
    let spans = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => format!("{} / {}", numbers::span(a), numbers::span(b)),
        _ => String::new(),
    };
    let cells = |v: &VersionStatus| {
        [
            v.model.clone(),
            v.version.map(|n| n.to_string()).unwrap_or_default(),
            v.state.to_lowercase(),
            v.instances.to_string(),
            v.live.to_string(),
            if v.slots == 0 { "-".to_owned() } else { format!("{}/{}", v.slots_used, v.slots) },
            v.backlog.to_string(),
            numbers::rate(v.requests_per_second),
            v.batch_p50.zip(v.batch_max).map(|(p50, max)| format!("{p50} / {max}")).unwrap_or_default(),
            v.queue_p99_seconds.map(numbers::span).unwrap_or_default(),
            spans(v.request_p50_seconds, v.request_p99_seconds),
            v.failures.to_string(),
            scheduler(v),
            v.reason.clone(),
        ]
    };
    table(out, &title, columns, report.models.iter().map(cells));
}

fn ended(out: &mut String, report: &StatusReport) {
    out.push_str("<h2>Why sequences ended (since the start)</h2>");
    let reasons = report.ended.iter().map(|(reason, count)| format!("{} {count}", escaped(reason)));
    let none = report.ended.is_empty().then(|| "none has ended".to_owned());
    facts(out, reasons.chain(none));
}

fn refused(out: &mut String, report: &StatusReport) {
    if report.refused.is_empty() {
        return;
    }
    let columns = [text("MODEL"), text("REASON"), number("REQUESTS"), text("TO PREVENT IT")];
    let of_model = |(model, counts): (&String, &BTreeMap<&'static str, u64>)| {
        let advice = |reason: &str| remedy(reason, model).map(|of| of.advice.into_owned()).unwrap_or_default();
        let row = |(reason, count): (&&'static str, &u64)| {
            [model.clone(), (*reason).to_owned(), count.to_string(), advice(reason)]
        };
        counts.iter().map(row).collect::<Vec<_>>()
    };
    table(out, "What was refused (since the start)", columns, report.refused.iter().flat_map(of_model));
}

fn plugins(out: &mut String, plugins: &[Summary]) {
    if plugins.is_empty() {
        return;
    }
    let first = ["PLUG-IN", "SHA256", "WORLD", "MODEL", "STATE"].map(text);
    let [plugin, sha256, world, model, state] = first;
    let [calls, times, fallbacks, memory] = ["CALLS/S", "p50 / p99", "FALLBACKS", "MEMORY"].map(number);
    let columns = [plugin, sha256, world, model, state, calls, times, fallbacks, memory, text("")];
    let sha = |plugin: &Summary| plugin.sha256.get(..7).unwrap_or(&plugin.sha256).to_owned();
    let first = |p: &Summary| [format!("{} {}", p.name, p.version), sha(p), p.world.clone()];
    let idle = |p: &Summary| {
        let [name, sha, world] = first(p);
        let none = String::new;
        [name, sha, world, "-".to_owned(), none(), none(), none(), none(), none(), none()]
    };
    let attached = |p: &Summary, a: &Attached| {
        let [name, sha, world] = first(p);
        let micros = |us: f64| numbers::span(us / 1e6);
        [
            name,
            sha,
            world,
            a.model.clone(),
            format!("{:?}", a.state).to_lowercase(),
            numbers::rate(a.calls_per_second),
            format!("{} / {}", micros(a.p50_us), micros(a.p99_us)),
            a.fallbacks.to_string(),
            format!("{} / {}", human(a.memory), human(a.memory_limit)),
            if a.from_file { "" } else { "runtime, not saved" }.to_owned(),
        ]
    };
    let rows = plugins.iter().flat_map(|plugin| {
        let rows: Vec<_> = plugin.attached.iter().map(|a| attached(plugin, a)).collect();
        if rows.is_empty() { vec![idle(plugin)] } else { rows }
    });
    table(out, "Plug-ins", columns, rows);
}

/// The line below a table with hashes of ids.
const OF_HASHES: &str = "<p>#… is the hash of a text id, hidden by <code>[admin] peek = false</code>. \
     <code>sequor sequence show MODEL ID</code> prints the hash of an id.</p>";

fn changes(out: &mut String, report: &StatusReport) {
    if report.changes.is_empty() {
        return;
    }
    let cells = |change: &crate::api::audit::Change| {
        let refused = change.refused.as_ref().map(|why| format!("refused: {why}"));
        [&change.at, &change.by, change.what, &change.on, &refused.unwrap_or_default()].map(str::to_owned)
    };
    table(out, "Changes", ["AT", "BY", "WHAT", "ON", ""].map(text), report.changes.iter().map(cells));
    if report.changes.iter().any(|change| names_a_hash(change.what, &change.on)) {
        out.push_str(OF_HASHES);
    }
}

/// Escapes a name for HTML, because names may contain markup.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_in_html() {
        assert_eq!(escaped("<b a=\"1\">&"), "&lt;b a=&quot;1&quot;&gt;&amp;");
    }

    #[test]
    fn number_columns_are_marked_for_alignment() {
        let mut out = String::new();
        let rows = [["a", "7"], ["b", "1,000"]].map(|row| row.map(str::to_owned));
        table(&mut out, "T", [text("NAME"), number("COUNT")], rows.into_iter());
        assert!(out.contains("<tr><th>NAME</th><th class=\"n\">COUNT</th></tr>"), "{out}");
        assert!(out.contains("<tr><td>b</td><td class=\"n\">1,000</td></tr>"), "{out}");
    }

    #[test]
    fn facts_are_rendered_as_separate_spans() {
        let mut out = String::new();
        facts(&mut out, ["a 1", "b 2"].map(str::to_owned).into_iter());
        assert_eq!(out, "<p class=\"facts\"><span>a 1</span> <span>b 2</span> </p>\n");
    }
}
