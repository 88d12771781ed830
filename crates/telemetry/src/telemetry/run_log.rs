//! Log lines about the runs of one model: one per batch, with the number of reset sequences, and totals every few seconds.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::config::model::settings::{LineLevel, RunLogSettings};

use super::handles::BatchTimes;

/// The run log of a model.
#[derive(Debug)]
pub struct RunLog {
    model: String,
    version: u64,
    settings: RunLogSettings,
    totals: Mutex<Totals>,
}

/// Totals since the last line.
#[derive(Debug, Clone, PartialEq)]
struct Totals {
    since: Instant,
    runs: u64,
    requests: u64,
    largest: u32,
    state_in: Duration,
    run: Duration,
    state_out: Duration,
}

impl Totals {
    fn since(since: Instant) -> Totals {
        let none = Duration::ZERO;
        Totals { since, runs: 0, requests: 0, largest: 0, state_in: none, run: none, state_out: none }
    }

    fn add(&mut self, times: &BatchTimes) {
        self.runs += 1;
        self.requests += u64::from(times.requests);
        self.largest = self.largest.max(times.requests);
        self.state_in += times.state_in;
        self.run += times.run;
        self.state_out += times.state_out;
    }

    fn average(&self) -> f64 {
        self.requests as f64 / self.runs.max(1) as f64
    }
}

impl RunLog {
    /// `None` if the settings log nothing.
    pub fn new(model: &str, version: u64, settings: RunLogSettings, now: Instant) -> Option<RunLog> {
        let has_totals = settings.every.is_some() && settings.sizes.max(settings.times) != LineLevel::Off;
        let is_needed = has_totals || settings.batches != LineLevel::Off;
        let totals = Mutex::new(Totals::since(now));
        is_needed.then(|| RunLog { model: model.to_owned(), version, settings, totals })
    }

    /// Counts a run, and writes the lines that are due.
    pub fn ran(&self, times: &BatchTimes, now: Instant) {
        self.log_batch(times);
        if let Some(totals) = self.due(times, now) {
            self.log_totals(&totals);
        }
    }

    /// Counts a run. Returns the totals if their line is due.
    fn due(&self, times: &BatchTimes, now: Instant) -> Option<Totals> {
        let every = self.settings.every?;
        let mut totals = self.totals.lock();
        totals.add(times);
        (now.saturating_duration_since(totals.since) >= every)
            .then(|| std::mem::replace(&mut *totals, Totals::since(now)))
    }

    fn log_batch(&self, times: &BatchTimes) {
        let (model, version) = (self.model.as_str(), self.version);
        let BatchTimes { requests, starts, executed, run, .. } = times;
        let us = u64::try_from(run.as_micros()).unwrap_or(u64::MAX);
        // Clients' ids must not be logged, so the line has the number of sequences.
        match self.settings.batches {
            LineLevel::Off => {}
            LineLevel::Debug => {
                if *starts > 0 {
                    tracing::debug!(model, version, sequences = starts, "sequences reset by START");
                }
                tracing::debug!(model, version, requests, rows = executed, us, "batch ran");
            }
            LineLevel::Info => {
                if *starts > 0 {
                    tracing::info!(model, version, sequences = starts, "sequences reset by START");
                }
                tracing::info!(model, version, requests, rows = executed, us, "batch ran");
            }
        }
    }

    fn log_totals(&self, totals: &Totals) {
        let (model, version) = (self.model.as_str(), self.version);
        let (average, largest) = (totals.average(), totals.largest);
        match self.settings.sizes {
            LineLevel::Off => {}
            LineLevel::Debug => tracing::debug!(model, version, average, largest, "batch sizes"),
            LineLevel::Info => tracing::info!(model, version, average, largest, "batch sizes"),
        }
        let Totals { runs, requests, .. } = totals;
        let ms = |span: Duration| span.as_secs_f64() * 1e3;
        let [pre_ms, run_ms, post_ms] = [totals.state_in, totals.run, totals.state_out].map(ms);
        let total_ms = pre_ms + run_ms + post_ms;
        match self.settings.times {
            LineLevel::Off => {}
            LineLevel::Debug => {
                tracing::debug!(model, version, runs, requests, pre_ms, run_ms, post_ms, total_ms, "times of runs");
            }
            LineLevel::Info => {
                tracing::info!(model, version, runs, requests, pre_ms, run_ms, post_ms, total_ms, "times of runs");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use super::*;

    fn times(requests: u32) -> BatchTimes {
        let ms = Duration::from_millis;
        let (state_in, run, state_out) = (ms(1), ms(20), ms(3));
        BatchTimes { requests, starts: 0, rows: requests, executed: 8, state_in, run, state_out }
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(text)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// The lines of two batches. The second one ends after the interval of the totals. Each line has level, text, and fields.
    fn lines(settings: RunLogSettings) -> Vec<String> {
        let (written, start) = (Lines::default(), Instant::now());
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let log = RunLog::new("m", 1, settings, start).expect("lines are asked for");
            log.ran(&BatchTimes { starts: 2, ..times(3) }, start);
            log.ran(&times(1), start + Duration::from_secs(5));
        });
        let text = String::from_utf8(std::mem::take(&mut *written.0.lock())).expect("UTF-8");
        text.lines().map(|line| line.trim().replace("model=\"m\" version=1 ", "")).collect()
    }

    #[test]
    fn each_line_has_its_level_and_its_fields() {
        let every = Some(Duration::from_secs(5));
        let (off, debug, info) = (LineLevel::Off, LineLevel::Debug, LineLevel::Info);
        let totals = RunLogSettings { every, sizes: info, times: debug, batches: off };
        let times = "times of runs runs=2 requests=4 pre_ms=2.0 run_ms=40.0 post_ms=6.0 total_ms=48.0";
        assert_eq!(lines(totals), ["INFO batch sizes average=2.0 largest=3".to_owned(), format!("DEBUG {times}")]);
        let batches = RunLogSettings { batches: debug, ..RunLogSettings::default() };
        assert_eq!(
            lines(batches),
            [
                "DEBUG sequences reset by START sequences=2",
                "DEBUG batch ran requests=3 rows=8 us=20000",
                "DEBUG batch ran requests=1 rows=8 us=20000",
            ]
        );
        let all = RunLogSettings { every, sizes: info, times: info, batches: info };
        let all = lines(all);
        assert_eq!(all.len(), 5, "{all:?}");
        assert!(all.iter().all(|line| line.starts_with("INFO ")), "{all:?}");
    }

    fn log(every: Option<u64>, batches: LineLevel, now: Instant) -> Option<RunLog> {
        let every = every.map(Duration::from_secs);
        let settings = RunLogSettings { every, sizes: LineLevel::Info, times: LineLevel::Debug, batches };
        RunLog::new("m", 1, settings, now)
    }

    #[test]
    fn run_totals_are_due_after_their_interval_and_then_restart() {
        let start = Instant::now();
        let log = log(Some(2), LineLevel::Off, start).unwrap();
        let at = |s: u64| start + Duration::from_secs(s);
        assert_eq!(log.due(&times(3), at(0)), None);
        assert_eq!(log.due(&times(5), at(1)), None);
        let totals = log.due(&times(4), at(2)).unwrap();
        assert_eq!((totals.runs, totals.requests, totals.largest), (3, 12, 5));
        assert!((totals.average() - 4.0).abs() < 1e-9);
        assert_eq!((totals.state_in.as_millis(), totals.run.as_millis(), totals.state_out.as_millis()), (3, 60, 9));
        assert_eq!(log.due(&times(1), at(3)), None);
        assert_eq!(log.due(&times(1), at(9)).unwrap().runs, 2);
    }

    #[test]
    fn a_model_that_logs_nothing_has_no_log() {
        let now = Instant::now();
        assert!(log(None, LineLevel::Off, now).is_none());
        assert!(log(None, LineLevel::Debug, now).is_some());
        let nothing = RunLogSettings { every: Some(Duration::from_secs(1)), ..RunLogSettings::default() };
        assert!(RunLog::new("m", 1, nothing, now).is_none());
    }
}
