//! The status page: one HTML that says everything without script. Unknown figures are left out.

use std::fmt::Write as _;

use super::format;
use super::status::{Report, Server, Version};
use crate::config::units::human;
use crate::scheduling::report::{Attached, State, Summary};

const STYLE: &str = "body{font:14px/1.5 ui-monospace,monospace;margin:2em;color:#222;background:#fff}\
    table{border-collapse:collapse;margin:.5em 0 1.5em}th,td{padding:.1em 1.2em .1em 0;text-align:left;white-space:nowrap}\
    th{font-weight:600;color:#666}td.n,th.n{text-align:right}h2{font-size:1em;margin:0}.bad{color:#b00}.good{color:#080}\
    p{margin:.3em 0 1em}@media(prefers-color-scheme:dark){body{color:#ddd;background:#111}.bad{color:#f66}.good{color:#6c6}}";

/// The whole page.
pub(super) fn page(report: &Report) -> String {
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
    plugins(&mut out, &report.plugins);
    changes(&mut out, report);
    out.push_str("<p><a href=\"/admin/status.json\">the same as JSON</a></p>\n</body></html>\n");
    out
}

fn head(out: &mut String, server: &Server) {
    let Server { version, node, runtime, phase, ready, .. } = server;
    let class = if *ready { "good" } else { "bad" };
    let limit = server.state_limit.map(|limit| format!(" / {}", human(limit))).unwrap_or_default();
    let memory = server.memory_bytes.map(|bytes| format!("   rss {}", human(bytes))).unwrap_or_default();
    let state = human(server.state_bytes);
    let _ = writeln!(
        out,
        "<p><b>sequor {version}</b>   {}   <b class=\"{class}\">{}</b> up {}   {} requests in flight   {} live sequences   \
         state {state}{limit}{memory}   {}</p>",
        escaped(node),
        phase.to_uppercase(),
        format::up(server.up_seconds),
        server.in_flight,
        server.live_sequences,
        escaped(runtime),
    );
}

fn row<'t>(out: &mut String, cell: &str, cells: impl IntoIterator<Item = &'t str>) {
    out.push_str("<tr>");
    for text in cells {
        let _ = write!(out, "<{cell}>{}</{cell}>", escaped(text));
    }
    out.push_str("</tr>\n");
}

fn table<const N: usize>(out: &mut String, title: &str, heads: [&str; N], rows: impl Iterator<Item = [String; N]>) {
    let _ = writeln!(out, "<h2>{}</h2><table>", escaped(title));
    row(out, "th", heads);
    for cells in rows {
        row(out, "td", cells.iter().map(String::as_str));
    }
    out.push_str("</table>\n");
}

fn models(out: &mut String, report: &Report) {
    let heads = [
        "MODEL",
        "V",
        "STATE",
        "INST",
        "LIVE",
        "SLOTS",
        "BACKLOG",
        "REQ/S",
        "BATCH p50/max",
        "QUEUE p99 ≤",
        "REQUEST p50/p99 ≤",
        "FAILED",
        "SCHEDULER",
    ];
    let seconds = report.server.rates_over_seconds;
    let title = format!("Models (REQ/S over the last {}; batches and times since the start)", format::span(seconds));
    let scheduler = |version: &Version| {
        let by = |plugin: &Summary| {
            let here = plugin
                .attached
                .iter()
                .any(|a| a.state == State::Active && a.model == version.model && Some(a.version) == version.version);
            here.then(|| format!("{}@{}", plugin.name, plugin.sha256.get(..7).unwrap_or(&plugin.sha256)))
        };
        report.plugins.iter().find_map(by).or(version.strategy.map(str::to_owned)).unwrap_or_default()
    };
    let spans = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => format!("{} / {}", format::span(a), format::span(b)),
        _ => String::new(),
    };
    let cells = |v: &Version| {
        [
            v.model.clone(),
            v.version.map(|n| n.to_string()).unwrap_or_default(),
            v.state.to_lowercase(),
            v.instances.to_string(),
            v.live.to_string(),
            if v.slots == 0 { "-".to_owned() } else { format!("{}/{}", v.slots_used, v.slots) },
            v.backlog.to_string(),
            format::rate(v.requests_per_second),
            v.batch_p50.zip(v.batch_max).map(|(p50, max)| format!("{p50} / {max}")).unwrap_or_default(),
            v.queue_p99_seconds.map(format::span).unwrap_or_default(),
            spans(v.request_p50_seconds, v.request_p99_seconds),
            v.failures.to_string(),
            scheduler(v),
        ]
    };
    table(out, &title, heads, report.models.iter().map(cells));
}

fn ended(out: &mut String, report: &Report) {
    let said: Vec<String> = report.ended.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    let said = if said.is_empty() { "none has ended".to_owned() } else { said.join("   ") };
    let _ = writeln!(out, "<h2>Why sequences ended (since the start)</h2><p>{}</p>", escaped(&said));
}

fn plugins(out: &mut String, plugins: &[Summary]) {
    if plugins.is_empty() {
        return;
    }
    let heads = ["PLUG-IN", "SHA256", "WORLD", "MODEL", "STATE", "CALLS/S", "p50 / p99", "FALLBACKS", "MEMORY", ""];
    let sha = |plugin: &Summary| plugin.sha256.get(..7).unwrap_or(&plugin.sha256).to_owned();
    let first = |p: &Summary| [format!("{} {}", p.name, p.version), sha(p), p.world.clone()];
    let idle = |p: &Summary| {
        let [name, sha, world] = first(p);
        let none = String::new;
        [name, sha, world, "-".to_owned(), none(), none(), none(), none(), none(), none()]
    };
    let attached = |p: &Summary, a: &Attached| {
        let [name, sha, world] = first(p);
        let micros = |us: f64| format::span(us / 1e6);
        [
            name,
            sha,
            world,
            a.model.clone(),
            format!("{:?}", a.state).to_lowercase(),
            format::rate(a.calls_per_second),
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
    table(out, "Plug-ins", heads, rows);
}

fn changes(out: &mut String, report: &Report) {
    if report.changes.is_empty() {
        return;
    }
    let cells = |change: &super::audit::Change| {
        let refused = change.refused.as_ref().map(|why| format!("refused: {why}"));
        [&change.at, &change.by, change.what, &change.on, &refused.unwrap_or_default()].map(str::to_owned)
    };
    table(out, "Changes", ["AT", "BY", "WHAT", "ON", ""], report.changes.iter().map(cells));
}

/// Names may be anything; a page is made of markup.
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
    fn names_are_no_markup() {
        assert_eq!(escaped("<b a=\"1\">&"), "&lt;b a=&quot;1&quot;&gt;&amp;");
    }
}
