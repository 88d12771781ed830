//! Run time of a batch and time of a policy's round: interpolated tables, with random variation if wanted.

use std::path::Path;
use std::time::Duration;

use sequor_core::Time;
use serde::Deserialize;

use super::SimulateError;
use super::random::Random;
use super::slowdown_trace::{RecordedBatch, SlowdownTrace};
use crate::config::toml_file;
use crate::config::{Fault, fault};

/// A table of costs.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// Run times by rows, ascending; at least one.
    points: Vec<Point>,
    /// The share by which a run time may vary, up or down.
    jitter: f64,
    /// Slowdowns of a recorded day.
    slowdowns: SlowdownTrace,
    plan: PolicyCost,
    /// The source of the table, for the report.
    pub origin: String,
}

/// The run time of a batch with this many rows.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    pub batch: u32,
    pub micros: f64,
}

/// The cost of a round of an external policy. Built-in policies take no time.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyCost {
    pub micros: f64,
    /// Added for each candidate shown.
    pub nanos_each: f64,
    /// Instructions of a plug-in per microsecond.
    pub instructions_a_micro: f64,
}

impl Default for PolicyCost {
    /// Between 64 and 1,024 candidates the guests `edf` and `fair-share` ran 9,200 and 8,200 in a microsecond (`cargo bench --bench plugin`).
    fn default() -> Self {
        PolicyCost { micros: 0.0, nanos_each: 0.0, instructions_a_micro: 8000.0 }
    }
}

/// The file of a cost table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CostFile {
    /// The day of the measurement.
    measured: Option<String>,
    /// The device of the measurement.
    device: Option<String>,
    #[serde(default)]
    jitter: f64,
    #[serde(default)]
    plan: PolicyCost,
    #[serde(default)]
    point: Vec<Point>,
}

impl Costs {
    /// Parses a table.
    pub fn read(path: &Path, text: &str) -> Result<Costs, SimulateError> {
        let file: CostFile = toml_file::read(path, text)?;
        let wrong = |keys: &[&str], what: &str| {
            SimulateError::Fault(Fault {
                at: toml_file::place(text, keys).at(path),
                code: fault::code::VALUE,
                what: what.to_owned(),
            })
        };
        if !(0.0..1.0).contains(&file.jitter) {
            return Err(wrong(&["jitter"], "jitter is a share of the time: 0 or more, and less than 1"));
        }
        if !(span_like(file.plan.micros) && span_like(file.plan.nanos_each)) {
            return Err(wrong(&["plan"], "a plan takes 0 or more"));
        }
        if !(span_like(file.plan.instructions_a_micro) && file.plan.instructions_a_micro > 0.0) {
            return Err(wrong(&["plan", "instructions_a_micro"], "a microsecond has more than 0 instructions"));
        }
        if file.point.is_empty() {
            return Err(wrong(&[], "no [[point]]: a cost table needs at least one, as batch = 1, micros = 900"));
        }
        let mut before = 0;
        for (n, point) in file.point.iter().enumerate() {
            let n = n.to_string();
            if point.batch <= before {
                return Err(wrong(&["point", &n, "batch"], "the points' batches must ascend, from 1 on"));
            }
            if !(span_like(point.micros) && point.micros > 0.0) {
                return Err(wrong(&["point", &n, "micros"], "a run takes more than 0 microseconds"));
            }
            before = point.batch;
        }
        let about =
            [file.measured.map(|day| format!("measured {day}")), file.device.map(|device| format!("on {device}"))];
        let about: Vec<String> = about.into_iter().flatten().collect();
        let origin = format!(
            "cost table {}{}",
            count(file.point.len()),
            if about.is_empty() { String::new() } else { format!(", {}", about.join(" ")) }
        );
        Ok(Costs {
            points: file.point,
            jitter: file.jitter,
            slowdowns: SlowdownTrace::default(),
            plan: file.plan,
            origin,
        })
    }

    /// A table with the median time of each observed batch size, and the slowness of the machine at each moment. `None` without
    /// observations.
    pub fn observed(mut seen: Vec<RecordedBatch>) -> Option<Costs> {
        seen.retain(|run| run.batch > 0 && run.micros > 0);
        seen.sort_unstable();
        let (mut points, mut slowdowns) = (Vec::new(), Vec::with_capacity(seen.len()));
        for same in seen.chunk_by(|a, b| a.batch == b.batch) {
            let Some(RecordedBatch { batch, micros, .. }) = same.get(same.len() / 2).copied() else { continue };
            points.push(Point { batch, micros: micros as f64 });
            slowdowns.extend(same.iter().map(|run| (run.at, run.micros as f64 / micros as f64)));
        }
        let origin = format!("costs of the trace, {}", count(points.len()));
        let costs = Costs {
            points,
            jitter: 0.0,
            slowdowns: SlowdownTrace::new(slowdowns),
            plan: PolicyCost::default(),
            origin,
        };
        (!costs.points.is_empty()).then_some(costs)
    }

    /// The same costs, without the slowdowns of the recorded day.
    #[must_use]
    pub fn steady(self) -> Costs {
        Costs { slowdowns: SlowdownTrace::default(), ..self }
    }

    /// The same costs, with another cost of an external policy's rounds.
    #[must_use]
    pub fn with_plan(self, plan: PolicyCost) -> Costs {
        Costs { plan, ..self }
    }

    /// The same costs, with random variation by this share.
    #[must_use]
    pub fn with_jitter(self, jitter: f64) -> Costs {
        Costs { jitter, ..self }
    }

    /// The run time of a batch of this many rows that begins at `now`.
    pub fn run(&self, rows: usize, now: Time, random: &mut Random) -> Duration {
        let micros = self.micros(rows as f64) * self.slowdowns.slowness(now);
        let factor = if self.jitter > 0.0 { 1.0 + self.jitter * (2.0 * random.unit() - 1.0) } else { 1.0 };
        // No run takes zero time, so that time advances.
        Duration::from_nanos(((micros * factor * 1e3).round() as u64).max(1))
    }

    /// The time of a policy's round with this many candidates. `instructions`: its count, if instructions are counted.
    pub fn plan(&self, candidates: u32, instructions: Option<u64>) -> Duration {
        let PolicyCost { micros, nanos_each, instructions_a_micro } = self.plan;
        let own = instructions.unwrap_or(0) as f64 / instructions_a_micro;
        Duration::from_nanos(((micros + own) * 1e3 + nanos_each * f64::from(candidates)).round() as u64)
    }

    /// Interpolates between two points. Beyond the last it extends the line of the last two. Before the first it returns the first.
    fn micros(&self, rows: f64) -> f64 {
        let at = |p: &Point| f64::from(p.batch);
        let above = self.points.iter().position(|p| at(p) >= rows).unwrap_or(self.points.len());
        let upper = above.clamp(1, self.points.len().saturating_sub(1).max(1));
        let (Some(low), Some(high)) = (self.points.get(upper - 1), self.points.get(upper)) else {
            return self.points.first().map_or(0.0, |p| p.micros);
        };
        if rows <= at(low) {
            return low.micros;
        }
        // A table may decrease at its end. The result stays at or above the lower of the two points.
        (low.micros + (high.micros - low.micros) * (rows - at(low)) / (at(high) - at(low)))
            .max(low.micros.min(high.micros))
    }
}

impl Default for Costs {
    /// A small recurrent model on a few cores: most of a run's time does not depend on the number of rows.
    fn default() -> Self {
        let points = [(1, 900.0), (8, 1400.0), (64, 4900.0)].map(|(batch, micros)| Point { batch, micros });
        let origin = "built-in cost table (1 row 0.9 ms, 64 rows 4.9 ms; --cost FILE gives your own)".to_owned();
        Costs {
            points: points.to_vec(),
            jitter: 0.0,
            slowdowns: SlowdownTrace::default(),
            plan: PolicyCost::default(),
            origin,
        }
    }
}

fn span_like(number: f64) -> bool {
    number.is_finite() && number >= 0.0
}

fn count(points: usize) -> String {
    format!("{points} point{}", if points == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Costs, String> {
        Costs::read(Path::new("c.toml"), text).map_err(|e| e.to_string())
    }

    const TABLE: &str = "measured = \"2026-11-20\"\n[[point]]\nbatch = 2\nmicros = 100\n[[point]]\nbatch = 4\nmicros = 200\n[[point]]\nbatch = 8\nmicros = 600\n";

    #[test]
    fn run_times_are_linear_between_and_beyond_the_measured_points() {
        let costs = read(TABLE).unwrap();
        let mut random = Random::new(1, 1);
        let micros: Vec<u128> =
            [1, 2, 3, 4, 6, 8, 10].iter().map(|n| costs.run(*n, Time::ZERO, &mut random).as_micros()).collect();
        assert_eq!(micros, [100, 100, 150, 200, 400, 600, 800]);
        assert_eq!(costs.origin, "cost table 3 points, measured 2026-11-20");
        let one = read("[[point]]\nbatch = 1\nmicros = 7\n").unwrap();
        assert_eq!(one.run(50, Time::ZERO, &mut random), Duration::from_micros(7));
    }

    #[test]
    fn jitter_stays_within_its_share_and_repeats_for_a_seed() {
        let costs = read(TABLE).unwrap().with_jitter(0.1);
        let draw = || {
            let mut r = Random::new(5, 0);
            (0..100).map(|_| costs.run(4, Time::ZERO, &mut r).as_nanos()).collect::<Vec<_>>()
        };
        assert_eq!(draw(), draw());
        assert!(draw().iter().all(|n| (180_000..=220_000).contains(n)) && draw().iter().any(|n| *n != 200_000));
    }

    #[test]
    fn an_invalid_cost_table_is_refused_at_its_line() {
        assert_eq!(
            read("jitter = 1.0\n").unwrap_err(),
            "c.toml:1:1: jitter is a share of the time: 0 or more, and less than 1"
        );
        assert!(read("").unwrap_err().contains("no [[point]]"));
        let twice = "[[point]]\nbatch = 2\nmicros = 1\n[[point]]\nbatch = 2\nmicros = 1\n";
        assert_eq!(read(twice).unwrap_err(), "c.toml:5:1: the points' batches must ascend, from 1 on");
        assert!(read("[[point]]\nbatch = 2\nmicros = 0\n").unwrap_err().starts_with("c.toml:3:1"));
        assert!(read("[[point]]\nrows = 2\n").unwrap_err().contains("unknown field `rows`"));
    }

    #[test]
    fn observed_runs_give_a_table_of_medians_and_slow_moments() {
        let run = |(batch, micros, at)| RecordedBatch { batch, micros, at: Time(at) };
        let seen = [(4, 30, 0), (1, 9, 10), (1, 11, 20), (4, 50, 30), (1, 10, 40), (0, 3, 50)];
        let costs = Costs::observed(seen.map(run).to_vec()).unwrap();
        let point = |batch, micros| Point { batch, micros };
        assert_eq!(costs.points, [point(1, 10.0), point(4, 50.0)]);
        let mut random = Random::new(1, 1);
        let took: Vec<u128> = [0, 10, 40].iter().map(|at| costs.run(4, Time(*at), &mut random).as_micros()).collect();
        assert_eq!(took, [30, 45, 50], "a run is slow at a moment when the machine was slow");
        assert_eq!(costs.steady().run(4, Time::ZERO, &mut random).as_micros(), 50);
        assert_eq!(Costs::observed(vec![run((0, 1, 0))]), None);
    }
}
