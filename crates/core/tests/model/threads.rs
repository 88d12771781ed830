//! Instance threads of the driver: they pull, run, sleep until woken, and ask their policy while the core is unlocked.

use sequor_core::*;

use super::outcome::count;
use super::refer::{RNext, ROp, RPlan, Shown};
use super::world::World;
use super::{Checked, broken, news, policy, workload};
use crate::hold;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thread {
    Awake,
    Asleep(Option<u64>),
    Pondering,
    Gone,
}

#[derive(Debug)]
pub struct Hand {
    pub who: Instance,
    pub thread: Thread,
    pub flights: Vec<Batch>,
    pub round: Option<(Box<Round>, Vec<Shown>)>,
}

impl Hand {
    pub fn new(who: Instance) -> Hand {
        Hand { who, thread: Thread::Awake, flights: Vec::new(), round: None }
    }

    /// Whether its thread would pull now.
    pub fn pulls(&self, now: Time) -> bool {
        match self.thread {
            Thread::Awake => true,
            Thread::Asleep(until) => until.is_some_and(|at| at <= now.0),
            Thread::Pondering | Thread::Gone => false,
        }
    }
}

impl World {
    /// A thread asks for its next step, and takes it.
    pub fn pull(&mut self, hand: usize) -> Checked {
        let who = self.hands[hand].who;
        self.hands[hand].thread = Thread::Awake;
        let due = self.forced_first(who);
        let expected = self.refer_call(|refer, now| refer.next(now, refer.ix(who.load), usize::from(who.n)));
        let mut out = Vec::new();
        let next = self.core.next(self.now, who, &mut out);
        self.trace(|| format!("next {who:?} -> {next:?}"));
        if let (Some(oldest), Next::Run(batch)) = (due, &next) {
            let taken = batch.real().any(|row| row.req == oldest);
            hold!(taken, "no request waits longer than max_wait", "{oldest:?} is overdue, but {batch:?} runs");
        }
        self.heeds(hand, next, expected, &out)
    }

    /// Checks the result of a pull or an answer: first the witnesses, then the model.
    fn heeds(&mut self, hand: usize, next: Next, expected: RNext, out: &[Effect]) -> Checked {
        self.hear(out)?;
        if let Next::Run(batch) = &next {
            self.departs(batch)?;
        }
        self.judge(out)?;
        self.does(hand, next, expected)
    }

    /// The longest waiting request, if a policy could pass it over and no longer may.
    fn forced_first(&self, who: Instance) -> Option<Req> {
        let load = self.refer.ix(who.load);
        let l = &self.refer.loads[load];
        let free = l.external.is_some_and(|h| h.plan) || matches!(l.spec.strategy, Strategy::Deadline { .. });
        let ready = self.refer.ready(load, usize::from(who.n));
        let oldest = self.refer.req(*ready.first().filter(|_| free)?)?;
        // A request whose own deadline passes now is refused instead.
        let overdue = oldest.ready.saturating_add(l.max_wait()) <= self.now.0;
        (overdue && self.core.due().is_none_or(|at| at > self.now)).then_some(oldest.key)
    }

    fn does(&mut self, hand: usize, next: Next, expected: RNext) -> Checked {
        let who = self.hands[hand].who;
        match (next, expected) {
            (Next::Run(batch), expected) => self.flies(hand, batch, expected),
            (Next::Tidy(ops), RNext::Tidy(expected)) => {
                self.same_ops(&ops, &expected)?;
                self.operate(who, &ops, &[])
            }
            (Next::Sleep(until), RNext::Sleep(expected)) => {
                let until = until.map(|t| t.0);
                hold!(until == expected, "sleeps as long as the model", "{who:?} until {until:?}, model {expected:?}");
                self.hands[hand].thread = Thread::Asleep(until);
                Ok(())
            }
            (Next::Ask(round), RNext::Ask(shown)) => {
                self.same_view(&round, &shown)?;
                self.same_news(&round, self.refer.ix(who.load))?;
                self.hands[hand].thread = Thread::Pondering;
                self.hands[hand].round = Some((round, shown));
                Ok(())
            }
            (Next::Gone, RNext::Gone) => {
                self.hands[hand].thread = Thread::Gone;
                if self.refer.loads[self.refer.ix(who.load)].gone {
                    self.keys.remove(who.load);
                }
                Ok(())
            }
            (next, expected) => {
                broken("an instance does what the model does", format!("{who:?}: {next:?}, model {expected:?}"))
            }
        }
    }

    /// The thread does the slot operations of a batch and runs it.
    fn departs(&mut self, batch: &Batch) -> Checked {
        let who = batch.instance;
        let rows: Vec<RealRow> = batch.real().collect();
        self.operate(who, &batch.ops, &rows)?;
        rows.iter().try_for_each(|row| self.not_twice(row))?;
        for seq in rows.iter().filter_map(|row| row.placement).filter(|(_, slot)| given_anew(batch, *slot)) {
            let shown = self.core.state_of(seq.0);
            hold!(shown.is_none(), "a state is shown once its slot holds it", "{shown:?} of {seq:?} before {batch:?}");
        }
        for row in rows.iter().filter(|row| row.start) {
            let is_made = |slot: Slot| batch.ops.iter().any(|op| matches!(op, SlotOp::Init(of, _) if *of == slot));
            let made = row.placement.is_none_or(|(_, slot)| is_made(slot));
            hold!(made, "a START begins with the first state", "{row:?} in {batch:?}");
        }
        let mut state = Vec::new();
        for row in &rows {
            state.push(match row.placement {
                Some((seq, slot)) => self.store.fly(who, seq, slot)?,
                None => 0,
            });
        }
        let spec = self.refer.loads[self.refer.ix(who.load)].spec.clone();
        self.counts.batches += 1;
        self.counts.rows += rows.len() as u64;
        self.witness.batch(batch, &spec, &state)
    }

    fn flies(&mut self, hand: usize, batch: Batch, expected: RNext) -> Checked {
        let who = batch.instance;
        let RNext::Run(ops, wanted) = expected else {
            return broken("an instance does what the model does", format!("{who:?}: {batch:?}, model {expected:?}"));
        };
        self.same_ops(&batch.ops, &ops)?;
        let got: Vec<Option<Req>> =
            batch.rows.iter().map(|r| if let Row::Real(r) = r { Some(r.req) } else { None }).collect();
        hold!(got == wanted, "a batch is the model's", "{who:?}: {got:?}, model {wanted:?}");
        self.refer.batches.last_mut().expect("the model's batch").key = Some(batch.id);
        self.passed_over(who)?;
        self.hands[hand].flights.push(batch);
        Ok(())
    }

    /// A request that is still ready has been passed over once more. A built-in policy that chooses by age must not do that too often.
    fn passed_over(&mut self, who: Instance) -> Checked {
        let load = self.refer.ix(who.load);
        let l = &self.refer.loads[load];
        // A request behind lower levels waits as long as they have requests.
        let by_age = self.taste.levels == 1
            && !l.external.is_some_and(|h| h.plan)
            && !matches!(l.spec.strategy, Strategy::Deadline { .. });
        let least = match &l.spec.strategy {
            Strategy::Stateless { batching: false, .. } => 1,
            Strategy::Oldest { preferred, .. } | Strategy::Stateless { preferred, .. } => {
                preferred.iter().copied().min().unwrap_or(l.spec.max_batch)
            }
            _ => l.spec.max_batch,
        };
        for req in self.refer.ready(load, usize::from(who.n)) {
            let Some(r) = self.refer.req_mut(req) else { continue };
            // A policy in between makes all earlier counts void.
            r.passed = if by_age { r.passed + 1 } else { 0 };
            let bound = if r.alike { r.ahead.div_ceil(u64::from(least.max(1))) } else { r.ahead };
            let (passed, ahead) = (r.passed, r.ahead);
            hold!(passed <= bound, "no request starves", "{req:?} was passed over {passed} times with {ahead} ahead");
        }
        Ok(())
    }

    fn same_ops(&self, got: &[SlotOp], wanted: &[ROp]) -> Checked {
        let got: Vec<ROp> = got
            .iter()
            .map(|op| match op {
                SlotOp::Init(slot, req) => ROp::Init(slot.ix, *req),
                SlotOp::Adopt(slot, req) => ROp::Adopt(slot.ix, *req),
                SlotOp::Free(slot) => ROp::Free(slot.ix),
            })
            .collect();
        hold!(got == wanted, "slot operations are those of the model", "{got:?}, model {wanted:?}");
        Ok(())
    }

    pub fn operate(&mut self, who: Instance, ops: &[SlotOp], rows: &[RealRow]) -> Checked {
        let initial = self.refer.loads[self.refer.ix(who.load)].spec.initial_state_shape;
        for op in ops {
            let seq_of =
                |slot: Slot| rows.iter().filter_map(|row| row.placement).find(|(_, s)| *s == slot).map(|(seq, _)| seq);
            self.store.op(who, *op, seq_of, initial)?;
        }
        Ok(())
    }

    /// Compares the columns with the model's.
    fn same_view(&self, round: &Round, shown: &[Shown]) -> Checked {
        let see = &round.see;
        hold!(see.len as usize == shown.len(), "a policy sees what is ready", "{} of {}", see.len, shown.len());
        for (i, one) in shown.iter().enumerate() {
            let Some(r) = self.refer.req(one.req) else { continue };
            let slot = r.seq.and_then(|n| self.refer.seq(n).placement).map_or(u32::MAX, |(_, slot)| slot);
            let flags = u8::from(r.start && r.ran == 0) | u8::from(r.end) << 1;
            let got =
                (see.arrival[i], see.ready[i], see.step[i], see.slot[i], see.flags[i], see.rows[i], see.deadline[i]);
            let want = (r.arrival, r.ready, r.step, slot, flags, r.meta.rows, r.deadline);
            hold!(got == want, "a policy sees what is ready", "candidate {i}: {got:?}, model {want:?}");
        }
        let load = match &round.asked {
            PolicyQuestion::Plan(who) => who.load,
            PolicyQuestion::Admit { load, .. } => *load,
        };
        let usage = self.refer.usage(self.refer.ix(load));
        let all =
            if matches!(round.asked, PolicyQuestion::Plan(_)) { self.ready_of(&round.asked) } else { usage.backlog };
        let max_batch = self.refer.loads[self.refer.ix(load)].spec.max_batch.max(1);
        let run_time = self.refer.loads[self.refer.ix(load)].largest.1;
        let got = (see.now, see.live, see.backlog, see.max_batch, see.len + see.not_shown, see.run_time);
        let want = (self.now.0, usage.live, usage.backlog, max_batch, all, run_time);
        hold!(got == want, "a policy sees how full it is", "{got:?}, model {want:?}");
        Ok(())
    }

    fn ready_of(&self, asked: &PolicyQuestion) -> u32 {
        let PolicyQuestion::Plan(who) = asked else { return 0 };
        self.refer.ready(self.refer.ix(who.load), usize::from(who.n)).len() as u32
    }

    /// The policy of this thread has decided.
    pub fn hold_round(&mut self, hand: usize) -> Checked {
        let who = self.hands[hand].who;
        let Some((mut round, shown)) = self.hands[hand].round.take() else { return Ok(()) };
        self.hands[hand].thread = Thread::Awake;
        let max = self.refer.loads[self.refer.ix(who.load)].spec.max_batch;
        let (len, shapes) = (round.see.len, round.see.shape.clone());
        let answer = match self.winding_down {
            true => Ok(Decision::Default),
            false => policy::plan(&mut self.rng, self.now, len, max, &shapes, &mut round.picks),
        };
        let picks = round.picks.clone();
        self.trace(|| format!("{who:?} answers {answer:?} {picks:?}"));
        let at = (self.refer.ix(who.load), usize::from(who.n));
        let expected = self.refer_call(|refer, now| refer.answer_plan(now, at, &shown, &picks, answer));
        let mut out = Vec::new();
        let next = self.core.answer(self.now, round, PolicyAnswer::Plan(answer), &mut out);
        self.trace(|| format!("  -> {next:?}"));
        self.heeds(hand, next, expected, &out)
    }

    /// The next run of a request has other shapes.
    fn reshapes(&mut self, req: Req) -> Checked {
        let mut meta = workload::meta(&mut self.rng, &self.taste);
        let Some(sent) = self.witness.get_mut(req) else { return Ok(()) };
        (meta.rows, meta.keys) = (sent.rows, news::keys(req));
        sent.shape = meta.shape;
        count(&mut self.counts.prepared, "next run", 1);
        self.apply(Event::NextRun(req, meta))
    }

    /// A batch has run.
    pub fn lands(&mut self, hand: usize, flight: usize) -> Checked {
        let batch = self.hands[hand].flights.swap_remove(flight);
        let who = batch.instance;
        let mut rows = Vec::new();
        let initial = self.refer.loads[self.refer.ix(who.load)].spec.initial_state_shape;
        for row in batch.real() {
            let done = !self.rng.percent(self.taste.fails) || self.winding_down;
            let shape = if self.rng.percent(10) { self.rng.below(self.taste.shapes) } else { initial };
            self.witness.lands(&row, done);
            if let Some((seq, slot)) = row.placement {
                self.store.land(who, seq, slot, done.then_some((row.req, shape)));
            }
            let goes_on =
                self.refer.req(row.req).is_some_and(|r| r.seq.is_some() && r.runs().is_some_and(|runs| runs > 1));
            if done && goes_on {
                self.reshapes(row.req)?;
            }
            rows.push(match done {
                true => RowEnd::Done { state_shape: shape, state_bytes: shape },
                false if self.rng.percent(20) => RowEnd::NoRoom,
                false if self.rng.percent(20) => RowEnd::NotFinite,
                false => RowEnd::Failed,
            });
        }
        // A driver that loses the last rows has failed them. Only rows whose state is unchanged are lost here.
        while matches!(rows.last(), Some(RowEnd::Failed)) && self.rng.percent(50) {
            rows.pop();
        }
        self.apply(Event::Ran { batch: batch.id, rows })
    }

    /// No instance sleeps while it has work.
    pub fn sleepers(&self) -> Checked {
        for hand in &self.hands {
            let Thread::Asleep(until) = hand.thread else { continue };
            if hand.pulls(self.now) {
                continue;
            }
            let (load, n) = (self.refer.ix(hand.who.load), usize::from(hand.who.n));
            let l = &self.refer.loads[load];
            hold!(l.inst[n].ops.is_empty(), "no instance sleeps over work", "{:?} has slots to tidy", hand.who);
            hold!(!self.refer.is_over(load), "no instance sleeps over work", "{:?} could go", hand.who);
            let bound = match self.refer.plan(self.now.0, load, n) {
                RPlan::Nothing(None) => continue,
                RPlan::Nothing(Some(at)) => at,
                _ => self.now.0,
            };
            let wakes = |until: Option<u64>| until.is_some_and(|at| at <= bound);
            if wakes(until) {
                continue;
            }
            // Any instance that will look may take a stateless request. A policy that waits does so for all instances.
            let patience = |h: &Hand| match h.thread {
                Thread::Awake => h.flights.len() < usize::from(l.spec.depth),
                Thread::Pondering => true,
                Thread::Asleep(until) => {
                    until.is_some_and(|at| at <= bound) || (until.is_some() && l.external.is_some())
                }
                Thread::Gone => false,
            };
            let others = !l.spec.is_stateful() && self.hands.iter().any(|h| h.who.load == hand.who.load && patience(h));
            hold!(
                others,
                "no instance sleeps over work",
                "{:?} sleeps until {until:?}, could run at {bound}",
                hand.who
            );
        }
        Ok(())
    }
}

/// Whether this batch gives a slot the first state of a life.
fn given_anew(batch: &Batch, slot: Slot) -> bool {
    batch.ops.iter().any(|op| matches!(op, SlotOp::Init(of, _) | SlotOp::Adopt(of, _) if *of == slot))
}
