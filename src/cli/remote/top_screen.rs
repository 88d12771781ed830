//! The text of `sequor top`: an activity of a server as lines, cut to the size of a terminal.

use std::fmt::Write as _;

use super::readings::{PhaseShare, PluginTrouble, ReasonActivity, ServerActivity, ServerReading, VersionActivity};
use crate::cli::terminal::ScreenSize;
use crate::config::units::human;
use crate::text::numbers::{rate, span, uptime};
use crate::text::table;

/// Maximum warnings, reasons and phases that are shown.
const WARNINGS: usize = 5;
const REASONS: usize = 8;
const PHASES: usize = 4;

/// The whole screen.
pub(super) fn screen(activity: &ServerActivity) -> String {
    let mut out = head(&activity.server, activity.seconds);
    for warning in activity.warnings.iter().take(WARNINGS) {
        let _ = writeln!(out, "! {warning}");
    }
    if let Some(more) = activity.warnings.len().checked_sub(WARNINGS).filter(|more| *more > 0) {
        let _ = writeln!(out, "! and {more} more: sequor status");
    }
    let heads = [
        "MODEL",
        "V",
        "STATE",
        "LIVE",
        "SLOTS",
        "WAITING",
        "QUEUE",
        "REQ/S",
        "EXEC/S",
        "BATCH",
        "FAILED/S",
        "STATES",
        "WHERE THE TIME GOES",
    ];
    let _ = write!(out, "\n{}", table(&heads, &activity.models.iter().map(version).collect::<Vec<_>>()));
    reasons(&mut out, "ENDED", &activity.ended);
    reasons(&mut out, "REFUSED", &activity.refused);
    if !activity.plugins.is_empty() {
        let heads = ["PLUG-IN", "MODEL", "V", "STATE", "CALLS/S", "FALLBACKS/S", "STRIKES", "LAST FAULT"];
        let _ = write!(out, "\n{}", table(&heads, &activity.plugins.iter().map(plugin).collect::<Vec<_>>()));
    }
    out
}

fn head(server: &ServerReading, seconds: f64) -> String {
    let ServerReading { version, node, phase, up_seconds, in_flight, live_sequences, state_bytes, .. } = server;
    let limit = server.state_limit.map_or_else(String::new, |limit| format!(" of {}", human(limit)));
    let memory = server.memory_bytes.map_or_else(String::new, |bytes| format!("   memory {}", human(bytes)));
    let mut out = format!(
        "{node}  {phase} for {}   sequor {version}   rates over {}\n\
         requests in flight {in_flight}   live sequences {live_sequences}   state {}{limit}{memory}\n",
        uptime(*up_seconds),
        span(seconds),
        human(*state_bytes),
    );
    let own = env!("CARGO_PKG_VERSION");
    if version != own {
        let _ =
            writeln!(out, "! this command is sequor {own}: what only one of the two versions knows is left out, or 0");
    }
    out
}

fn version(of: &VersionActivity) -> [String; 13] {
    [
        of.model.clone(),
        of.version.to_string(),
        of.state.clone(),
        of.live.to_string(),
        if of.slots == 0 { "-".to_owned() } else { format!("{}/{}", of.slots_used, of.slots) },
        of.waiting.to_string(),
        of.queued.to_string(),
        rate(of.requests_per_second),
        rate(of.executions_per_second),
        of.batch_mean.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.1}")),
        rate(of.failures_per_second),
        human(of.state_bytes),
        of.phases.iter().take(PHASES).map(phase).collect::<Vec<_>>().join("  "),
    ]
}

fn phase(PhaseShare { phase, share }: &PhaseShare) -> String {
    format!("{phase} {:.0}%", share * 100.0)
}

fn reasons(out: &mut String, title: &str, rows: &[ReasonActivity]) {
    if rows.is_empty() {
        return;
    }
    let cells = |row: &ReasonActivity| {
        let model = if row.model.is_empty() { "-" } else { row.model.as_str() };
        let version = row.version.map_or_else(String::new, |version| format!(" {version}"));
        [row.reason.clone(), format!("{model}{version}"), rate(row.per_second), row.count.to_string()]
    };
    let shown: Vec<_> = rows.iter().take(REASONS).map(cells).collect();
    let _ = write!(out, "\n{}", table(&[title, "MODEL", "/S", "SINCE START"], &shown));
}

fn plugin(of: &PluginTrouble) -> [String; 8] {
    [
        of.plugin.clone(),
        of.model.clone(),
        of.version.to_string(),
        of.state.clone(),
        rate(of.calls_per_second),
        rate(of.fallbacks_per_second),
        of.strikes.to_string(),
        of.last_fault.clone().unwrap_or_default(),
    ]
}

/// Cuts a text to the size of a terminal, so that no line wraps and nothing scrolls. The last line explains the keys.
pub(super) fn fitted(text: &str, notice: Option<&str>, ScreenSize { columns, rows }: ScreenSize) -> String {
    let cut = |line: &str| line.chars().take(columns).collect::<String>();
    let notice = notice.map(|notice| format!("! {notice}"));
    let lines = notice.iter().map(String::as_str).chain(text.lines());
    let shown: Vec<String> = lines.take(rows.saturating_sub(1)).map(cut).collect();
    shown.join("\n") + "\n" + &cut("q leaves")
}

#[cfg(test)]
mod tests {
    use super::super::readings::tests::steady;
    use super::*;

    #[test]
    fn a_screen_shows_the_busiest_model_and_what_went_wrong() {
        insta::assert_snapshot!(screen(&ServerActivity::between(&steady(7384), &steady(7385))));
    }

    #[test]
    fn an_idle_server_and_one_of_another_version_have_a_screen() {
        let idle = screen(&ServerActivity::default());
        assert!(idle.contains("! this command is sequor") && idle.contains("\nMODEL  V  STATE"), "{idle}");
        assert!(!idle.contains("ENDED") && !idle.contains("PLUG-IN"), "{idle}");
    }

    #[test]
    fn a_screen_is_cut_to_the_terminal() {
        let size = ScreenSize { columns: 5, rows: 3 };
        assert_eq!(fitted("a long line\nshort\nthird\n", None, size), "a lon\nshort\nq lea");
        assert_eq!(fitted("first\n", Some("gone"), size), "! gon\nfirst\nq lea");
        assert_eq!(fitted("first\n", None, ScreenSize { columns: 80, rows: 24 }), "first\nq leaves");
    }
}
