//! What was seen, pair by pair, and the line that comes of it.

use std::time::Duration;

use crate::load::Seen;

/// How much more the p99 of the model beside may be.
const MAY: f64 = 1.05;

/// Two windows side by side.
#[derive(Debug, Default)]
pub(crate) struct Pair {
    pub(crate) built_in: Seen,
    pub(crate) hostile: Seen,
    /// How often the plug-in was asked, in a second.
    pub(crate) asked: f64,
}

pub(crate) struct Case {
    name: &'static str,
    /// What a request of the plug-in's model may take.
    limit: Duration,
    pub(crate) pairs: Vec<Pair>,
}

pub(crate) fn head(pairs: usize, window: Duration) {
    println!(
        "{pairs} pairs of windows of {window:?}; the model beside it: p99, and by how much it moves (the middle pair);"
    );
    println!(
        "A/A: the same of windows with the built-in policy, one after the other (the middle, and from least to most)\n"
    );
    println!(
        "{:<10} {:>8} | {:>9} {:>9} {:>7} {:>22} {:<13} | {:>9} {:>9} {:>9} {:>9} {:<8}",
        "", "asked/s", "beside", "with it", "moves", "A/A", "", "its own", "with it", "slowest", "limit", ""
    );
}

pub(crate) fn foot() {
    println!("\nmilliseconds; `slowest`: of all windows with the plug-in, beside it in brackets of those without");
}

impl Case {
    pub(crate) fn new(name: &'static str, limit: Duration) -> Case {
        Case { name, limit, pairs: Vec::new() }
    }

    pub(crate) fn print(&self) {
        let beside = |seen: &Seen| quantile(&seen.beside, 0.99);
        let without: Vec<f64> = self.pairs.iter().map(|pair| beside(&pair.built_in)).collect();
        let with: Vec<f64> = self.pairs.iter().map(|pair| beside(&pair.hostile)).collect();
        let moves = middle(with.iter().zip(&without).map(|(with, without)| with / without).collect());
        let noise: Vec<f64> = without.windows(2).map(|two| two[1] / two[0]).collect();
        let (least, most) = (lowest(&noise), highest(&noise));
        let verdict = match moves {
            m if m <= MAY => "ok",
            m if m <= most => "within A/A",
            _ => "MISSED",
        };
        let own = |of: fn(&Pair) -> &Seen| middle(self.pairs.iter().map(|p| quantile(&of(p).decided, 0.99)).collect());
        let slowest = |of: fn(&Pair) -> &Seen| {
            highest(&self.pairs.iter().map(|p| quantile(&of(p).decided, 1.0)).collect::<Vec<_>>())
        };
        let (slow, slow_without) = (slowest(|pair| &pair.hostile), slowest(|pair| &pair.built_in));
        let limit = self.limit.as_secs_f64() * 1e3;
        let held = match slow {
            slow if slow <= limit => "ok",
            _ if slow_without > limit => "so without",
            _ => "MISSED",
        };
        println!(
            "{:<10} {:>8.0} | {:>9.2} {:>9.2} {:>+6.1} % {:>22} {verdict:<13} | {:>9.2} {:>9.2} {slow:>9.1} {limit:>9.0} {held} ({slow_without:.1})",
            self.name,
            middle(self.pairs.iter().map(|pair| pair.asked).collect()),
            middle(without.clone()),
            middle(with.clone()),
            (moves - 1.0) * 100.0,
            format!(
                "{:+.1} % ({:+.0} .. {:+.0})",
                (middle(noise.clone()) - 1.0) * 100.0,
                (least - 1.0) * 100.0,
                (most - 1.0) * 100.0
            ),
            own(|pair| &pair.built_in),
            own(|pair| &pair.hostile),
        );
    }
}

/// Of ascending values.
fn quantile(of: &[f64], share: f64) -> f64 {
    let rank = ((of.len() as f64 * share).ceil() as usize).clamp(1, of.len());
    of[rank - 1]
}

fn middle(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    match of.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => of[n / 2],
        n => f64::midpoint(of[n / 2 - 1], of[n / 2]),
    }
}

fn lowest(of: &[f64]) -> f64 {
    of.iter().copied().fold(f64::INFINITY, f64::min)
}

fn highest(of: &[f64]) -> f64 {
    of.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}
