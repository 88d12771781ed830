//! The results, pair by pair, and the printed line for each case.

use std::time::Duration;

use crate::load::Seen;

/// Maximum ratio of the p99 of the model next to the plug-in's.
const MAY: f64 = 1.05;
const P99: f64 = 0.99;

/// Two adjacent windows.
#[derive(Debug, Default)]
pub(crate) struct Pair {
    pub(crate) built_in: Seen,
    pub(crate) hostile: Seen,
    /// Calls of the plug-in a second.
    pub(crate) asked: f64,
    /// The plug-in's state at the end.
    pub(crate) state: String,
}

pub(crate) struct Case {
    name: &'static str,
    /// Maximum time of a request of the plug-in's model.
    limit: Duration,
    pub(crate) pairs: Vec<Pair>,
}

pub(crate) fn head(pairs: usize, window: Duration) {
    println!(
        "{pairs} pairs of windows of {window:?}; the model beside it: p99 of all windows, and by how much it moves;"
    );
    println!("A/A: the same of every other window with the built-in policy over those between them\n");
    println!(
        "{:<10} {:>8} {:<10} | {:>9} {:>9} {:>8} {:>8} {:<10} | {:>9} {:>9} {:>9} {:>9} {:<8}",
        "", "asked/s", "", "beside", "with it", "moves", "A/A", "", "its own", "with it", "slowest", "limit", ""
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
        let beside = |share: f64, of: fn(&Pair) -> &Seen, half: fn(usize) -> bool| {
            let some = self.pairs.iter().enumerate().filter(|(n, _)| half(*n));
            quantile(share, some.flat_map(|(_, pair)| &of(pair).beside))
        };
        let both =
            |share| (beside(share, |pair| &pair.built_in, |_| true), beside(share, |pair| &pair.hostile, |_| true));
        let (without, with) = both(P99);
        let halves = [|n| n % 2 == 0, |n| n % 2 == 1].map(|half| beside(P99, |pair| &pair.built_in, half));
        let (moves, noise) = (with / without, halves[1] / halves[0]);
        let verdict = match moves {
            m if m <= MAY => "ok",
            m if m <= noise.max(1.0 / noise) => "within A/A",
            _ => "MISSED",
        };
        let own = |of: fn(&Pair) -> &Seen| quantile(P99, self.pairs.iter().flat_map(|pair| &of(pair).decided));
        let slowest = |of: fn(&Pair) -> &Seen| {
            self.pairs.iter().flat_map(|pair| &of(pair).decided).copied().fold(f64::NEG_INFINITY, f64::max)
        };
        let (slow, slow_without) = (slowest(|pair| &pair.hostile), slowest(|pair| &pair.built_in));
        let limit = self.limit.as_secs_f64() * 1e3;
        let held = match slow {
            slow if slow <= limit => "ok",
            _ if slow_without > limit => "so without",
            _ => "MISSED",
        };
        println!(
            "{:<10} {:>8.0} {:<10} | {without:>9.2} {with:>9.2} {:>+6.1} % {:>+6.1} % {verdict:<10} | {:>9.2} {:>9.2} {slow:>9.1} {limit:>9.0} {held} ({slow_without:.1})",
            self.name,
            self.pairs.iter().map(|pair| pair.asked).sum::<f64>() / self.pairs.len() as f64,
            self.pairs.last().map_or("", |pair| &pair.state),
            (moves - 1.0) * 100.0,
            (noise - 1.0) * 100.0,
            own(|pair| &pair.built_in),
            own(|pair| &pair.hostile),
        );
        // On a noisy machine, the slowest of a hundred show the machine rather than the plug-in.
        let [half, nine] = [0.5, 0.9].map(both).map(|(without, with)| format!("{without:.2} -> {with:.2}"));
        println!("{:<10} beside, half of them within {half}, nine in ten within {nine}", "");
    }
}

/// The value that this share of the numbers does not exceed.
pub(crate) fn quantile<'a>(share: f64, of: impl Iterator<Item = &'a f64>) -> f64 {
    let mut of: Vec<f64> = of.copied().collect();
    of.sort_by(f64::total_cmp);
    let rank = ((of.len() as f64 * share).ceil() as usize).clamp(1, of.len());
    of[rank - 1]
}
