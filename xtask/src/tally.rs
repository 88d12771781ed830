//! Counts tests: runs a test command, passes its output through, and reads from it how many tests ran.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process;

/// Results of tests, summed over test commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TestTally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl TestTally {
    pub(crate) fn add(&mut self, other: TestTally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// Parses one line of output: nextest's summary, or the result line of a test binary. Indentation matters: a failed test's own output,
    /// which may contain such lines too, is indented further.
    fn read(line: &str) -> TestTally {
        let line = line.trim_end();
        if !line.starts_with("     Summary [") && !line.starts_with("test result:") {
            return TestTally::default();
        }
        let words: Vec<&str> = line.split([' ', ',', ';', ':', '(']).filter(|word| !word.is_empty()).collect();
        let number = |names: &[&str]| {
            let before = words.iter().zip(words.iter().skip(1)).find(|(_, word)| names.contains(word));
            before.and_then(|(number, _)| number.parse().ok()).unwrap_or(0)
        };
        TestTally {
            passed: number(&["passed"]),
            failed: number(&["failed"]) + number(&["timed"]),
            skipped: number(&["skipped", "ignored"]),
        }
    }
}

impl std::fmt::Display for TestTally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TestTally { passed, failed, skipped } = self;
        write!(f, "{} tests run: {passed} passed", passed + failed)?;
        if *failed > 0 {
            write!(f, ", {failed} failed")?;
        }
        write!(f, ", {skipped} skipped")
    }
}

/// Runs a test command to its end, adding what it reports to `tally`.
pub(crate) fn run(command: &mut Command, tally: &mut TestTally) -> Result<String> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", process::shown(command)))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let counted = std::thread::scope(|scope| {
        let out = scope.spawn(|| pass_on(stdout, std::io::stdout()));
        let mut counted = pass_on(stderr, std::io::stderr());
        counted.add(out.join().unwrap_or_default());
        counted
    });
    tally.add(counted);
    let status = child.wait()?;
    if !status.success() {
        bail!("{}: {status}", process::shown(command));
    }
    Ok(counted.to_string())
}

/// Copies lines as they arrive and counts in them. Ends with the stream. A failed write does not stop the reading.
fn pass_on(from: Option<impl Read>, mut to: impl Write) -> TestTally {
    let mut tally = TestTally::default();
    let Some(from) = from else { return tally };
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let _ = to.write_all(&line);
        let _ = to.flush();
        tally.add(TestTally::read(&String::from_utf8_lossy(&line)));
        line.clear();
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_of_nextest_and_cargo_test_are_parsed() {
        let nextest = "     Summary [   1.234s] 57 tests run: 52 passed (1 slow), 3 failed, 2 timed out, 4 skipped\n";
        assert_eq!(TestTally::read(nextest), TestTally { passed: 52, failed: 5, skipped: 4 });
        let cargo =
            "test result: FAILED. 10 passed; 2 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.00s\n";
        assert_eq!(TestTally::read(cargo), TestTally { passed: 10, failed: 2, skipped: 1 });
        assert_eq!(TestTally::read("test tests::a_test_that_passed ... 3 passed\n"), TestTally::default());
        assert_eq!(TestTally::read("    test result: FAILED. 0 passed; 1 failed; 0 ignored\n"), TestTally::default());
    }

    #[test]
    fn output_is_passed_on_and_summed() {
        let mut seen = Vec::new();
        let text =
            "test result: ok. 2 passed; 0 failed; 0 ignored\nnoise\ntest result: ok. 3 passed; 0 failed; 1 ignored";
        let tally = pass_on(Some(text.as_bytes()), &mut seen);
        assert_eq!(seen, text.as_bytes());
        assert_eq!(tally.to_string(), "5 tests run: 5 passed, 1 skipped");
    }
}
