//! Phases of a recipe: announced, timed and summarised.

use std::time::{Duration, Instant};

use anyhow::Result;

/// The phases that have run so far.
pub(crate) struct Phases {
    since: Instant,
    done: Vec<Phase>,
}

struct Phase {
    name: &'static str,
    took: Duration,
    passed: bool,
    note: String,
}

impl Phases {
    pub(crate) fn new() -> Phases {
        Phases { since: Instant::now(), done: Vec::new() }
    }

    /// Runs a phase that later ones need. If it fails, the recipe ends.
    pub(crate) fn need(&mut self, name: &'static str, run: impl FnOnce() -> Result<String>) -> Result<()> {
        self.time(name, run).map(|_| ())
    }

    /// Runs a phase and keeps its failure for the summary, so that one run shows every fault.
    pub(crate) fn check(&mut self, name: &'static str, run: impl FnOnce() -> Result<String>) {
        if let Err(e) = self.time(name, run) {
            eprintln!("{name}: {e:#}");
        }
    }

    /// Runs two series of phases at the same time, because each alone leaves a core idle at times. Their output is mixed.
    pub(crate) fn side_by_side(
        &mut self,
        here: impl FnOnce(&mut Phases) -> Result<()>,
        beside: impl FnOnce(&mut Phases) + Send,
    ) -> Result<()> {
        let mut other = Phases::new();
        let result = std::thread::scope(|scope| {
            scope.spawn(|| beside(&mut other));
            here(self)
        });
        self.done.append(&mut other.done);
        result
    }

    fn time(&mut self, name: &'static str, run: impl FnOnce() -> Result<String>) -> Result<()> {
        eprintln!("--- {name}");
        let since = Instant::now();
        let result = run();
        let took = since.elapsed();
        let note = result.as_ref().map_or_else(|_| "FAILED".to_owned(), Clone::clone);
        eprintln!("    {name}: {:.1} s{}{note}", took.as_secs_f64(), if note.is_empty() { "" } else { ", " });
        self.done.push(Phase { name, took, passed: result.is_ok(), note });
        result.map(|_| ())
    }

    pub(crate) fn failed(&self) -> usize {
        self.done.iter().filter(|p| !p.passed).count()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// One line for each phase.
    pub(crate) fn table(&self) -> String {
        let line = |p: &Phase| format!("{:>9.1} s  {:<10} {}\n", p.took.as_secs_f64(), p.name, p.note);
        self.done.iter().map(line).collect()
    }

    /// `8 of 9 phases passed`.
    pub(crate) fn verdict(&self) -> String {
        format!("{} of {} phases passed", self.done.len() - self.failed(), self.done.len())
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn phases_that_run_side_by_side_share_one_table_and_failure_count() {
        let mut phases = Phases::new();
        let (to_beside, from_here) = std::sync::mpsc::sync_channel(1);
        let (to_here, from_beside) = std::sync::mpsc::sync_channel(1);
        let here = |phases: &mut Phases| {
            to_beside.send(())?;
            phases.need("here", || Ok(from_beside.recv().map(|()| "met".to_owned())?))?;
            phases.need("needed", || bail!("not there"))
        };
        let beside = move |phases: &mut Phases| {
            phases.check("beside", || Ok(from_here.recv().map(|()| "met".to_owned())?));
            phases.check("wrong", || bail!("it is"));
            assert!(to_here.send(()).is_ok());
        };
        let result = phases.side_by_side(here, beside);
        assert!(result.is_err_and(|e| e.to_string() == "not there"));
        let names: Vec<_> = phases.done.iter().map(|phase| (phase.name, phase.passed)).collect();
        assert_eq!(names, [("here", true), ("needed", false), ("beside", true), ("wrong", false)]);
        assert_eq!((phases.failed(), phases.verdict().as_str()), (2, "2 of 4 phases passed"));
    }
}
