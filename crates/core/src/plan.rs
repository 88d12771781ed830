//! The next step of an instance: tidy its slots, run a batch, ask the external policy, sleep or end.

use crate::core::{Core, RunningBatch, load_in};
use crate::event::{Batch, Effect, Next, Note, RealRow, Row, SlotOp};
use crate::faults::{Planted, fault};
use crate::ids::{BatchId, Instance, Req};
use crate::policy::{Columns, Decision, Hooks, Picks, columns, flags};
use crate::request::{RequestStage, RunPlan};
use crate::round::Candidate;
use crate::sequence::{FirstState, Stage};
use crate::slot_assignment::wake_one;
use crate::spec::{RowLayout, Strategy};
use crate::time::Time;

impl Core {
    /// Returns the next step of this instance. Only one thread at a time may call it for an instance, and it must do that step.
    pub fn next(&mut self, now: Time, who: Instance, out: &mut Vec<Effect>) -> Next {
        // The instance is awake. Handling deadlines must not wake it once more.
        if let Some(instance) = self.instance_mut(who) {
            instance.asleep = false;
        }
        self.expire(now, out);
        let Some(state) = load_in(&mut self.loads, who.load) else { return Next::Gone };
        let Some(instance) = state.instances.get(usize::from(who.n)) else { return Next::Gone };
        if instance.asked.is_some() || !state.may_take(who.n) {
            return self.rest(who, None);
        }
        match self.plan(now, who, out) {
            PlannedStep::Run(keys) => Next::Run(self.take(now, who, &keys, out)),
            PlannedStep::Ask(round) => Next::Ask(round),
            PlannedStep::Nothing(until) => self.rest(who, until),
        }
    }

    /// Whether this instance may take a batch and a request is ready for it. [`Core::next`] returns the step itself.
    pub fn has_ready(&self, who: Instance) -> bool {
        self.load(who.load).is_some_and(|state| state.may_take(who.n)) && self.oldest_ready(who).is_some()
    }

    fn plan(&mut self, now: Time, who: Instance, out: &mut Vec<Effect>) -> PlannedStep {
        let Some(oldest) = self.oldest_ready(who) else { return PlannedStep::Nothing(None) };
        let Some(state) = self.load(who.load) else { return PlannedStep::Nothing(None) };
        if state.holding.is_some() {
            return PlannedStep::Nothing(None);
        }
        let limit = oldest + state.max_wait();
        // Overdue requests go before any policy that might pass them over for ever.
        let free_to_starve =
            state.external.is_some_and(|h| h.plan) || matches!(state.spec.strategy, Strategy::Deadline { .. });
        let overdue = free_to_starve && limit <= now && !fault(Planted::MaxWaitIgnored);
        if let (Some(hooks), false) = (state.external.filter(|h| h.plan), overdue) {
            let held = state.instances.get(usize::from(who.n)).and_then(|i| i.hold);
            return match held.map(|until| until.min(limit)) {
                Some(until) if until > now => PlannedStep::Nothing(Some(until)),
                _ => PlannedStep::Ask(self.ask(now, who, hooks)),
            };
        }
        if overdue && state.external.is_some_and(|h| h.plan) {
            self.note(who.load, Note::Fallback(who.load), out);
        }
        self.plan_built_in(now, who, overdue)
    }

    /// Lets the built-in policy decide. If a request is overdue, the policy that serves the longest wait decides.
    pub(crate) fn plan_built_in(&mut self, now: Time, who: Instance, overdue: bool) -> PlannedStep {
        let Some(state) = load_in(&mut self.loads, who.load) else { return PlannedStep::Nothing(None) };
        let policy = if overdue { &mut state.forced } else { &mut state.policy };
        let hooks = policy.hooks();
        let (mut see, mut keys) = (std::mem::take(&mut state.see), std::mem::take(&mut state.keys));
        self.fill(now, who, hooks, &mut see, &mut keys);
        let Some(state) = load_in(&mut self.loads, who.load) else { return PlannedStep::Nothing(None) };
        let policy = if overdue { &mut state.forced } else { &mut state.policy };
        let mut picks = std::mem::take(&mut state.picks);
        picks.clear();
        let decision = policy.plan(&see, &mut picks);
        let planned = match decision {
            Ok(Decision::Wait(until)) if until > now => PlannedStep::Nothing(Some(until)),
            _ => PlannedStep::Run(chosen(&keys, &picks)),
        };
        (state.see, state.keys, state.picks) = (see, keys, picks);
        planned
    }

    /// The time at which the longest waiting request became ready.
    pub(crate) fn oldest_ready(&self, who: Instance) -> Option<Time> {
        let state = self.load(who.load)?;
        let req = match state.spec.is_stateful() {
            true => self.head_of(state.instances.get(usize::from(who.n))?.ready.front()?)?,
            false => self.reqs.at(state.ready.front()?)?.key,
        };
        self.reqs.get(req).map(|r| r.ready)
    }

    fn head_of(&self, seq_ix: u32) -> Option<Req> {
        let s = self.seqs.key_at(seq_ix).and_then(|seq| self.seqs.get(seq))?;
        s.queue.front().and_then(|ix| self.reqs.at(ix)).map(|r| r.key)
    }

    /// Fills in the ready candidates of this instance, in the columns that `hooks` ask for.
    pub(crate) fn fill(&self, now: Time, who: Instance, hooks: Hooks, see: &mut Columns, keys: &mut Vec<Candidate>) {
        see.clear();
        keys.clear();
        let Some(state) = self.load(who.load) else { return };
        let limits = &state.spec.limits;
        let window = if hooks.window == 0 { limits.candidates } else { hooks.window } as usize;
        state.describe(now, see);
        let ready = match state.instances.get(usize::from(who.n)) {
            Some(instance) if state.spec.is_stateful() => {
                for ix in self.seq_links.iter(&instance.ready).take(window) {
                    self.show(ix, true, hooks, see, keys);
                }
                instance.ready.len()
            }
            _ => {
                for ix in state.ready.iter(&self.req_links).take(window) {
                    self.show(ix, false, hooks, see, keys);
                }
                state.ready.len()
            }
        };
        see.len = u32::try_from(keys.len()).unwrap_or(u32::MAX);
        see.not_shown = ready.saturating_sub(see.len);
    }

    /// Adds one candidate: a ready sequence (its head request) or a ready stateless request.
    pub(crate) fn show(&self, ix: u32, of_sequence: bool, hooks: Hooks, see: &mut Columns, keys: &mut Vec<Candidate>) {
        let seq = if of_sequence { self.seqs.key_at(ix) } else { None };
        let s = seq.and_then(|seq| self.seqs.get(seq));
        let Some(r) = (if of_sequence { s.and_then(|s| self.reqs.at(s.queue.front()?)) } else { self.reqs.at(ix) })
        else {
            return;
        };
        let first = self.load(r.load).map_or(0, |l| l.spec.initial_state_shape);
        let state_shape =
            s.map_or(0, |s| if r.start && r.is_first_run() { r.first_shape.unwrap_or(first) } else { s.state_shape });
        let state_shape = if fault(Planted::StateShapeForgotten) { 0 } else { state_shape };
        let shape = r.meta.shape ^ state_shape.rotate_left(32);
        keys.push(Candidate { req: r.key, rows: r.meta.rows, shape });
        let asked = |column: u32| hooks.columns & column != 0;
        if asked(columns::SHAPE) {
            see.shape.push(shape);
        }
        if asked(columns::ROWS) {
            see.rows.push(r.meta.rows);
        }
        if asked(columns::READY) {
            see.ready.push(r.ready.0);
        }
        if asked(columns::ARRIVAL) {
            see.arrival.push(r.arrival.0);
        }
        if hooks.columns & !(columns::SHAPE | columns::ROWS | columns::READY | columns::ARRIVAL) != 0 {
            show_more(r, seq, s, hooks, see);
        }
    }

    /// Takes these requests out of their queues and forms a batch. The caller has checked that they can run and fit together.
    pub(crate) fn take(&mut self, now: Time, who: Instance, keys: &[Req], out: &mut Vec<Effect>) -> Batch {
        let rows = keys.iter().filter_map(|req| self.reqs.get(*req)).map(|r| r.meta.rows).sum();
        let flight = RunningBatch { instance: who, reqs: Vec::new(), rows, taken: now, sealing: false };
        let id = self.batches.insert(flight);
        let mut batch = Batch { id, instance: who, ops: self.take_ops(who), rows: Vec::with_capacity(keys.len()) };
        for req in keys {
            if let Some(row) = self.take_row(*req, &mut batch.ops, out) {
                batch.rows.push(Row::Real(row));
            }
        }
        self.arrange(&mut batch);
        self.depart(id, &batch, out);
        batch
    }

    fn take_ops(&mut self, who: Instance) -> Vec<SlotOp> {
        self.instance_mut(who).map(|i| std::mem::take(&mut i.ops)).unwrap_or_default()
    }

    fn take_row(&mut self, req: Req, ops: &mut Vec<SlotOp>, out: &mut Vec<Effect>) -> Option<RealRow> {
        let r = self.reqs.get_mut(req)?;
        r.stage = RequestStage::Running;
        let last = r.plan == Some(RunPlan::Run(1));
        let (load, start, end) = (r.load, r.start && r.is_first_run(), r.end && last);
        let (seq, bytes, place, step) = (r.seq, r.meta.bytes, r.place, r.step);
        let state = load_in(&mut self.loads, load)?;
        let seal = last && state.spec.stages.seal && !fault(Planted::SealUnnamed);
        let Some(seq) = seq else {
            state.ready.remove(&mut self.req_links, place, req.ix);
            return Some(RealRow { req, placement: None, start, end, seal, step });
        };
        self.unlist(seq);
        if start {
            self.begin_life(seq, req, out);
        }
        let s = self.seqs.get_mut(seq)?;
        self.req_links.remove(&mut s.queue, req.ix);
        s.bytes = s.bytes.saturating_sub(bytes);
        s.current = Some(req);
        let (_, slot) = s.placement?;
        let ran = std::mem::replace(&mut s.ran, true);
        s.begun = true;
        let first_state = s.first_state.take();
        match first_state {
            Some(FirstState::Init(_)) if ran && fault(Planted::RestartWithoutInit) => {}
            Some(FirstState::Adopt(_)) if fault(Planted::AdoptForgotten) => {}
            Some(FirstState::Init(of)) => ops.push(SlotOp::Init(slot, of)),
            Some(FirstState::Adopt(of)) => ops.push(SlotOp::Adopt(slot, of)),
            None => {}
        }
        let start = matches!(first_state, Some(FirstState::Init(_)));
        self.set_stage(seq, Stage::Running);
        Some(RealRow { req, placement: Some((seq, slot)), start, end, seal, step })
    }

    /// Arranges the rows of a `direct` batch. Fixed rows: each row is at the index of its slot, and holes are padded. Compact rows: rows
    /// are in the order of their slots, so that neighbouring slots are one piece of memory.
    fn arrange(&self, batch: &mut Batch) {
        let strategy = self.load(batch.instance.load).map(|l| &l.spec.strategy);
        match strategy {
            Some(Strategy::Direct { rows: RowLayout::Fixed, .. }) => {}
            Some(Strategy::Direct { rows: RowLayout::Compact, .. }) => return batch.rows.sort_by_key(slot_of),
            _ => return,
        }
        let highest = batch.real().filter_map(|row| row.placement).map(|(_, slot)| slot.ix).max().unwrap_or(0);
        let mut rows = vec![Row::Pad; highest as usize + 1];
        for row in batch.real() {
            if let Some(place) = row.placement.and_then(|(_, slot)| rows.get_mut(slot.ix as usize)) {
                *place = Row::Real(row);
            }
        }
        batch.rows = rows;
    }

    fn depart(&mut self, id: BatchId, batch: &Batch, out: &mut Vec<Effect>) {
        let who = batch.instance;
        let reqs: Vec<Req> = batch.real().map(|row| row.req).collect();
        let Some(state) = load_in(&mut self.loads, who.load) else { return };
        for req in &reqs {
            // A request of several runs keeps the turn of its first run.
            if let Some(r) = self.reqs.get_mut(*req).filter(|r| r.turn.is_none()) {
                r.turn = state.take_turn(*req);
            }
        }
        if let Some(instance) = state.instances.get_mut(usize::from(who.n)) {
            instance.in_flight += 1;
        }
        // A sleeping instance takes the requests that this batch leaves.
        if !state.ready.is_empty() {
            wake_one(state, out);
        }
        if let Some(flight) = self.batches.get_mut(id) {
            flight.reqs = reqs;
        }
    }

    /// Returns the step of an instance with nothing to run: tidy, sleep or end.
    pub(crate) fn rest(&mut self, who: Instance, until: Option<Time>) -> Next {
        let open = self.reqs.open(who.load);
        let Some(state) = load_in(&mut self.loads, who.load) else { return Next::Gone };
        let over = state.is_over(open);
        let Some(instance) = state.instances.get_mut(usize::from(who.n)) else { return Next::Gone };
        if !instance.ops.is_empty() {
            return Next::Tidy(std::mem::take(&mut instance.ops));
        }
        if over {
            instance.gone = true;
            if state.instances.iter().all(|i| i.gone) {
                self.loads.remove(who.load);
            }
            return Next::Gone;
        }
        instance.asleep = true;
        Next::Sleep(until)
    }
}

pub(crate) enum PlannedStep {
    Run(Vec<Req>),
    Ask(Box<crate::round::Round>),
    Nothing(Option<Time>),
}

/// The requests behind a built-in policy's picks; the oldest alone if it picked none.
fn chosen(keys: &[Candidate], picks: &Picks) -> Vec<Req> {
    let picked: Vec<Req> = picks.fire.iter().filter_map(|i| keys.get(*i as usize)).map(|c| c.req).collect();
    if picked.is_empty() { keys.first().map(|c| c.req).into_iter().collect() } else { picked }
}

/// The columns that only external policies and `deadline` read.
fn show_more(
    r: &crate::request::Request,
    seq: Option<crate::ids::Seq>,
    s: Option<&crate::sequence::Sequence>,
    hooks: Hooks,
    see: &mut Columns,
) {
    let asked = |column: u32| hooks.columns & column != 0;
    if asked(columns::SEQ) {
        see.seq.push(seq.map_or(0, crate::ids::Seq::handle));
    }
    if asked(columns::STEP) {
        see.step.push(r.step);
    }
    if asked(columns::SLOT) {
        see.slot.push(s.and_then(|s| s.placement).map_or(u32::MAX, |(_, slot)| slot.ix));
    }
    if asked(columns::DEADLINE) {
        see.deadline.push(r.deadline.map_or(u64::MAX, |d| d.0));
    }
    if asked(columns::PRIORITY) {
        see.priority.push(r.priority);
    }
    if asked(columns::FLAGS) {
        see.flags.push(if r.start && r.is_first_run() { flags::START } else { 0 } | if r.end { flags::END } else { 0 });
    }
    if asked(columns::BYTES) {
        see.bytes.push(r.meta.bytes);
    }
    if asked(columns::STATE_BYTES) {
        see.state_bytes.push(s.map_or(0, |s| s.state_bytes));
    }
    if asked(columns::NUMBERS) {
        see.numbers.extend(r.meta.numbers.iter().take(usize::from(hooks.numbers)));
    }
    if asked(columns::KEYS) {
        see.keys.extend(r.meta.keys.iter().take(usize::from(hooks.keys)));
    }
}

/// The slot of a row's sequence.
fn slot_of(row: &Row) -> u32 {
    match row {
        Row::Real(real) => real.placement.map_or(0, |(_, slot)| slot.ix),
        Row::Pad => 0,
    }
}
