//! A Redis for tests. `$SEQUOR_REDIS` names its program.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum time until it answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// A Redis in memory, for one test.
pub(crate) struct OwnRedis(Child, pub(crate) u16, tempfile::TempDir);

impl Drop for OwnRedis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl OwnRedis {
    pub(crate) fn start() -> OwnRedis {
        let program = std::env::var_os("SEQUOR_REDIS");
        let program = program.expect("$SEQUOR_REDIS is not set: run `cargo xtask test`, which prepares it");
        // Another process may take the free port first.
        std::iter::repeat_with(|| OwnRedis::try_start(&program)).take(10).flatten().next().expect("a free port")
    }

    fn try_start(program: &OsStr) -> Option<OwnRedis> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(program);
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .arg("--dir")
            .arg(folder.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let mut redis = OwnRedis(child, port, folder);
        let (since, own) = (Instant::now(), redis.2.path().display().to_string());
        while !redis.try_ask("CONFIG GET dir").is_some_and(|answer| answer.contains(&own)) {
            assert!(since.elapsed() < PATIENCE, "Redis does not answer");
            if redis.0.try_wait().unwrap().is_some() {
                return None;
            }
            std::thread::yield_now();
        }
        Some(redis)
    }

    fn try_ask(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.1)).ok()?;
        write!(stream, "{command}\r\nQUIT\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.strip_suffix("+OK\r\n").map(str::to_owned)
    }

    pub(crate) fn ask(&self, command: &str) -> String {
        self.try_ask(command).unwrap()
    }
}
