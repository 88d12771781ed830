//! Starts a server for a run, on ports that the system chooses. Dropping it stops the server.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::BenchError;

/// A server as a child process.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    /// Kept open, because a program may fail without its output. Later output fits the pipe.
    _output: Option<BufReader<ChildStdout>>,
    /// `host:port` of its HTTP service.
    pub http: Option<String>,
    /// `host:port` of its gRPC service.
    pub grpc: String,
    /// `host:port` of its metrics.
    pub metrics: Option<String>,
    /// `host:port` of its admin listener.
    pub admin: Option<String>,
    /// Time from its start until it reported that it serves.
    pub ready_after: Duration,
}

impl Child {
    /// Starts the program at `sequor` as a server of this model repository.
    pub fn serve(sequor: &Path, repository: &Path) -> Result<Child, BenchError> {
        let mut command = Command::new(sequor);
        command.args([OsStr::new("serve"), OsStr::new("--model-repository"), repository.as_os_str()]);
        for listener in ["http", "grpc", "metrics", "admin"] {
            command.arg(format!("--{listener}-port=0"));
        }
        command.args(["--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--log-level=warn"]);
        Child::start(command)
    }

    /// Starts a command that prints a line with `grpc <address>`, and optionally `metrics <address>`, once it serves.
    pub fn start(mut command: Command) -> Result<Child, BenchError> {
        let began = Instant::now();
        let failed = |e: std::io::Error| BenchError::NotStarted(e.to_string());
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let mut output = process.stdout.take().map(BufReader::new);
        let lines = output.as_mut().into_iter().flat_map(BufRead::lines);
        let (mut last_line, mut found) = (String::new(), None);
        for line in lines {
            last_line = line.map_err(failed)?;
            found = address(&last_line, "grpc");
            if found.is_some() {
                break;
            }
        }
        if let Some(grpc) = found {
            let (http, metrics, admin) =
                (address(&last_line, "http"), address(&last_line, "metrics"), admin(&last_line));
            return Ok(Child { process, _output: output, http, grpc, metrics, admin, ready_after: began.elapsed() });
        }
        // The process has closed its output, so it has ended or is about to.
        let _ = process.kill();
        let _ = process.wait();
        Err(BenchError::NotStarted(format!("it ended; the last it said was: {last_line}")))
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The process may have ended on its own.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The address behind this word, with the host replaced by localhost.
fn address(line: &str, word: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    words.find(|w| *w == word)?;
    let port = words.next()?.parse::<std::net::SocketAddr>().ok()?.port();
    Some(format!("{}:{port}", Ipv4Addr::LOCALHOST))
}

/// The address of the admin page in this line.
fn admin(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("admin and status page  http://")?;
    Some(rest.split(['/', ' ']).next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_of_a_server_are_parsed_from_its_output() {
        let line = "http  127.0.0.1:4001   grpc  127.0.0.1:4002   metrics  0.0.0.0:4003";
        assert_eq!(address(line, "grpc").as_deref(), Some("127.0.0.1:4002"));
        assert_eq!(address(line, "metrics").as_deref(), Some("127.0.0.1:4003"));
        assert_eq!(address("http  off   grpc  off", "grpc"), None);
        let line = "grpc  127.0.0.1:4002   metrics  :4003   admin and status page  http://127.0.0.1:4004/";
        assert_eq!(admin(line).as_deref(), Some("127.0.0.1:4004"));
        assert_eq!(admin("grpc  127.0.0.1:4002   admin and status page  off"), None);
    }

    #[test]
    fn the_output_of_a_server_that_exits_at_once_is_reported() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no models here"]);
        let error = Child::start(command).expect_err("nothing serves").to_string();
        assert!(error.contains("no models here"), "{error}");
    }
}
