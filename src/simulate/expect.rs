//! The expectations of a plug-in's test case (`[expect]` in a workload's file). `sequor plugin test` compares them with the outcome;
//! `sequor simulate` ignores them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::outcome::Outcome;
use crate::config::units::Span;

/// Bounds of a run. A bound that is not given is not checked, except `fallbacks`: by default no round may fall back.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    /// Maximum rounds that the server decided itself.
    fallbacks: u64,
    /// Minimum share of the requests.
    answered: Option<Share>,
    /// Maximum share of the requests.
    rejected: Option<Share>,
    /// Maximum share of the requests with a deadline.
    missed: Option<Share>,
    /// Minimum mean of requests per batch.
    batch: Option<f64>,
    /// Maximum median of the waiting time.
    wait_p50: Option<Span>,
    wait_p99: Option<Span>,
    /// Maximum for the tenant that waits longest.
    worst_tenant_p99: Option<Span>,
}

/// `99.5 %`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Share(f64);

impl Expect {
    /// The expectations that did not hold, in sentences.
    pub fn against(&self, run: &Outcome) -> Vec<String> {
        let share = |part: u64, of: u64| Share(if of == 0 { 0.0 } else { part as f64 / of as f64 });
        let mut wrong = Vec::new();
        let mut hold = |holds: bool, what: String| wrong.extend((!holds).then_some(what));
        let fallbacks = run.rounds.as_ref().map_or(0, |rounds| rounds.fallbacks);
        hold(fallbacks <= self.fallbacks, format!("{fallbacks} fallbacks, at most {} expected", self.fallbacks));
        if let Some(least) = self.answered {
            let answered = share(run.answered, run.requests);
            hold(answered.0 >= least.0, format!("{answered} of the requests answered, at least {least} expected"));
        }
        if let Some(most) = self.rejected {
            let rejected = share(run.rejected, run.requests);
            hold(rejected.0 <= most.0, format!("{rejected} of the requests rejected, at most {most} expected"));
        }
        if let Some(most) = self.missed {
            let missed = run.deadlines.map_or(Share(0.0), |deadlines| share(deadlines.missed, deadlines.requests));
            hold(missed.0 <= most.0, format!("{missed} of the deadlines missed, at most {most} expected"));
        }
        if let Some(least) = self.batch {
            hold(
                run.batches.mean >= least,
                format!("{:.1} requests a batch, at least {least} expected", run.batches.mean),
            );
        }
        let worst = run.worst_tenant().map_or(0.0, |tenant| tenant.wait.p99_us);
        for (name, most, is) in [
            ("wait p50", self.wait_p50, run.wait.p50_us),
            ("wait p99", self.wait_p99, run.wait.p99_us),
            ("wait p99 of the worst tenant", self.worst_tenant_p99, worst),
        ] {
            let Some(most) = most else { continue };
            let shown = Span(Duration::from_micros(is as u64));
            hold(is <= most.0.as_secs_f64() * 1e6, format!("{name} {shown}, at most {most} expected"));
        }
        wrong
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let number = text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let share = number.filter(|n| (0.0..=100.0).contains(n));
        share.map(|n| Share(n / 100.0)).ok_or_else(|| format!("\"{text}\" is not a share (as \"99.5 %\")"))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", (self.0 * 1e4).round() / 100.0)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Share, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::simulate::file::WorkloadFile;
    use crate::simulate::{ComparedPolicy, Costs, Experiment};

    fn held(expect: &str) -> Vec<String> {
        let text =
            format!("for = \"1s\"\n[[poisson]]\nrate = \"2000/s\"\nsequences = 50\ndeadline = \"1ms\"\n{expect}");
        let file = WorkloadFile::read(Path::new("case.toml"), &text).unwrap();
        let experiment = Experiment {
            workload: file.workload(1).unwrap(),
            serving: file.serve.clone().resolve().unwrap(),
            costs: Costs::default(),
            policies: vec![ComparedPolicy::named("oldest").unwrap()],
            seed: 1,
        };
        file.expect.against(&experiment.run().runs[0])
    }

    #[test]
    fn a_run_is_compared_with_its_expectations() {
        assert_eq!(held("[expect]\nanswered = \"100 %\"\nwait_p99 = \"1s\"\nrejected = \"0 %\"\n"), [""; 0]);
        let wrong = held("[expect]\nmissed = \"1 %\"\nbatch = 31\nwait_p50 = \"1us\"\n");
        assert!(wrong[0].ends_with("of the deadlines missed, at most 1 % expected"), "{wrong:?}");
        assert!(wrong[1].ends_with("requests a batch, at least 31 expected"), "{wrong:?}");
        assert!(wrong[2].starts_with("wait p50 ") && wrong.len() == 3, "{wrong:?}");
    }

    #[test]
    fn invalid_expectations_are_refused_with_their_place() {
        let read = |text: &str| WorkloadFile::read(Path::new("case.toml"), text).unwrap_err().to_string();
        assert!(read("[expect]\nmissed = \"1\"\n").contains("case.toml:2"), "{}", read("[expect]\nmissed = \"1\"\n"));
        assert!(read("[expect]\nmised = \"1 %\"\n").contains("mised"));
    }
}
