//! Records requests. Finished requests go to one thread that writes them to a file. No request waits for it: lines that it cannot take are
//! dropped and counted. A disk failure ends the recording and nothing else.
//!
//! The size of the recording is limited. When the file reaches half of the limit, it becomes `FILE.1` in place of an earlier one, and a new
//! file begins. The files thus always hold the latest requests.

use std::borrow::Cow;
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use sequor_core::Id;

use super::trace::{FORMAT, Hash, Head, Load, RecordedRequest};

/// Maximum number of requests that wait to be written.
const WAITING: usize = 16 * 1024;

/// An upper estimate of a line's length.
const LINE: u64 = 512;

/// Sends requests to the thread that writes. Clones share the recording; dropping the last one finishes it.
#[derive(Debug, Clone)]
pub struct Recorder(Arc<RecorderState>);

#[derive(Debug)]
struct RecorderState {
    /// `None` only during the drop.
    sender: Option<SyncSender<RecorderMessage>>,
    thread: Option<JoinHandle<()>>,
    dropped: Arc<AtomicU64>,
    /// Loads that are not written yet. There are few, so they need no limit.
    loads: Arc<Mutex<Vec<Load<'static>>>>,
    /// Key of the hashes of ids. Without it, a reader of the file cannot find an id by trying all.
    key: RandomState,
}

/// A finished request. Times are in microseconds.
#[derive(Debug, Clone)]
pub struct FinishedRequest {
    pub arrived_us: u64,
    pub model: Arc<str>,
    pub version: u64,
    pub start: bool,
    pub end: bool,
    pub bytes: u64,
    pub shape: u64,
    pub priority: u32,
    pub timeout_us: Option<u64>,
    pub queue_us: u64,
    pub run_us: u64,
    pub batch: u32,
    pub outcome: &'static str,
}

#[derive(Debug)]
enum RecorderMessage {
    /// A load waits in the list.
    Load,
    Request(Option<Hash>, FinishedRequest),
}

impl Recorder {
    /// Opens a recording of at most `most` bytes. An existing file becomes `FILE.1`. `zero_unix_us` is the time at which the recording's
    /// times start.
    pub fn open(path: &Path, most: u64, zero_unix_us: u64) -> io::Result<Recorder> {
        Recorder::with_queue(path, most, zero_unix_us, WAITING)
    }

    fn with_queue(path: &Path, most: u64, zero_unix_us: u64, waiting: usize) -> io::Result<Recorder> {
        let tape = Tape::begin(path, most / 2, zero_unix_us)?;
        let (sender, receiver) = sync_channel(waiting);
        let dropped = Arc::new(AtomicU64::new(0));
        let (lost, loads) = (Arc::clone(&dropped), Arc::<Mutex<Vec<Load<'static>>>>::default());
        let new_loads = Arc::clone(&loads);
        let thread = std::thread::Builder::new()
            .name("sequor-record".to_owned())
            .spawn(move || write_all(tape, &receiver, &new_loads, &lost))?;
        Ok(Recorder(Arc::new(RecorderState {
            sender: Some(sender),
            thread: Some(thread),
            dropped,
            loads,
            key: RandomState::new(),
        })))
    }

    /// Records that a load is in service. This is never dropped: requests of a load that is not in the recording cannot be replayed.
    pub fn load(&self, load: Load<'static>) {
        self.0.loads.lock().push(load);
        // Wakes the thread, which takes the loads before each message. If the queue is full, it is awake.
        if let Some(sender) = self.0.sender.as_ref() {
            let _ = sender.try_send(RecorderMessage::Load);
        }
    }

    /// Records a finished request.
    pub fn request(&self, id: &Id, through: FinishedRequest) {
        let hash = match id {
            Id::None => None,
            id => Some(Hash(self.0.key.hash_one(id))),
        };
        self.send(RecorderMessage::Request(hash, through));
    }

    /// Number of requests that could not be recorded.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Relaxed)
    }

    fn send(&self, message: RecorderMessage) {
        let full = self.0.sender.as_ref().is_none_or(|sender| sender.try_send(message).is_err());
        if full {
            self.0.dropped.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for RecorderState {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the recording's thread has panicked");
        }
    }
}

// === the thread ===

fn write_all(
    mut tape: Tape,
    receiver: &Receiver<RecorderMessage>,
    loads: &Mutex<Vec<Load<'static>>>,
    dropped: &AtomicU64,
) {
    let mut reported = 0;
    loop {
        let message = match receiver.try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {
                // A quiet moment: flush the lines, and report lost ones.
                tape.flush();
                report_dropped(dropped, &mut reported);
                match receiver.recv() {
                    Ok(message) => message,
                    Err(_) => break,
                }
            }
        };
        // Before the message: a request comes after its load.
        std::mem::take(&mut *loads.lock()).into_iter().for_each(|load| tape.write(TapeLine::Load(load)));
        if let RecorderMessage::Request(id, through) = message {
            tape.write(TapeLine::Request(id, through));
        }
    }
    std::mem::take(&mut *loads.lock()).into_iter().for_each(|load| tape.write(TapeLine::Load(load)));
    tape.flush();
    report_dropped(dropped, &mut reported);
}

fn report_dropped(dropped: &AtomicU64, reported: &mut u64) {
    let all = dropped.load(Relaxed);
    if all > *reported {
        tracing::warn!(dropped = all - *reported, all, "the recording could not keep up: requests are missing from it");
        *reported = all;
    }
}

/// A line of the file.
#[derive(Debug)]
enum TapeLine {
    Load(Load<'static>),
    Request(Option<Hash>, FinishedRequest),
}

/// The open file of the recording.
#[derive(Debug)]
struct Tape {
    path: PathBuf,
    /// `None` once the disk has failed.
    file: Option<BufWriter<File>>,
    written: u64,
    most: u64,
    head: Head,
    /// Repeated at the beginning of every file: the newest load of each version of each model.
    loads: Vec<Load<'static>>,
    line: Vec<u8>,
}

impl Tape {
    fn begin(path: &Path, most: u64, zero_unix_us: u64) -> io::Result<Tape> {
        let head = Head { sequor_trace: FORMAT, zero_unix_us };
        let mut tape =
            Tape { path: path.to_owned(), file: None, written: 0, most, head, loads: Vec::new(), line: Vec::new() };
        tape.turn()?;
        Ok(tape)
    }

    /// Renames the file to `FILE.1` and starts a new one.
    fn turn(&mut self) -> io::Result<()> {
        if let Some(mut file) = self.file.take() {
            file.flush()?;
        }
        if self.path.exists() {
            std::fs::rename(&self.path, aside(&self.path))?;
        }
        self.file = Some(BufWriter::with_capacity(1 << 16, File::create(&self.path)?));
        self.written = 0;
        let head = self.head;
        self.write_line(&head)?;
        for load in std::mem::take(&mut self.loads) {
            self.write_line(&load)?;
            self.loads.push(load);
        }
        Ok(())
    }

    fn write_line(&mut self, what: &impl serde::Serialize) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, what)?;
        self.line.push(b'\n');
        self.written += self.line.len() as u64;
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(&self.line))
    }

    fn write(&mut self, message: TapeLine) {
        if self.file.is_none() {
            return;
        }
        if let Err(error) = self.try_write(message) {
            tracing::error!(path = %self.path.display(), %error, "the recording has ended: its file cannot be written");
            self.file = None;
        }
    }

    fn try_write(&mut self, message: TapeLine) -> io::Result<()> {
        match message {
            TapeLine::Load(load) => {
                self.write_line(&load)?;
                self.loads.retain(|other| (&other.load, other.version) != (&load.load, load.version));
                self.loads.push(load);
            }
            TapeLine::Request(seq, through) => self.write_line(&line(seq, &through))?,
        }
        if self.written + LINE >= self.most { self.turn() } else { Ok(()) }
    }

    fn flush(&mut self) {
        if let Some(Err(error)) = self.file.as_mut().map(Write::flush) {
            tracing::error!(path = %self.path.display(), %error, "the recording has ended: its file cannot be written");
            self.file = None;
        }
    }
}

/// The path to which a full file is renamed.
fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

fn line(seq: Option<Hash>, through: &FinishedRequest) -> RecordedRequest<'_> {
    let FinishedRequest {
        arrived_us,
        model,
        version,
        start,
        end,
        bytes,
        shape,
        priority,
        timeout_us,
        queue_us,
        run_us,
        batch,
        outcome,
    } = through;
    RecordedRequest {
        t: *arrived_us,
        model: Cow::Borrowed(model),
        version: *version,
        seq,
        start: *start,
        end: *end,
        bytes: *bytes,
        shape: (*shape != 0).then_some(Hash(*shape)),
        priority: *priority,
        timeout_us: *timeout_us,
        queue_us: *queue_us,
        run_us: *run_us,
        batch: *batch,
        outcome: Cow::Borrowed(outcome),
        tenant: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::trace::{TraceLine, read};

    fn through(n: u64) -> FinishedRequest {
        FinishedRequest {
            arrived_us: n,
            model: "m".into(),
            version: 1,
            start: true,
            end: false,
            bytes: 8,
            shape: 5,
            priority: 0,
            timeout_us: None,
            queue_us: 1,
            run_us: 2,
            batch: 1,
            outcome: "ok",
        }
    }

    fn load() -> Load<'static> {
        Load {
            load: "m".into(),
            version: 1,
            strategy: "oldest".into(),
            instances: 1,
            slots: 2,
            max_batch: 2,
            delay_us: 0,
            idle_us: Some(1),
        }
    }

    #[test]
    fn requests_are_written_with_hashed_ids() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let recorder = Recorder::open(&path, 1 << 20, 9).unwrap();
        recorder.load(load());
        for (n, id) in (0..).zip([Id::from("call-77"), Id::from(7), Id::from("call-77"), Id::None]) {
            recorder.request(&id, through(n));
        }
        drop(recorder);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<TraceLine<'_>> = text.lines().map(|l| read(l).unwrap()).collect();
        assert!(!text.contains("call"));
        let seqs: Vec<Option<Hash>> =
            lines.iter().filter_map(|l| if let TraceLine::Request(r) = l { Some(r.seq) } else { None }).collect();
        assert_eq!(
            (lines.len(), &lines[0], &lines[1]),
            (6, &TraceLine::Head(Head { sequor_trace: 1, zero_unix_us: 9 }), &TraceLine::Load(load()))
        );
        assert!(seqs[0] == seqs[2] && seqs[0] != seqs[1] && seqs[1].is_some() && seqs[3].is_none());
        assert_ne!(seqs[1], Some(Hash(7)));
    }

    #[test]
    fn a_recording_stays_within_its_size_and_keeps_the_latest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        std::fs::write(&path, "of an earlier run\n").unwrap();
        let mut tape = Tape::begin(&path, 2000, 0).unwrap();
        assert_eq!(std::fs::read_to_string(aside(&path)).unwrap(), "of an earlier run\n");
        tape.write(TapeLine::Load(load()));
        for n in 0..100 {
            tape.write(TapeLine::Request(Some(Hash(n)), through(n)));
        }
        tape.flush();
        let (old, new) = (std::fs::read_to_string(aside(&path)).unwrap(), std::fs::read_to_string(&path).unwrap());
        assert!(old.len() + new.len() <= 4000, "{} {}", old.len(), new.len());
        for text in [&old, &new] {
            assert!(
                matches!(read(text.lines().next().unwrap()), Ok(TraceLine::Head(_)))
                    && matches!(read(text.lines().nth(1).unwrap()), Ok(TraceLine::Load(_)))
            );
        }
        let times = |text: &str| {
            text.lines()
                .filter_map(|l| if let Ok(TraceLine::Request(r)) = read(l) { Some(r.t) } else { None })
                .collect::<Vec<_>>()
        };
        let all: Vec<u64> = times(&old).into_iter().chain(times(&new)).collect();
        assert_eq!((all.last(), all.windows(2).all(|w| w[1] == w[0] + 1)), (Some(&99), true));
    }

    #[test]
    fn a_recording_repeats_only_the_newest_load_of_a_version() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let mut tape = Tape::begin(&path, 1 << 20, 0).unwrap();
        for slots in 1..=100 {
            tape.write(TapeLine::Load(Load { slots, ..load() }));
        }
        tape.write(TapeLine::Load(Load { version: 2, ..load() }));
        tape.turn().unwrap();
        tape.flush();
        let text = std::fs::read_to_string(&path).unwrap();
        let loads =
            text.lines().filter_map(|l| if let Ok(TraceLine::Load(load)) = read(l) { Some(load) } else { None });
        let loads: Vec<_> = loads.map(|load| (load.version, load.slots)).collect();
        assert_eq!(loads, [(1, 100), (2, 2)]);
    }

    #[test]
    fn requests_beyond_the_recorder_queue_are_dropped_and_counted() {
        let (sender, receiver) = sync_channel(1);
        let shared = RecorderState {
            sender: Some(sender),
            thread: None,
            dropped: Arc::default(),
            loads: Arc::default(),
            key: RandomState::new(),
        };
        let recorder = Recorder(Arc::new(shared));
        for n in 0..3 {
            recorder.request(&Id::None, through(n));
        }
        assert_eq!((recorder.dropped(), receiver.try_iter().count()), (2, 1));
        drop(receiver);
        recorder.request(&Id::None, through(3));
        assert_eq!(recorder.dropped(), 3);
    }

    #[test]
    fn a_load_is_recorded_even_if_the_queue_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let (sender, receiver) = sync_channel(1);
        let shared = RecorderState {
            sender: Some(sender),
            thread: None,
            dropped: Arc::default(),
            loads: Arc::default(),
            key: RandomState::new(),
        };
        let recorder = Recorder(Arc::new(shared));
        recorder.request(&Id::None, through(1));
        recorder.load(load());
        let (loads, dropped) = (Arc::clone(&recorder.0.loads), Arc::clone(&recorder.0.dropped));
        drop(recorder);
        write_all(Tape::begin(&path, 1 << 20, 0).unwrap(), &receiver, &loads, &dropped);
        let text = std::fs::read_to_string(&path).unwrap();
        let is_load = |line: &str| matches!(read(line), Ok(TraceLine::Load(_)));
        assert_eq!((text.lines().filter(|line| is_load(line)).count(), dropped.load(Relaxed)), (1, 0), "{text}");
    }
}
