//! Events that policies get: everything that happens while they observe, once and in order, and consistent with the live sequences.

use std::collections::BTreeMap;

use sequor_core::FEATURES;
use sequor_core::*;

use super::Checked;
use super::world::World;
use crate::hold;

/// The events that a load's policy must get, and what it knows.
#[derive(Debug, Default)]
pub struct News {
    /// Starts, slots and ends, in order.
    sequences: Vec<Observed>,
    /// Runs, in any order.
    runs: Vec<Observed>,
    /// The serial number of the next event.
    next: u64,
    /// The live sequences, as far as they were reported.
    knows: BTreeMap<u64, [u64; FEATURES]>,
    /// A listener that learns the live sequences a few at a time, while things happen.
    newcomer: Newcomer,
}

/// A listener that reads the live sequences in portions, and the events since its first read.
#[derive(Debug, Default)]
struct Newcomer {
    roster: Roster,
    /// With serial numbers.
    happened: Vec<(u64, Observed)>,
}

impl Newcomer {
    /// The live sequences after all events.
    fn knows(mut self) -> Result<BTreeMap<u64, [u64; FEATURES]>, super::Broken> {
        let first = self.roster.first();
        let mut knows: BTreeMap<_, _> =
            self.roster.take_in_order().into_iter().map(|one| (one.seq, one.keys)).collect();
        for (serial, one) in self.happened.iter().filter(|(serial, _)| *serial >= first) {
            if self.roster.is_news(*serial, one) {
                learn(&mut knows, one)?;
            }
        }
        Ok(knows)
    }
}

/// The events must fit the live sequences.
fn learn(knows: &mut BTreeMap<u64, [u64; FEATURES]>, one: &Observed) -> Checked {
    let known = one.seq == 0 || knows.contains_key(&one.seq);
    match one.what {
        ObservedKind::Began { .. } => {
            hold!(!known, "a policy gets events in order", "{one:?} lives already");
            knows.insert(one.seq, one.keys);
        }
        ObservedKind::Ended(_) => {
            let began = knows.remove(&one.seq);
            hold!(began.is_some(), "a policy gets events in order", "{one:?} is unknown");
            hold!(began == Some(one.keys), "an end has the keys of its START", "{one:?}, began with {began:?}");
        }
        _ => hold!(known, "a policy gets events in order", "{one:?} is unknown"),
    }
    Ok(())
}

/// The key features of any request.
pub fn keys(req: Req) -> [u64; FEATURES] {
    [u64::from(req.ix) + 1, u64::from(req.generation.get()), 0, 0]
}

fn of(seq: Seq, what: ObservedKind) -> Observed {
    Observed { seq: seq.handle(), what, keys: [0; FEATURES] }
}

impl World {
    /// Records the events that the policy of a sequence's load must get.
    pub fn overhear(&mut self, effect: &Effect) {
        let Effect::Note(note) = effect else { return };
        let (seq, event) = match note {
            Note::Started(seq, req) => {
                (*seq, Observed { keys: keys(*req), ..of(*seq, ObservedKind::Began { steps: 0 }) })
            }
            Note::Slotted(seq, _, _, waited) => (*seq, of(*seq, ObservedKind::Slotted { waited: *waited })),
            Note::Ended(seq, why) => (*seq, of(*seq, ObservedKind::Ended(*why))),
            _ => return,
        };
        let Some((_, _, load)) = self.names.get(&seq) else { return };
        if self.listens(*load) {
            self.news[*load].sequences.push(event);
        }
    }

    pub fn listens(&self, load: usize) -> bool {
        self.refer.loads[load].external.is_some_and(|h| h.observe)
    }

    /// Turns the model's runs into the events that must be reported.
    fn overhear_runs(&mut self) {
        for (load, n, done, req, rows) in std::mem::take(&mut self.refer.ran) {
            let key = n.and_then(|n| self.names.iter().find(|(_, (m, ..))| *m == n)).map(|(key, _)| *key);
            let what = if done { ObservedKind::Done { rows } } else { ObservedKind::Failed { rows } };
            self.news[load].runs.push(Observed { seq: key.map_or(0, Seq::handle), what, keys: keys(req) });
        }
        for (load, took) in std::mem::take(&mut self.refer.batches_ran) {
            let what = ObservedKind::BatchRan { took: std::time::Duration::from_nanos(took) };
            self.news[load].runs.push(Observed { seq: 0, what, keys: [0; FEATURES] });
        }
    }

    /// A policy that listens gets every event once, in order.
    pub fn same_news(&mut self, round: &Round, load: usize) -> Checked {
        self.check_news(load, round.first, &round.news, round.lost)
    }

    /// After many events the policy gets them without a question.
    pub fn reported_at_last(&mut self) -> Checked {
        for load in std::mem::take(&mut self.tells) {
            let (first, news, lost) = self.core.observed(load);
            hold!(news.len() >= 1000, "a policy gets what happened", "{} are not many", news.len());
            self.check_news(self.refer.ix(load), first, &news, lost)?;
        }
        Ok(())
    }

    fn check_news(&mut self, load: usize, first: u64, news: &[Observed], lost: bool) -> Checked {
        self.overhear_runs();
        if !self.listens(load) {
            hold!(news.is_empty(), "a policy gets what happened", "it does not listen, and gets {news:?}");
            return Ok(());
        }
        let mine = &mut self.news[load];
        hold!(!lost && first == mine.next, "a policy gets what happened", "from {first}, not {}", mine.next);
        mine.next += news.len() as u64;
        let runs = |o: &&Observed| {
            use ObservedKind::{BatchRan, Done, Failed};
            matches!(o.what, Done { .. } | Failed { .. } | BatchRan { .. })
        };
        let plain = |o: &Observed| match o.what {
            ObservedKind::Began { .. } => Observed { what: ObservedKind::Began { steps: 0 }, ..*o },
            // Compared with those of its beginning below.
            ObservedKind::Ended(_) => Observed { keys: [0; FEATURES], ..*o },
            _ => *o,
        };
        let got: Vec<Observed> = news.iter().filter(|o| !runs(o)).map(plain).collect();
        let want = std::mem::take(&mut mine.sequences);
        hold!(got == want, "a policy gets what happened", "{got:?}, but {want:?} has");
        let sorted = |all: Vec<Observed>| {
            let mut all: Vec<String> = all.iter().map(|o| format!("{o:?}")).collect();
            all.sort_unstable();
            all
        };
        let (got, want) = (sorted(news.iter().filter(runs).copied().collect()), sorted(std::mem::take(&mut mine.runs)));
        hold!(got == want, "a policy gets what ran", "{got:?}, but {want:?} has");
        for (serial, one) in (first..).zip(news) {
            learn(&mut mine.knows, one)?;
            mine.newcomer.happened.push((serial, *one));
        }
        self.a_newcomer_looks(load)?;
        // Slow, so only for every fourth call. A wrong view stays wrong until then.
        if self.counts.calls.is_multiple_of(4) { self.knows_who_lives(load) } else { Ok(()) }
    }

    /// A policy that has every event knows the same sequences and key features as [`Core::live`].
    fn knows_who_lives(&self, load: usize) -> Checked {
        let live = self.core.live(self.refer.loads[load].key, 0, Vec::with_capacity(10_000));
        let got: BTreeMap<u64, [u64; FEATURES]> = live.began.iter().map(|(_, o)| (o.seq, o.keys)).collect();
        let knows = &self.news[load].knows;
        hold!(got == *knows, "the live ones are those that were reported", "{got:?}, reported {knows:?}");
        hold!(live.next == self.news[load].next, "nothing is reported twice", "the next is {}", live.next);
        for (_, one) in &live.began {
            let s = self.refer.seqs.iter().find(|s| s.key.is_some_and(|key| key.handle() == one.seq));
            let steps = s.map(|s| ObservedKind::Began { steps: s.step });
            hold!(steps == Some(one.what), "the live ones are those that were reported", "{one:?}, model {steps:?}");
        }
        Ok(())
    }

    /// A listener that reads the live sequences three at a time, and then the events since, ends with the same knowledge as the others.
    fn a_newcomer_looks(&mut self, load: usize) -> Checked {
        let mine = &mut self.news[load];
        if let Some(place) = mine.newcomer.roster.place() {
            mine.newcomer.roster.add(self.core.live(self.refer.loads[load].key, place, Vec::with_capacity(3)));
            return Ok(());
        }
        if mine.next < mine.newcomer.roster.until() {
            return Ok(());
        }
        let got = std::mem::take(&mut mine.newcomer).knows()?;
        hold!(got == mine.knows, "a newcomer knows who lives", "{got:?}, reported {:?}", mine.knows);
        Ok(())
    }

    /// A new policy reads the live sequences, and then the events.
    pub fn comes_anew(&mut self, load: usize) -> Checked {
        self.overhear_runs();
        if self.refer.loads[load].gone {
            return Ok(());
        }
        let live = self.core.live(self.refer.loads[load].key, 0, Vec::with_capacity(10_000));
        // Events that were not reported yet go to the present listener. The live sequences include their effect already.
        let (first, news, _) = self.core.observed(self.refer.loads[load].key);
        hold!(first + news.len() as u64 == live.next, "nothing is reported twice", "{first} + {}", news.len());
        let knows = live.began.iter().map(|(_, o)| (o.seq, o.keys)).collect();
        self.news[load] = News { next: live.next, knows, ..News::default() };
        Ok(())
    }
}
