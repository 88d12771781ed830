//! A model's files and a store on disk, which several servers use in turn. The tests of restarts share this.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sequor_core::{Id, Refusal};
use tempfile::TempDir;

use super::{load, request};
use crate::backend::mock::MockBackend;
use crate::device::stand_in::StandIns;
use crate::error::Failure;
use crate::model::*;
use crate::state::tier::{
    self, EndedState, FoundState, OwnRedis, RunningTime, SharedOptions, SharedStore, StateHead, Successions, Tier,
    TierChange, TierError, TierKey, TierUsage,
};
use crate::telemetry::Metrics;

const CONFIG: &str = r#"
    backend: "onnxruntime" max_batch_size: 4
    input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    instance_group [ { kind: KIND_CPU count: 2 } ]
    sequence_batching { STRATEGY max_sequence_idle_microseconds: 5000000 state [
        { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ 1 ] } ] }
"#;

/// A model's files and a store, which outlive servers.
pub(super) struct Machine {
    pub(super) folder: TempDir,
    /// Maximum bytes of states: on disk, and in memory.
    limit: u64,
    memory: u64,
    pub(super) clock: Clock,
    /// Gives a server its plug-ins.
    pub(super) equip: fn(&Path, &Repository),
    disk: Arc<SlowDisk>,
    /// Its accelerators, if the model runs on them.
    gpus: Option<StandIns>,
    /// The store, if servers share one.
    redis: Option<OwnRedis>,
    pub(super) backend: MockBackend,
}

/// Holds up commits or fails them, and counts them.
#[derive(Debug, Default)]
struct SlowDisk {
    is_held: Mutex<bool>,
    fails: AtomicBool,
    /// Whether commits that begin from now on fail.
    fails_behind: AtomicBool,
    /// Whether commits fail after the disk has done them.
    fails_done: AtomicBool,
    /// Whether a commit that fails may have been done, as far as the tier knows.
    is_unsure: AtomicBool,
    /// The heads from before such commits, until the tier looks again.
    unsure: Mutex<HashMap<TierKey, Option<Arc<StateHead>>>>,
    /// Whether reads fail.
    fails_reads: AtomicBool,
    changed: Condvar,
    /// Commits that have begun, and commits that are no longer held up.
    begun: AtomicU64,
    commits: AtomicU64,
    /// Number of states in commits that were passed on to the disk.
    states: AtomicU64,
}

impl SlowDisk {
    fn hold(&self, held: bool) {
        *self.is_held.lock() = held;
        self.changed.notify_all();
    }
}

#[derive(Debug)]
struct SlowTier(tier::DiskTier, Arc<SlowDisk>);

impl SlowTier {
    fn check_reads(&self) -> Result<(), TierError> {
        if self.1.fails_reads.load(Ordering::Acquire) {
            return Err(TierError::Io { path: "the disk".to_owned(), what: "a bad sector".to_owned() });
        }
        Ok(())
    }
}

impl Tier for SlowTier {
    fn get(&self, key: &TierKey) -> FoundState {
        self.check_reads()?;
        self.0.get(key)
    }

    fn known(&self, key: &TierKey) -> Option<Option<Arc<StateHead>>> {
        let is_sure = !self.1.unsure.lock().contains_key(key);
        is_sure.then(|| self.0.known(key)).flatten()
    }

    fn look(&self, key: &TierKey) -> Result<Option<Arc<StateHead>>, TierError> {
        self.check_reads()?;
        self.1.unsure.lock().remove(key);
        self.0.look(key)
    }

    fn put_batch(&self, changes: &[TierChange]) -> Result<Vec<usize>, TierError> {
        let is_behind = self.1.fails_behind.load(Ordering::Acquire);
        self.1.begun.fetch_add(1, Ordering::Release);
        let mut held = self.1.is_held.lock();
        while *held {
            self.1.changed.wait(&mut held);
        }
        self.1.commits.fetch_add(1, Ordering::Release);
        drop(held);
        let keys = || {
            changes.iter().filter_map(|change| match change {
                TierChange::Put { key, .. } | TierChange::Remove { key, .. } => Some(key),
                _ => None,
            })
        };
        let is_done = self.1.fails_done.load(Ordering::Acquire);
        if is_done || is_behind || self.1.fails.load(Ordering::Acquire) {
            if is_done || self.1.is_unsure.load(Ordering::Acquire) {
                self.1.unsure.lock().extend(keys().map(|key| (key.clone(), self.0.head(key))));
            }
            if is_done {
                self.0.put_batch(changes)?;
            }
            return Err(TierError::Io { path: "the disk".to_owned(), what: "no space left".to_owned() });
        }
        keys().for_each(|key| _ = self.1.unsure.lock().remove(key));
        let states = changes.iter().filter(|change| matches!(change, TierChange::Put { .. })).count();
        self.1.states.fetch_add(states as u64, Ordering::Relaxed);
        self.0.put_batch(changes)
    }

    fn head(&self, key: &TierKey) -> Option<Arc<StateHead>> {
        let unsure = self.1.unsure.lock().get(key).cloned();
        unsure.unwrap_or_else(|| self.0.head(key))
    }

    fn may_have(&self, key: &TierKey, incarnation: u64) -> bool {
        self.0.may_have(key, incarnation)
    }

    fn list(&self, model: &str) -> Vec<(Id, Arc<StateHead>)> {
        self.0.list(model)
    }

    fn take_ended(&self, model: &str) -> Vec<(Id, EndedState)> {
        self.0.take_ended(model)
    }

    fn successions(&self, model: &str) -> Successions {
        self.0.successions(model)
    }

    fn running_time(&self) -> RunningTime {
        self.0.running_time()
    }

    fn usage(&self) -> TierUsage {
        self.0.usage()
    }

    fn next_epoch(&self, least: u64) -> Result<u64, TierError> {
        self.0.next_epoch(least)
    }

    fn close(&self) {
        self.0.close();
    }
}

pub(super) struct Server {
    pub(super) repository: Repository,
    stopped: bool,
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.stopped {
            self.repository.stop();
        }
    }
}

impl Machine {
    pub(super) fn new(when: &str, strategy: &str) -> Machine {
        let machine = Machine {
            folder: tempfile::tempdir().unwrap(),
            limit: u64::MAX,
            memory: u64::MAX,
            clock: Clock::manual(),
            equip: |_, _| {},
            disk: Arc::default(),
            gpus: None,
            redis: None,
            backend: MockBackend::new(),
        };
        fs_err::create_dir_all(machine.model().join("1")).unwrap();
        fs_err::write(machine.model().join("config.pbtxt"), CONFIG.replace("STRATEGY", strategy)).unwrap();
        fs_err::write(machine.model().join("sequor.toml"), format!("[durability]\nwhen = \"{when}\"\n")).unwrap();
        fs_err::write(machine.model().join("1/model.onnx"), "accumulate INT32").unwrap();
        machine
    }

    /// Runs the model on these accelerators.
    pub(super) fn on(self, gpus: &StandIns) -> Machine {
        let gpus = Some(gpus.clone());
        Machine { gpus, backend: MockBackend::new().with_stand_ins(), ..self.configured("KIND_CPU", "KIND_GPU") }
    }

    /// Lets its servers share a store.
    pub(super) fn sharing(self) -> Machine {
        Machine { redis: Some(OwnRedis::start()), ..self }
    }

    /// Changes the model's configuration.
    pub(super) fn configured(self, from: &str, to: &str) -> Machine {
        let config = self.model().join("config.pbtxt");
        let text = fs_err::read_to_string(&config).unwrap();
        assert!(text.contains(from), "{text}");
        fs_err::write(&config, text.replace(from, to)).unwrap();
        self
    }

    /// Limits the bytes of states on disk.
    pub(super) fn with_limit(self, limit: u64) -> Machine {
        Machine { limit, ..self }
    }

    /// Limits the memory for states.
    pub(super) fn with_memory(self, memory: u64) -> Machine {
        Machine { memory, ..self }
    }

    /// Holds up the writes of the store, or lets them continue.
    pub(super) fn hold_disk(&self, held: bool) {
        self.disk.hold(held);
    }

    /// Fails the writes of the store, or lets them succeed.
    pub(super) fn fail_disk(&self, fails: bool) {
        self.disk.fails.store(fails, Ordering::Release);
    }

    /// Fails the writes of the store behind the one that is held up, or lets them succeed.
    pub(super) fn fail_behind(&self, fails: bool) {
        self.disk.fails_behind.store(fails, Ordering::Release);
    }

    /// Reports that each write of the store has failed, although it was done, or lets them succeed.
    pub(super) fn fail_done(&self, fails: bool) {
        self.disk.fails_done.store(fails, Ordering::Release);
    }

    /// Lets the store read again after a failed write before it says which state it has.
    pub(super) fn be_unsure(&self) {
        self.disk.is_unsure.store(true, Ordering::Release);
    }

    /// Lets the shared store refuse each write, or lets it write again.
    pub(super) fn fill_redis(&self, is_full: bool) {
        let limit = if is_full { "1" } else { "0" };
        let redis = self.redis.as_ref().unwrap();
        assert!(redis.ask(&format!("CONFIG SET maxmemory {limit}")).starts_with("+OK"));
    }

    /// Fails the reads of the store, or lets them succeed.
    pub(super) fn fail_reads(&self, fails: bool) {
        self.disk.fails_reads.store(fails, Ordering::Release);
    }

    /// Number of commits that are no longer held up.
    pub(super) fn commits(&self) -> u64 {
        self.disk.commits.load(Ordering::Relaxed)
    }

    /// Number of states in commits that were passed on to the disk.
    pub(super) fn states_written(&self) -> u64 {
        self.disk.states.load(Ordering::Relaxed)
    }

    /// Waits until a commit of the store is held up.
    pub(super) fn wait_for_held_commit(&self) {
        while self.disk.begun.load(Ordering::Acquire) == self.disk.commits.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    pub(super) fn model(&self) -> PathBuf {
        self.folder.path().join("sum")
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub(super) fn serve(&self) -> Server {
        self.serve_from(&self.state())
    }

    pub(super) fn serve_from(&self, state: &Path) -> Server {
        let (store, epoch) = match &self.redis {
            Some(redis) => self.shared_store(redis),
            None => self.own_store(state),
        };
        let (store, clock, first_id) = (Arc::new(store), self.clock.clone(), Some(repository::first_id_of(epoch)));
        let mut options = RepositoryOptions {
            reply_pool: 1 << 20,
            state_limit: self.memory,
            store: Some(store),
            first_id,
            clock,
            ..RepositoryOptions::default()
        };
        if let Some(gpus) = &self.gpus {
            options.accelerators = Arc::new(gpus.clone());
        }
        let repository = Repository::new(Arc::new(self.backend.clone()), options, Metrics::new(true)).unwrap();
        (self.equip)(self.folder.path(), &repository);
        load(&repository, &self.model());
        Server { repository, stopped: false }
    }

    fn own_store(&self, state: &Path) -> (SequenceStore, u64) {
        let opened = tier::open(state, self.limit, Duration::ZERO).unwrap();
        assert!(opened.set_aside.is_none(), "{:?}", opened.set_aside);
        let epoch = opened.tier.next_epoch(1).unwrap();
        let tier = Arc::new(SlowTier(opened.tier, Arc::clone(&self.disk)));
        (SequenceStore::new(tier, epoch, self.clock.clone()).unwrap(), epoch)
    }

    fn shared_store(&self, redis: &OwnRedis) -> (SequenceStore, u64) {
        let url = format!("redis://127.0.0.1:{}", redis.1);
        let (node, lease) = ("one of several".to_owned(), Duration::from_secs(60));
        let shared = SharedStore::open(SharedOptions { shown: url.clone(), url, node, lease }).unwrap();
        let epoch = shared.tier().next_epoch(1).unwrap();
        (SequenceStore::of_servers(shared, epoch, self.clock.clone()).unwrap(), epoch)
    }

    /// The files that a machine has on its disk if the server dies now.
    pub(super) fn crashed(&self) -> PathBuf {
        let copy = self.folder.path().join("crashed");
        let _ = fs_err::remove_dir_all(&copy);
        fs_err::create_dir(&copy).unwrap();
        let read = || fs_err::read(self.state().join("sequences.redb")).unwrap();
        // The store may be writing.
        let (mut file, mut again) = (read(), read());
        while file != again {
            (file, again) = (again, read());
        }
        fs_err::write(copy.join("sequences.redb"), file).unwrap();
        copy
    }
}

impl Server {
    pub(super) fn send(
        &self,
        id: u64,
        value: i32,
        change: impl FnOnce(&mut SequenceStep),
    ) -> Result<InferAnswer, Failure> {
        let pending = self.repository.submit(request(id, value, change))?;
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending)
    }

    pub(super) fn sum(&self, id: u64, value: i32, change: impl FnOnce(&mut SequenceStep)) -> i32 {
        let answer = self.send(id, value, change).unwrap();
        i32::from_le_bytes(answer.outputs[0].tensor.data[..].try_into().unwrap())
    }

    pub(super) fn refusal(&self, id: u64, change: impl FnOnce(&mut SequenceStep)) -> Refusal {
        match self.send(id, 1, change).unwrap_err() {
            Failure::Refused(refused) => refused.refusal,
            other => panic!("{other:?}"),
        }
    }

    /// Ids and steps of the sequences that wait for their next step.
    pub(super) fn resumable(&self) -> Vec<(Id, u64)> {
        self.repository.resumable("sum").unwrap().into_iter().map(|kept| (kept.id, kept.step)).collect()
    }

    pub(super) fn stop(mut self) {
        self.stopped = true;
        self.repository.stop();
    }
}

pub(super) fn start(step: &mut SequenceStep) {
    step.start = true;
}

pub(super) const OLDEST: &str = "oldest { max_candidate_sequences: 4 }";

pub(super) fn answered(pending: Pending) -> InferAnswer {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending).unwrap()
}

/// The last durable step that an answer names, once it is at least this one.
pub(super) fn durable(server: &Server, id: u64, least: i64) -> i64 {
    for step in 0.. {
        let answer = server.send(id, 0, |_| {}).unwrap();
        match &answer.parameters[..] {
            [(name, Parameter::Int(durable))] if name == "sequor_durable_step" => {
                if *durable >= least {
                    return *durable;
                }
            }
            other => panic!("{other:?}"),
        }
        assert!(step < 100_000, "nothing becomes durable");
    }
    0
}
