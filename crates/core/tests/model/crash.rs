//! Histories with crashes: the process ends at any point, and the next one has only the store's content.
//!
//! The store is that of a driver with `[durability] when = "step"`. It writes the states of a batch that is to be sealed, and removes the state of a
//! sequence at its END. It removes that of a sequence that ends otherwise some time later. At a crash each write that is under way has
//! happened as a whole or not at all.
//!
//! Two things must hold. After a crash the store has the last answered step of each sequence, or a later one. No step is applied to a state
//! that contains it.

use std::collections::{HashMap, HashSet};

use sequor_core::*;

use super::outcome::count;
use super::refer::{N, Refer};
use super::store::Store;
use super::threads::Hand;
use super::witness::Witness;
use super::world::World;
use super::{Checked, news};
use crate::hold;

/// The stored state of an id.
#[derive(Debug, Clone, Copy)]
struct Kept {
    /// The number of its sequence.
    incarnation: u64,
    /// The serial of the first state since the last START.
    life: u64,
    version: u64,
    step: u64,
    hash: u64,
    /// Increases with each state that is handed to the store.
    serial: u64,
    /// Whether the step's answer is kept with the state, because the client numbers its steps.
    with_answer: bool,
}

/// A row of a batch on its way to the store.
#[derive(Debug, Clone)]
struct Write {
    req: Req,
    id: Id,
    ends: bool,
    kept: Kept,
}

/// The last step of an id that was answered.
#[derive(Debug, Clone, Copy)]
struct Answered {
    incarnation: u64,
    life: u64,
    step: u64,
    serial: u64,
    ends: bool,
}

/// The store, and the knowledge of driver and clients about it.
#[derive(Debug, Default)]
pub struct Disk {
    /// The durable states.
    kept: HashMap<Id, Kept>,
    /// Batches that the store is writing.
    writes: HashMap<BatchId, Vec<Write>>,
    /// Ended sequences whose states the store has still to remove.
    forgets: Vec<(Id, u64)>,
    /// Rows that were handed to the store and are not answered yet.
    sealing: HashMap<Req, Write>,
    /// The durable rows of `sealing`.
    durable: HashSet<Req>,
    answered: HashMap<Id, Answered>,
    /// The sequence of each id that began last.
    ///
    /// Two sequences of one id can live on two versions of a model. The store keeps one state per id, and does not replace the state of a younger
    /// sequence by that of an older one. The driver answers the steps of the older sequence all the same, so nothing is promised of it.
    latest: HashMap<Id, u64>,
    /// Sequences that are not live and that the next step can resume.
    resumable: HashMap<Id, Kept>,
    /// Sequences that a request has taken, until the store has answered it.
    lent: HashMap<Req, (Id, Kept)>,
    /// Sequences that a START has begun again, until a state of the new life is handed to the store.
    stale: HashSet<N>,
    /// Sequences that have ended. Their answers may leave later if a load answers in order.
    gone: HashSet<u64>,
    /// Live sequences by their numbers in the store. A resumed sequence has the number that it had before.
    incarnations: HashMap<N, u64>,
    /// See [`Kept::life`].
    lives: HashMap<N, u64>,
    /// The last steps that the states of live sequences contain.
    applied: HashMap<N, u64>,
    /// Sequences that have begun, in all processes.
    born: u64,
    /// States that were handed to the store, in all processes.
    serial: u64,
    /// `serial` when this process began.
    began: u64,
}

impl Disk {
    fn incarnation(&self, n: N) -> u64 {
        self.incarnations.get(&n).copied().unwrap_or_default()
    }

    fn write(&mut self, Write { req, id, ends, kept }: &Write) {
        self.durable.insert(*req);
        if self.kept.get(id).is_some_and(|of| of.incarnation > kept.incarnation) {
            return;
        }
        if *ends {
            self.kept.remove(id);
            self.gone.insert(kept.incarnation);
            // It has ended, whether its END was answered or not.
            let last = self.answered.get_mut(id).filter(|last| last.incarnation == kept.incarnation);
            last.into_iter().for_each(|last| (last.serial, last.ends) = (kept.serial, true));
        } else {
            self.kept.insert(id.clone(), *kept);
        }
    }

    fn has(&self, id: &Id, incarnation: u64) -> bool {
        self.kept.get(id).is_some_and(|of| of.incarnation == incarnation)
    }

    /// Records that a sequence has ended, and its client does not rely on it.
    fn ends(&mut self, id: Id, incarnation: u64) {
        if self.answered.get(&id).is_some_and(|last| last.incarnation == incarnation) {
            self.answered.remove(&id);
        }
        self.forgets.push((id, incarnation));
    }

    fn forget(&mut self, id: &Id, incarnation: u64) {
        if self.kept.get(id).is_some_and(|of| of.incarnation <= incarnation) {
            self.kept.remove(id);
        }
    }

    /// Loads of such a history seal every step, and only this module resumes states from the store.
    pub fn tame(spec: &mut LoadSpec) {
        spec.stages = Stages { seal: true, activate: false, ..spec.stages };
        spec.initial_state_shape = 0;
    }
}

impl World {
    /// A history in which the process may crash.
    pub fn mortal(seed: u64) -> World {
        let mut world = World::new(seed);
        world.disk = Some(Disk::default());
        // Stateless requests leave nothing in the store. The core takes the shapes of a resumed state to be those of a first state.
        (world.taste.stateless, world.taste.shapes) = (0, 1);
        world
    }

    /// Crashes this many times at random points, then lets everything run to its end.
    pub fn run_with_crashes(&mut self, crashes: u64) -> Checked {
        self.loads()?;
        for _ in 0..crashes {
            self.lives()?;
            self.crashes()?;
        }
        self.lives()?;
        self.wind_down()
    }

    fn lives(&mut self) -> Checked {
        let until = self.counts.calls + self.rng.range(20, 600);
        while self.counts.calls < until {
            self.step()?;
        }
        Ok(())
    }

    // === the store while the process lives ===

    /// A batch is to be made durable.
    pub fn seal_begins(&mut self, batch: BatchId) {
        let rows = self.refer.sealing(batch);
        let Some(disk) = &mut self.disk else { return };
        let mut writes = Vec::new();
        for req in rows {
            let Some(r) = self.refer.req(req) else { continue };
            let (Some(n), step, start, ends) = (r.seq, r.step, r.start, r.end) else { continue };
            let seq = self.refer.seq(n);
            let version = self.refer.loads[seq.load].spec.version;
            let hash = seq.key.and_then(|key| self.store.hash_of(key)).unwrap_or(0);
            disk.serial += 1;
            disk.applied.insert(n, step);
            // Where the START failed, the first step that runs begins the new life.
            if disk.stale.remove(&n) || start {
                disk.lives.insert(n, disk.serial);
            }
            let life = disk.lives.get(&n).copied().unwrap_or_default();
            let with_answer = self.witness.get(req).is_some_and(|sent| sent.step.is_some());
            let (incarnation, serial) = (disk.incarnation(n), disk.serial);
            let kept = Kept { incarnation, life, version, step, hash, serial, with_answer };
            let write = Write { req, id: seq.id.clone(), ends, kept };
            disk.sealing.insert(req, write.clone());
            writes.push(write);
        }
        disk.writes.insert(batch, writes);
    }

    /// The refusal of a request whose write has failed. If the store has a state of the same life, the sequence goes on from what the store
    /// has. That may be the state of the failed write: the store may have done it all the same.
    pub fn fails_to_write(&mut self, batch: BatchId, req: Req) -> Refusal {
        let is_there = self.rng.percent(30);
        let Some(disk) = &mut self.disk else { return Refusal::Failed(5) };
        let write = disk.writes.get(&batch).and_then(|rows| rows.iter().find(|write| write.req == req)).cloned();
        let Some(write) = write else { return Refusal::Failed(5) };
        let of_life = |of: &Kept| (of.incarnation, of.life) == (write.kept.incarnation, write.kept.life);
        if !disk.kept.get(&write.id).is_some_and(of_life) {
            return Refusal::Failed(5);
        }
        // An older sequence of the id may live on another version. A driver rolls back only a sequence that is alone.
        if self.refer.seqs.iter().filter(|s| s.id == write.id).count() > 1 {
            return Refusal::Failed(5);
        }
        let name = if is_there { "rolled back to a write that failed" } else { "rolled back" };
        if is_there {
            disk.write(&write);
            disk.durable.remove(&req);
        }
        count(&mut self.counts.prepared, name, 1);
        Refusal::Ended(EndReason::RolledBack)
    }

    /// Handles a batch that is durable except for the failed rows.
    pub fn seal_ends(&mut self, batch: BatchId, failed: Vec<(Req, Refusal)>) -> Checked {
        if let Some(disk) = &mut self.disk {
            for write in disk.writes.remove(&batch).unwrap_or_default() {
                if failed.iter().all(|(req, _)| *req != write.req) {
                    disk.write(&write);
                }
            }
            if self.rng.percent(50) {
                for (id, incarnation) in std::mem::take(&mut disk.forgets) {
                    disk.forget(&id, incarnation);
                }
            }
        }
        self.apply(Event::Sealed(batch, failed))
    }

    /// Lets a request of an id without a live sequence take its stored state, as the driver's `look_up_kept` does.
    pub fn looks_up(&mut self, submit: &mut Submit) {
        let Some(disk) = &mut self.disk else { return };
        if self.core.find(&submit.id, submit.version).is_some() {
            return;
        }
        // The driver refuses a step that names another version than the state's.
        let misfits = |kept: &Kept| !submit.start && submit.version.is_some_and(|version| version != kept.version);
        if disk.resumable.get(&submit.id).is_some_and(misfits) {
            return;
        }
        let Some(kept) = disk.resumable.remove(&submit.id) else { return };
        submit.prepare = true;
        if !submit.start {
            (submit.adopt, submit.version) = (Some(kept.step), Some(kept.version));
            if submit.step.is_some() {
                // A client that has its answer sends the next step. A client without it repeats the last one.
                submit.step = Some(kept.step + self.rng.below(3));
            }
            submit.prepare = submit.step != Some(kept.step) || kept.with_answer;
        }
        disk.lent.insert(submit.req, (submit.id.clone(), kept));
    }

    /// Records whether an accepted request continues from the store.
    pub fn looked_up(&mut self, req: Req) {
        let Some(disk) = &mut self.disk else { return };
        let Some((_, kept)) = disk.lent.get(&req).filter(|_| !self.witness.get(req).is_none_or(|sent| sent.start))
        else {
            return;
        };
        if let Some(n) = self.refer.req(req).and_then(|r| r.seq) {
            disk.incarnations.insert(n, kept.incarnation);
            disk.applied.insert(n, kept.step);
            disk.lives.insert(n, kept.life);
        }
    }

    /// The store's answer to a request that is lent to the driver: its state, or the answer of the last step.
    pub fn finds(&mut self, req: Req, fails: bool) -> Option<Preparation> {
        let disk = self.disk.as_mut()?;
        let (id, kept) = disk.lent.get(&req).cloned()?;
        let sent = self.witness.get(req)?;
        let is_there = disk.kept.get(&id).is_some_and(|of| of.serial == kept.serial);
        if fails || (!sent.start && !is_there) {
            // A START that waits behind this step begins another sequence.
            if let Some(n) = self.refer.req(req).and_then(|r| r.seq).filter(|_| !sent.start) {
                disk.incarnations.remove(&n);
                disk.applied.remove(&n);
            }
            return Some(Preparation::Refuse { refusal: Refusal::Failed(4), ends: true });
        }
        disk.lent.remove(&req);
        if sent.start {
            // The store removes the id's state by then, even if it belongs to a sequence that has begun on another version meanwhile. That
            // sequence is not protected until its next step.
            if let Some(of) = disk.kept.remove(&id)
                && disk.answered.get(&id).is_some_and(|last| last.incarnation == of.incarnation)
            {
                disk.answered.remove(&id);
            }
            return None;
        }
        self.store.found.insert(req, kept.hash);
        let name = if kept.serial <= disk.began { "resumed after a crash" } else { "resumed after it left memory" };
        count(&mut self.counts.prepared, name, 1);
        if sent.step == Some(kept.step) {
            count(&mut self.counts.prepared, "answered again by the store", 1);
            return Some(Preparation::Reply);
        }
        let meta = RequestMeta { keys: news::keys(req), rows: sent.rows, ..RequestMeta::default() };
        Some(Preparation::Run(meta))
    }

    /// Acts on an effect as the driver of such a load does.
    pub fn apply_to_disk(&mut self, effect: &Effect, begins_anew: bool) -> Checked {
        let is_lent = |world: &World, req: Req| world.prepares.iter().any(|(of, _)| *of == req);
        match effect {
            Effect::Refuse { req, ended, .. } => {
                let waits = is_lent(self, *req);
                let Some(disk) = &mut self.disk else { return Ok(()) };
                disk.sealing.remove(req);
                let Some((id, kept)) = disk.lent.remove(req) else { return Ok(()) };
                if waits && *ended {
                    // Its client gave up while the store was reading, so nothing resumes the state.
                    disk.ends(id, kept.incarnation);
                } else if self.core.find(&id, None).is_none() {
                    disk.resumable.insert(id, kept);
                }
            }
            Effect::Release(req) => {
                let Some(disk) = &mut self.disk else { return Ok(()) };
                let Some(Write { id, ends, kept, .. }) = disk.sealing.remove(req) else { return Ok(()) };
                hold!(disk.durable.remove(req), "an answer leaves once its state is durable", "{req:?} of {id:?}");
                let Kept { incarnation, life, serial, step, .. } = kept;
                let is_gone = !ends && disk.gone.contains(&incarnation);
                let last = disk.answered.get(&id);
                if is_gone || last.is_some_and(|last| last.incarnation > incarnation) {
                    return Ok(());
                }
                if let Some(last) = last.filter(|last| last.incarnation == incarnation) {
                    let is_next = serial > last.serial && (life > last.life || step > last.step);
                    hold!(
                        is_next || ends,
                        "no step is applied twice",
                        "{id:?}: step {step} is answered after {last:?}"
                    );
                }
                disk.answered.insert(id, Answered { incarnation, life, step, serial, ends });
            }
            Effect::Note(Note::Started(seq, _)) => {
                let (n, id, _) = self.names[seq].clone();
                let Some(disk) = &mut self.disk else { return Ok(()) };
                disk.born += 1;
                let incarnation = *disk.incarnations.entry(n).or_insert(disk.born);
                let latest = disk.latest.entry(id).or_default();
                *latest = (*latest).max(incarnation);
            }
            Effect::Note(Note::Ended(seq, why)) if !begins_anew => {
                let (n, id, _) = self.names[seq].clone();
                let Some(disk) = &mut self.disk else { return Ok(()) };
                let incarnation = disk.incarnation(n);
                match why {
                    // A client that has the answer of its END relies on it.
                    EndReason::End => {
                        // Its END has failed, and it has ended anyway.
                        if disk.answered.get(&id).is_some_and(|last| last.incarnation == incarnation && !last.ends) {
                            disk.answered.remove(&id);
                        }
                        disk.gone.insert(incarnation);
                        disk.forgets.push((id, incarnation));
                    }
                    EndReason::Spilled | EndReason::RolledBack
                        if !disk.stale.contains(&n) && disk.has(&id, incarnation) =>
                    {
                        let kept = disk.kept.get(&id).copied();
                        disk.resumable.extend(kept.map(|kept| (id, kept)));
                    }
                    _ => {
                        disk.gone.insert(incarnation);
                        disk.ends(id, incarnation);
                    }
                }
            }
            Effect::Note(Note::Ended(seq, _)) => {
                let n = self.names[seq].0;
                if let Some(disk) = &mut self.disk {
                    disk.stale.insert(n);
                    // Its step numbers start again.
                    disk.applied.remove(&n);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A request that runs for the first time has a later step than its state contains.
    pub fn not_twice(&self, row: &RealRow) -> Checked {
        let Some(disk) = &self.disk else { return Ok(()) };
        let Some(r) = self.refer.req(row.req).filter(|r| r.ran == 0 && !r.start) else { return Ok(()) };
        let Some(applied) = r.seq.and_then(|n| disk.applied.get(&n)).copied() else { return Ok(()) };
        hold!(r.step > applied, "no step is applied twice", "{row:?} is step {}, and {applied} is applied", r.step);
        Ok(())
    }

    // === crashes ===

    fn crashes(&mut self) -> Checked {
        let Some(mut disk) = self.disk.take() else { return Ok(()) };
        count(&mut self.counts.prepared, "crash", 1);
        let mut under_way: Vec<_> = std::mem::take(&mut disk.writes).into_iter().collect();
        under_way.sort_by_key(|(_, writes)| writes.first().map(|write| write.kept.serial));
        for (_, writes) in under_way {
            // Each sequence has at most one write in progress, so any of them may be cut off.
            let is_there = self.rng.percent(50);
            count(&mut self.counts.prepared, if is_there { "a write survives" } else { "a write is cut off" }, 1);
            writes.iter().filter(|_| is_there).for_each(|write| disk.write(write));
        }
        for (id, incarnation) in std::mem::take(&mut disk.forgets) {
            if self.rng.percent(50) {
                disk.forget(&id, incarnation);
            }
        }
        for (id, Answered { incarnation, serial, ends, .. }) in &disk.answered {
            if disk.latest.get(id).is_some_and(|latest| latest > incarnation) {
                continue;
            }
            let kept = disk.kept.get(id);
            let holds = match kept.filter(|of| of.incarnation == *incarnation) {
                // After an END the store may hold the state of an older sequence of the id, on another version.
                None => *ends,
                Some(of) => !*ends && of.serial >= *serial,
            };
            hold!(
                holds,
                "no step that was answered is lost",
                "{id:?}: {serial} of {incarnation} was answered ({ends}), {kept:?} is kept"
            );
            let name = if *ends { "an answered END stays" } else { "an answered step is kept" };
            count(&mut self.counts.prepared, name, 1);
        }
        self.counts.transitions.add(self.core.transitions());
        let Disk { kept, mut answered, born, serial, .. } = disk;
        // The next process has only the store's content.
        answered.retain(|id, last| kept.get(id).is_some_and(|of| of.incarnation == last.incarnation));
        let latest = kept.iter().map(|(id, of)| (id.clone(), of.incarnation)).collect();
        let resumable = kept.clone();
        self.disk = Some(Disk { kept, answered, latest, resumable, born, serial, began: serial, ..Disk::default() });
        self.begins_again()
    }

    /// A process with the same loads and nothing else.
    fn begins_again(&mut self) -> Checked {
        let open = |l: &&super::refer::RLoad| !l.gone && l.retired.is_none();
        let specs: Vec<LoadSpec> = self.refer.loads.iter().filter(open).map(|l| l.spec.clone()).collect();
        self.core = Core::new();
        (self.refer, self.witness, self.store) = (Refer::default(), Witness::default(), Store::default());
        (self.hands, self.specs, self.keys) = (Vec::new(), Vec::new(), Slab::new());
        (self.asked, self.news, self.questions) = (Vec::new(), Vec::new(), Vec::new());
        (self.prepares, self.posts, self.replies, self.seals) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        (self.consults, self.tells) = (Vec::new(), Vec::new());
        self.names.clear();
        for spec in specs {
            let key = self.keys.insert(());
            self.hands.extend((0..spec.instances).map(|n| Hand::new(Instance { load: key, n })));
            self.specs.push(spec.clone());
            self.asked.push(None);
            self.news.push(news::News::default());
            self.apply(Event::Loaded(key, spec))?;
        }
        if self.specs.is_empty() { self.loads() } else { Ok(()) }
    }
}
