//! Starts, watches, queries and stops the program as a separate process. Its output is kept, so that a failing test can show it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use tempfile::TempDir;
use tonic::transport::Channel;

/// The program under test: the one of this build, or another build of it that `SEQUOR_PROGRAM` names.
pub(crate) fn sequor() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| std::env::var_os("SEQUOR_PROGRAM").unwrap_or_else(|| BUILT.into()).into())
}

/// The program of this build.
pub(crate) const BUILT: &str = env!("CARGO_BIN_EXE_sequor");

/// Timeout for the program. Nothing takes a tenth of it, even on a busy machine.
const HANGS: Duration = Duration::from_secs(180);

/// Waits until the condition holds. After a timeout, the test fails with `what`.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < HANGS, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The root of the checkout.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The models of the repository.
pub(crate) fn models() -> PathBuf {
    root().join("models")
}

/// The path of ONNX Runtime, for programs in folders from which they would not find it.
pub(crate) fn runtime() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let message = Command::new(sequor()).args(["runtime", "path"]).current_dir(root()).output().unwrap();
        assert!(message.status.success(), "no ONNX Runtime: run `cargo xtask test`, which gets one");
        PathBuf::from(String::from_utf8(message.stdout).unwrap().trim())
    })
}

/// A prepared call of the program: in an empty folder, with only ONNX Runtime in its environment.
pub(crate) struct Call {
    pub(crate) command: Command,
    pub(crate) folder: TempDir,
}

/// The result of a program that ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Call {
    pub(crate) fn new(program: impl AsRef<Path>) -> Call {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(program.as_ref());
        let ours = std::env::vars_os().map(|(name, _)| name);
        for name in ours.filter(|name| ["SEQUOR_", "OTEL_"].iter().any(|ours| name.to_string_lossy().starts_with(ours)))
        {
            command.env_remove(name);
        }
        command.env_remove("RUST_LOG").env_remove("COLUMNS").current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Call { command, folder }
    }

    pub(crate) fn sequor() -> Call {
        Call::new(sequor()).environment("ORT_DYLIB_PATH", runtime())
    }

    /// `serve` of this repository, on the loopback address and free ports.
    pub(crate) fn serve(repository: impl AsRef<Path>) -> Call {
        let call = Call::sequor().arguments(["serve", "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]);
        let call = call.arguments(["--admin-port", "0", "--http-address", "127.0.0.1", "--grpc-address", "127.0.0.1"]);
        // Otherwise every test would wait for proxies to notice the shutdown.
        let call = call.environment("SEQUOR_DRAIN_ANNOUNCE", "0s");
        // Otherwise tests would wait for the sequences that they leave behind.
        let call = call.environment("SEQUOR_DRAIN_FINISH", "1s");
        call.arguments(["--model-repository".as_ref(), repository.as_ref().as_os_str()])
    }

    pub(crate) fn arguments<T: AsRef<std::ffi::OsStr>>(mut self, arguments: impl IntoIterator<Item = T>) -> Call {
        self.command.args(arguments);
        self
    }

    pub(crate) fn environment(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Call {
        self.command.env(name, value);
        self
    }

    /// Writes the program's output here.
    pub(crate) fn writing_to(mut self, output: impl Into<Stdio>) -> Call {
        self.command.stdout(output);
        self
    }

    /// Runs the program until it ends.
    pub(crate) fn end(self) -> Ended {
        self.begin().ended()
    }

    /// Starts a server and waits until it reports that it serves.
    pub(crate) fn start(self) -> Server {
        self.begin().serving()
    }

    /// Limits the number of files that the process may open.
    pub(crate) fn limited(self, files: u32) -> Call {
        self.after("sh", &format!("ulimit -n {files}"))
    }

    /// Passes these sockets to the process like a service manager.
    pub(crate) fn activated(self, sockets: &[&TcpListener]) -> Call {
        let mut before = format!("export LISTEN_PID=$$ LISTEN_FDS={}", sockets.len());
        for (n, socket) in sockets.iter().enumerate() {
            rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::empty()).unwrap();
            before = format!("exec {}<&{}; {before}", 3 + n, socket.as_raw_fd());
        }
        // Other shells support only file descriptors with one digit.
        self.after("bash", &before)
    }

    /// Runs these shell commands before the program.
    fn after(mut self, shell: &str, before: &str) -> Call {
        let script = format!("{before}; exec \"$0\" \"$@\"");
        let mut command = Command::new(shell);
        command.args(["-c", &script]).arg(self.command.get_program()).args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command = command;
        self
    }

    pub(crate) fn begin(mut self) -> Process {
        let mut child = self.command.spawn().unwrap_or_else(|e| panic!("{:?}: {e}", self.command));
        let (sender, lines) = sync_channel(10_000);
        let stdout = child.stdout.take().map(|out| std::thread::spawn(move || send_lines(out, &sender)));
        let stderr = child.stderr.take().map(|mut err| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                let _ = err.read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
        });
        Process { child, lines, stdout, stderr, folder: self.folder }
    }
}

/// Forwards lines as they arrive, and keeps them all.
fn send_lines(from: impl Read, to: &SyncSender<String>) -> String {
    let mut all = String::new();
    for line in BufReader::new(from).lines().map_while(Result::ok) {
        all.push_str(&line);
        all.push('\n');
        let _ = to.try_send(line);
    }
    all
}

/// A running program, killed at the end of its test.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
    folder: TempDir,
}

impl Process {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The empty folder in which it was started.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The next line of standard output that begins with this text; `None` if the program ends or hangs before.
    pub(crate) fn wait_for(&mut self, begin: &str) -> Option<String> {
        self.wait_for_one(&[begin])
    }

    /// The next line of standard output that begins with one of these texts.
    fn wait_for_one(&mut self, begins: &[&str]) -> Option<String> {
        let until = Instant::now() + HANGS;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) if begins.iter().any(|begin| line.starts_with(begin)) => return Some(line),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Waits for a line of standard output that begins with this text, and then stops the program.
    pub(crate) fn stop_after(mut self, begin: &str) -> Ended {
        self.wait_for(begin).unwrap_or_else(|| panic!("no {begin}: {:?}", self.kill()));
        self.terminate();
        self.ended()
    }

    /// Waits until the server reports that it serves.
    pub(crate) fn serving(mut self) -> Server {
        let line = self.wait_for("http  ").unwrap_or_else(|| panic!("no server: {:?}", self.kill()));
        let address = |name: &str| {
            let mut words = line.split_whitespace().skip_while(|word| *word != name);
            words.nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no {name} in {line:?}"))
        };
        let [http, grpc, metrics] = ["http", "grpc", "metrics"].map(address);
        let admin = line.split("://").nth(1).and_then(|rest| rest.split_whitespace().next());
        let admin = admin.map(|address| address.parse().unwrap());
        self.wait_for_one(&["ready in ", "serving "]).unwrap_or_else(|| panic!("not ready: {:?}", self.kill()));
        Server { process: self, http, grpc, metrics, admin }
    }

    /// Asks the program to stop, like an init system.
    pub(crate) fn terminate(&self) {
        let kill = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &self.pid().to_string()]).status().unwrap();
        assert!(kill.success());
    }

    /// Waits until the program ends.
    pub(crate) fn ended(mut self) -> Ended {
        let until = Instant::now() + HANGS;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return self.output(status.code());
            }
            assert!(Instant::now() < until, "it does not end: {:?}", self.kill());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn kill(&mut self) -> Ended {
        let _ = self.child.kill();
        let code = self.child.wait().ok().and_then(|status| status.code());
        self.output(code)
    }

    fn output(&mut self, code: Option<i32>) -> Ended {
        let text =
            |reader: &mut Option<JoinHandle<String>>| reader.take().map(|r| r.join().unwrap()).unwrap_or_default();
        Ended { code, stdout: text(&mut self.stdout), stderr: text(&mut self.stderr) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A serving server.
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) metrics: SocketAddr,
    /// `None` without an admin listener.
    pub(crate) admin: Option<SocketAddr>,
}

impl Server {
    /// A server with the repository's models.
    pub(crate) fn of_models() -> Server {
        Call::serve(models()).start()
    }

    pub(crate) async fn client(&self) -> GrpcInferenceServiceClient<Channel> {
        GrpcInferenceServiceClient::connect(format!("http://{}", self.grpc)).await.unwrap()
    }

    /// Status and body of a GET over HTTP.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        get(self.http, path)
    }

    /// Terminates the server and waits for its end.
    pub(crate) fn stop(self) -> Ended {
        self.process.terminate();
        self.process.ended()
    }
}

/// Status and body of a GET.
pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANGS)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    let status = head.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    (status.unwrap_or_else(|| panic!("{head:?}")), body.to_owned())
}

/// Copies a folder with all its contents.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
