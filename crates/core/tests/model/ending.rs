//! Time, and the end of a seed: everything runs to its end, and nothing is left.

use sequor_core::*;

use super::threads::Thread;
use super::world::World;
use super::{Broken, Checked};
use crate::hold;

impl World {
    pub fn time_passes(&mut self) -> Checked {
        let far = if self.rng.percent(3) { 300 } else { 12 };
        let to = Time(self.now.0 + self.rng.range(1, far));
        match self.core.due().filter(|at| *at <= to) {
            Some(due) if self.taste.timely => {
                self.now = due.max(self.now);
                self.apply(Event::Tick)
            }
            Some(_) if self.rng.percent(50) => {
                self.now = to;
                self.apply(Event::Tick)
            }
            _ => {
                self.now = to;
                Ok(())
            }
        }
    }

    // === the end ===

    /// Ends all live sequences, lets everything run, and checks that nothing is left.
    pub fn wind_down(&mut self) -> Checked {
        self.winding_down = true;
        for load in 0..self.refer.loads.len() {
            self.attaches(load, None)?;
        }
        for round in 0..2000 {
            let idle = self.everything_once()?;
            if idle && self.refer.seqs.is_empty() && self.witness.open().is_empty() {
                break;
            }
            let live: Vec<Seq> =
                self.refer.seqs.iter().filter(|s| s.stage == Stage::Idle).filter_map(|s| s.key).collect();
            for seq in live {
                self.apply(Event::End(seq, EndReason::Admin))?;
            }
            self.time_passes()?;
            hold!(
                round < 1999,
                "nothing is lost at the end",
                "open {:?}, live {:?}",
                self.witness.open(),
                self.refer.seqs
            );
        }
        hold!(self.witness.sequences() == 0, "started and ended in pairs", "{} never ended", self.witness.sequences());
        for load in 0..self.refer.loads.len() {
            let usage = self.core.usage(self.refer.loads[load].key);
            let none = Usage { slots: usage.slots, ..Usage::default() };
            hold!(usage == none, "nothing is lost at the end", "load {load}: {usage:?}");
            if !self.refer.loads[load].gone {
                self.apply(Event::Retire { load: self.refer.loads[load].key, until: Time::NEVER })?;
            }
        }
        while !self.everything_once()? {}
        let stay: Vec<Instance> = self.hands.iter().filter(|h| h.thread != Thread::Gone).map(|h| h.who).collect();
        hold!(stay.is_empty(), "retired loads let go", "{stay:?} still wait");
        hold!(!self.core.has_leaving(), "nothing is lost at the end", "a sequence that is gone is said to leave");
        hold!(self.store.is_empty(), "ended sequences leave no state", "some slot is not empty");
        self.quiet()
    }

    /// With nothing left, there are no more ticks than armed deadlines.
    fn quiet(&mut self) -> Checked {
        let armed = self.core.armed();
        for _ in 0..armed {
            let Some(due) = self.core.due() else { break };
            self.now = due.max(self.now);
            self.apply(Event::Tick)?;
        }
        let due = self.core.due();
        hold!(
            due.is_none_or(|at| at == Time::NEVER),
            "ticks for nothing are bounded",
            "{armed} ticks, and {due:?} is due"
        );
        hold!(self.core.sequences().next().is_none(), "nothing is lost at the end", "a sequence is left");
        self.counts.transitions.add(self.core.transitions());
        Ok(())
    }

    /// Runs every thread, batch in flight and stage once. True if there was nothing to do.
    fn everything_once(&mut self) -> Result<bool, Broken> {
        let mut nothing = true;
        for hand in 0..self.hands.len() {
            while !self.hands[hand].flights.is_empty() {
                self.lands(hand, 0)?;
                nothing = false;
            }
            if self.hands[hand].thread == Thread::Pondering {
                self.hold_round(hand)?;
                nothing = false;
            }
            if self.hands[hand].pulls(self.now) {
                self.pull(hand)?;
                nothing = false;
            }
        }
        while let Some((req, seq)) = self.prepares.pop() {
            self.prepares(req, seq)?;
            nothing = false;
        }
        while let Some(req) = self.posts.pop() {
            self.apply(Event::Posted(req))?;
            nothing = false;
        }
        while let Some(req) = self.replies.pop() {
            self.apply(Event::Replied(req, None))?;
            nothing = false;
        }
        while let Some(batch) = self.seals.pop() {
            self.seal_ends(batch, Vec::new())?;
            nothing = false;
        }
        while !self.questions.is_empty() {
            self.admits()?;
            nothing = false;
        }
        self.consults.clear();
        Ok(nothing)
    }
}
