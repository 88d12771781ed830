//! `cargo xtask gpu-test` and `gpu-bench`: tests that need a machine with an NVIDIA GPU.

use anyhow::{Result, bail};

use crate::phases::Phases;
use crate::process;

/// Compares the devices' contract on the GPUs of this machine with the host, and models on a GPU with the CPU. Runs the kernels under
/// compute-sanitizer if it is installed.
pub(crate) fn test() -> Result<()> {
    let mut phases = Phases::new();
    prepare(&mut phases)?;
    phases.check("device", || {
        let mut tests = process::cargo();
        tests.args(["test", "--release", "--locked", "--package", "sequor", "--test", "device"]);
        process::run(tests.env("SEQUOR_TEST_GPU", "1"))?;
        Ok(String::new())
    });
    phases.check("sanitizer", sanitize);
    phases.check("models", || figures(&["check"]));
    end(&phases)
}

/// Measures moved rows against the GPU's own copy, and steps through the engine against a bare loop.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    let mut phases = Phases::new();
    prepare(&mut phases)?;
    let mut all = vec!["measure"];
    all.extend(arguments.iter().map(String::as_str));
    phases.check("measure", || figures(&all));
    end(&phases)
}

/// Builds the server, and lets it install a runtime with a provider for GPUs.
fn prepare(phases: &mut Phases) -> Result<()> {
    phases.need("build", || {
        let build = ["build", "--release", "--locked", "--package", "sequor", "--bin", "sequor"];
        process::run(process::cargo().args(build))?;
        Ok(String::new())
    })?;
    let sequor = process::built("release", "sequor")?;
    phases.need("runtime", || {
        process::run(process::command(&sequor).args(["runtime", "install", "--gpu"]))?;
        Ok(String::new())
    })
}

fn figures(arguments: &[&str]) -> Result<String> {
    let mut bench = process::cargo();
    bench.args(["bench", "--locked", "--package", "sequor", "--bench", "gpu", "--"]).args(arguments);
    process::run(&mut bench)?;
    Ok(String::new())
}

/// Runs the device's tests again, with every memory access of the kernels checked.
fn sanitize() -> Result<String> {
    if !process::succeeds(process::command("compute-sanitizer").arg("--version")) {
        return Ok("not installed here (compute-sanitizer, of the CUDA toolkit): NOT CHECKED".to_owned());
    }
    for tool in ["memcheck", "racecheck"] {
        let mut cargo = process::cargo();
        cargo.args(["test", "--release", "--locked", "--package", "sequor", "--test", "device"]);
        cargo.env("SEQUOR_TEST_GPU", "1").env("SEQUOR_TEST_CASES", "60");
        // Cargo runs the test program under it. A test asks for more memory than there is, so failed API calls are not reported.
        let runner = format!("CARGO_TARGET_{}_UNKNOWN_LINUX_GNU_RUNNER", std::env::consts::ARCH.to_uppercase());
        let sanitizer = format!("compute-sanitizer --tool {tool} --report-api-errors no --error-exitcode 1");
        process::run(cargo.env(runner, sanitizer))?;
    }
    Ok("memcheck and racecheck are clean".to_owned())
}

fn end(phases: &Phases) -> Result<()> {
    eprint!("---\n{}", phases.table());
    eprintln!("{}", phases.verdict());
    if phases.failed() > 0 {
        bail!("failed");
    }
    Ok(())
}
