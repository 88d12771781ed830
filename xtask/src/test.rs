//! `cargo xtask test`: all checks that a change must pass, in one command.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};

use crate::phases::Phases;
use crate::process::MakeCargo;
use crate::servers::{HAPROXY, REDIS};
use crate::tally::{self, TestTally};
use crate::{browser, fuzz, guests, kernels, node, perf, process, python, runtime, sounds, types};

/// The profile of the program that [`tests_of`] tests.
const SHIPPED: &str = "shipped";

/// Options beyond the everyday run.
#[derive(Debug, Default, PartialEq, Eq)]
struct TestOptions {
    /// Whether the run fails without a browser.
    browser: bool,
    /// Seconds of each fuzz target.
    fuzz: Option<u64>,
    /// Whether to include plug-ins in the languages whose compilers are large.
    all_languages: bool,
    /// Whether to build the crates' pages, with warnings as errors.
    rustdoc: bool,
}

impl TestOptions {
    fn read(arguments: &[String]) -> Result<TestOptions> {
        let mut options = TestOptions::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--all-languages" => options.all_languages = true,
                "--browser" => options.browser = true,
                "--rustdoc" => options.rustdoc = true,
                "--fuzz" => {
                    options.fuzz = Some(arguments.next().context("--fuzz wants seconds")?.parse().context("--fuzz")?);
                }
                other => bail!("cargo xtask test knows no {other}"),
            }
        }
        Ok(options)
    }
}

pub(crate) fn test(arguments: &[String]) -> Result<()> {
    let options = TestOptions::read(arguments)?;
    let mut phases = Phases::new();
    let mut tally = TestTally::default();
    let ran = run(&options, &mut phases, &mut tally);
    eprint!("---\n{}", phases.table());
    eprintln!("     Summary [{:>8.3}s] {tally}; {}", phases.elapsed().as_secs_f64(), phases.verdict());
    ran?;
    if phases.failed() > 0 {
        bail!("failed");
    }
    Ok(())
}

/// `cargo xtask prepare`: fetches the tests' dependencies, and prints the environment in which `cargo nextest run` finds them.
pub(crate) fn prepare() -> Result<()> {
    let mut phases = Phases::new();
    let options = TestOptions::default();
    fetch(&options, &mut phases)?;
    let sequor = build(process::plain_cargo, &["--bins", "--tests"], &mut phases)?;
    build_guests(&sequor, &options, &mut phases)?;
    for (name, value) in environment() {
        println!("export {name}='{}'", value.display());
    }
    Ok(())
}

/// Fetches the programs that tests call. Returns whether there is a browser.
fn fetch(options: &TestOptions, phases: &mut Phases) -> Result<bool> {
    phases.need("python", python::ensure)?;
    phases.need("sounds", sounds::ensure)?;
    phases.need("clients", || Ok(format!("perf_analyzer {}, node {}", perf::ensure()?, node::ensure()?)))?;
    phases.need("servers", || Ok(format!("{}, {}", REDIS.ensure()?, HAPROXY.ensure()?)))?;
    browser(options, phases)
}

/// Builds the server with all tests, and installs its runtime. Returns the path of the server.
///
/// Built alone, the server's dependencies would get other features and compile twice.
fn build(cargo: MakeCargo, targets: &[&str], phases: &mut Phases) -> Result<PathBuf> {
    phases.need("build", || quiet(cargo(&["build"]).args(["--locked", "--workspace"]).args(targets)))?;
    let sequor = process::built("debug", "sequor")?;
    phases.need("runtime", || runtime::ensure(&sequor))?;
    Ok(sequor)
}

/// Lets the server build plug-ins.
fn build_guests(sequor: &Path, options: &TestOptions, phases: &mut Phases) -> Result<()> {
    phases.need("guests", || guests::build(sequor))?;
    if options.all_languages {
        phases.need("languages", || guests::build_the_others(sequor))?;
    }
    Ok(())
}

fn run(options: &TestOptions, phases: &mut Phases, tally: &mut TestTally) -> Result<()> {
    let mut fetched = Ok(false);
    let mut built = Err(anyhow!("nothing is built"));
    phases.side_by_side(
        |phases| {
            format_and_pages(options, phases);
            // All targets: benchmarks and examples are there for the lints.
            built = build(process::linting_cargo, &["--all-targets"], phases);
            Ok(())
        },
        |phases| {
            fetched = fetch(options, phases);
            if fetched.is_ok() {
                phases.check("models", models);
                phases.check("kernels", kernels::check);
            }
        },
    )?;
    let (has_browser, sequor) = (fetched?, built?);
    let mut beside = TestTally::default();
    let built = phases.side_by_side(
        |phases| build_guests(&sequor, options, phases),
        |phases| {
            phases.check("planted faults", || tally::run(&mut planted(), &mut beside));
            phases.check("interleavings", || tally::run(&mut interleavings(), &mut beside));
            phases.check("tests of guests", || guests::test(&mut beside));
        },
    );
    tally.add(beside);
    built?;
    let mut shipped = Err(anyhow!("not built"));
    phases.side_by_side(
        |phases| {
            phases.check("tests", || tally::run(&mut tests(has_browser, options.all_languages), tally));
            Ok(())
        },
        |phases| shipped = build_as_shipped(phases),
    )?;
    if let Ok(program) = shipped {
        phases.check("as shipped", || {
            let mut again = TestTally::default();
            let result = tally::run(&mut tests_of(&program), &mut again);
            tally.add(TestTally { skipped: 0, ..again });
            result
        });
    }
    if options.all_languages {
        phases.check("types", types::check);
    }
    if let Some(seconds) = options.fuzz {
        phases.check("fuzz", || tally::run(&mut fuzz::command(process::linting_cargo, seconds), tally));
    }
    Ok(())
}

/// Builds the program without debug assertions, as users get it, but not optimised. It yields to the tests that run at the same time.
fn build_as_shipped(phases: &mut Phases) -> Result<PathBuf> {
    phases.need("build as shipped", || {
        let mut cargo = process::command("nice");
        cargo.args(["-n", "19"]).arg(process::cargo().get_program());
        quiet(cargo.args(["build", "--locked", "--profile", SHIPPED, "--bin", "sequor"]))
    })?;
    process::built(SHIPPED, "sequor")
}

fn format_and_pages(options: &TestOptions, phases: &mut Phases) {
    phases.check("format", || {
        quiet(process::cargo().args(["fmt", "--all", "--check"]))?;
        quiet(guests::cargo("fmt").args(["--all", "--check"]))
    });
    if options.rustdoc {
        phases.check("rustdoc", || {
            let mut doc = process::cargo();
            quiet(doc.args(["doc", "--workspace", "--lib", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-Dwarnings"))
        });
    }
}

/// Fetches a browser, and returns whether there is one. Without one the run fails only if a browser was asked for.
fn browser(options: &TestOptions, phases: &mut Phases) -> Result<bool> {
    let mut has_browser = true;
    phases.need("browser", || match browser::ensure() {
        Err(e) if !options.browser => {
            has_browser = false;
            Ok(format!("NONE, its test is left out ({e:#})"))
        }
        had => had,
    })?;
    Ok(has_browser)
}

fn quiet(command: &mut Command) -> Result<String> {
    process::run(command)?;
    Ok(String::new())
}

/// Checks that the committed models equal the output of their scripts, and that they behave as their pages say.
fn models() -> Result<String> {
    for arguments in
        [&["models/make.py", "--check"][..], &["models/fetch_vad.py", "--check"], &["tests/python/models.py"]]
    {
        process::run(process::command(python::interpreter()).env("PYTHONDONTWRITEBYTECODE", "1").args(arguments))?;
    }
    Ok(String::new())
}

/// Runs nextest if it is installed, otherwise cargo's test runner. Name endings select the tests that need rarely installed tools.
fn tests(has_browser: bool, all_languages: bool) -> Command {
    let is_nextest = process::succeeds(process::cargo().args(["nextest", "--version"]));
    let mut tests = process::linting_cargo(if is_nextest { &["nextest", "run"] } else { &["test"] });
    tests.args(["--workspace", "--locked", "--no-fail-fast"]);
    if !is_nextest {
        tests.args(["--lib", "--bins", "--tests", "--examples"]);
    }
    let others = ["_in_javascript", "_in_c"].into_iter().filter(|_| !all_languages);
    let left_out: Vec<&str> = (!has_browser).then_some("_in_a_browser").into_iter().chain(others).collect();
    if is_nextest && !left_out.is_empty() {
        tests.args(["--filter-expr", &format!("not test(/({})$/)", left_out.join("|"))]);
    } else if !left_out.is_empty() {
        tests.arg("--").args(left_out.iter().flat_map(|name| ["--skip", name]));
    }
    with_environment(&mut tests);
    tests
}

/// The core with planted faults, one at a time, which the properties must find.
///
/// The whole workspace is selected, here and for the interleavings: with fewer packages, the crates below would get other features and compile
/// again.
fn planted() -> Command {
    let mut tests = process::linting_cargo(&["test"]);
    tests.args(["--workspace", "--locked", "--test", "planted", "--features", "sequor-core/planted"]);
    tests
}

/// Locks and threads under a scheduler that tries interleavings. The packages above models are empty with this feature.
fn interleavings() -> Command {
    let mut tests = process::linting_cargo(&["test"]);
    tests.args([
        "--workspace",
        "--locked",
        "--lib",
        "--no-fail-fast",
        "--features",
        "sequor/shuttle",
        "--",
        "interleavings",
    ]);
    tests
}

/// The black-box tests of the commands, with this program. Crates check less, and can do other things, where there are no debug assertions.
fn tests_of(program: &Path) -> Command {
    let mut tests = process::linting_cargo(&["nextest", "run", "--workspace", "--locked", "--no-fail-fast"]);
    tests.args(["--filter-expr", "binary(it) and test(/^(admin|check|cli|config|sequences|serve|why)::/)"]);
    with_environment(&mut tests).env("SEQUOR_PROGRAM", program);
    tests
}

/// Variables with the paths of the programs and folders that tests use.
fn environment() -> [(&'static str, PathBuf); 9] {
    [
        ("SEQUOR_PYTHON", python::interpreter()),
        ("SEQUOR_SOUNDS", sounds::folder()),
        ("SEQUOR_GUESTS", guests::folder()),
        ("SEQUOR_CACHE", guests::tools()),
        ("SEQUOR_PERF_ANALYZER", perf::program()),
        ("SEQUOR_NODE", node::program()),
        ("SEQUOR_BROWSER", browser::program()),
        ("SEQUOR_REDIS", REDIS.program()),
        ("SEQUOR_HAPROXY", HAPROXY.program()),
    ]
}

fn with_environment(command: &mut Command) -> &mut Command {
    command.envs(environment()).env("PYTHONDONTWRITEBYTECODE", "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_options_are_read_or_refused() {
        let read = |text: &str| TestOptions::read(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(read("").unwrap_or_default(), TestOptions::default());
        let both = TestOptions { browser: true, fuzz: Some(60), ..TestOptions::default() };
        assert!(read("--fuzz 60 --browser").is_ok_and(|options| options == both));
        for wrong in ["--fuzz", "--fuzz soon", "--brower"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
