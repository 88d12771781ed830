//! The sequences of an id: one chain for each version of the model, and the list of the chains' heads.
//!
//! Only the youngest sequence of a version, the head of its chain, can be live: a new one begins only once the one before is to end. So a
//! lookup visits the heads and the sequences next to them. Its cost grows with the versions that have a sequence of the id, and not with the
//! sequences of the id that a client has queued.

use crate::chain_links::ChainLinks;
use crate::core::Core;
use crate::faults::{Planted, fault};
use crate::ids::{Id, Seq};
use crate::sequence::Sequence;

/// The sequences of an id that a request can meet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IdLookup {
    pub(crate) live: Option<Seq>,
    /// A sequence whose END is queued or running, or whose id went to a newer load.
    pub(crate) ending: Option<Seq>,
}

impl Core {
    /// The youngest live sequence of an id and its youngest that is to end, of this version or of any.
    pub(crate) fn lookup(&self, id: &Id, version: Option<u64>) -> IdLookup {
        let (mut live, mut ending) = (None, None);
        let fits = |s: &Sequence| version.is_none_or(|v| self.version_of(s) == Some(v));
        for (key, s) in self.heads(id).filter(|(_, s)| fits(s)) {
            if s.ending.is_some() {
                ending = ending.max(Some((s.born, key)));
                continue;
            }
            live = live.max(Some((s.born, key)));
            let older = s.chain.older.and_then(|key| Some((self.visit(key)?.born, key)));
            ending = ending.max(older);
        }
        IdLookup { live: live.map(|(_, key)| key), ending: ending.map(|(_, key)| key) }
    }

    /// Whether a younger sequence has this one's id.
    pub(crate) fn is_superseded(&self, seq: Seq) -> bool {
        self.seqs.get(seq).is_some_and(|of| self.heads(&of.id).any(|(_, head)| head.born > of.born))
    }

    /// Whether this is the only sequence of its id, on any version. Those that have ended and whose request still runs do not count.
    pub fn is_only(&self, seq: Seq) -> bool {
        let Some(s) = self.seqs.get(seq) else { return false };
        let mut heads = self.heads(&s.id).map(|(head, _)| head);
        s.chain.older.is_none() && heads.next() == Some(seq) && heads.next().is_none()
    }

    /// The youngest sequence of an id.
    pub(crate) fn youngest(&self, id: &Id) -> Option<Seq> {
        self.heads(id).max_by_key(|(_, head)| head.born).map(|(key, _)| key)
    }

    /// Adds a new sequence to those of its id, as the head of its version.
    pub(crate) fn link(&mut self, seq: Seq) {
        let Some(s) = self.seqs.get(seq) else { return };
        let (id, version) = (s.id.clone(), self.version_of(s));
        let older = self.heads(&id).find(|(_, head)| self.version_of(head) == version).map(|(key, _)| key);
        if let Some(older) = older {
            self.replace_head(&id, older, Some(seq));
            self.relink(older, |chain| chain.younger = Some(seq));
            self.relink(seq, |chain| chain.older = Some(older));
        } else {
            let first = self.ids.insert(id, seq);
            self.relink(seq, |chain| chain.next_head = first);
        }
    }

    /// Removes a sequence from those of its id.
    pub(crate) fn unlink(&mut self, seq: Seq) {
        if fault(Planted::IdNotUnlinked) {
            return;
        }
        let Some(s) = self.seqs.get(seq) else { return };
        let (id, ChainLinks { older, younger, .. }) = (s.id.clone(), s.chain);
        if let Some(older) = older {
            self.relink(older, |chain| chain.younger = younger);
        }
        match younger {
            Some(younger) => self.relink(younger, |chain| chain.older = older),
            None => self.replace_head(&id, seq, older),
        }
        self.relink(seq, |chain| *chain = ChainLinks::default());
    }

    /// Puts another head in the place of this one, or none.
    fn replace_head(&mut self, id: &Id, head: Seq, by: Option<Seq>) {
        let before = self.heads(id).take_while(|(key, _)| *key != head).last().map(|(key, _)| key);
        let next = self.seqs.get(head).and_then(|s| s.chain.next_head);
        self.relink(head, |chain| chain.next_head = None);
        if let Some(by) = by {
            self.relink(by, |chain| chain.next_head = next);
        }
        match (before, by.or(next)) {
            (Some(before), follows) => self.relink(before, |chain| chain.next_head = follows),
            (None, Some(first)) => _ = self.ids.insert(id.clone(), first),
            (None, None) => _ = self.ids.remove(id),
        }
    }

    /// The youngest sequence of each version that has one of this id, in no order.
    fn heads<'a>(&'a self, id: &Id) -> impl Iterator<Item = (Seq, &'a Sequence)> + use<'a> {
        let mut at = self.ids.get(id).copied();
        std::iter::from_fn(move || {
            let key = at?;
            let s = self.visit(key)?;
            at = s.chain.next_head;
            Some((key, s))
        })
    }

    fn visit(&self, key: Seq) -> Option<&Sequence> {
        #[cfg(test)]
        tests::count_visit();
        self.seqs.get(key)
    }

    fn relink(&mut self, seq: Seq, change: impl FnOnce(&mut ChainLinks)) {
        #[cfg(test)]
        tests::count_visit();
        if let Some(s) = self.seqs.get_mut(seq) {
            change(&mut s.chain);
        }
    }

    fn version_of(&self, s: &Sequence) -> Option<u64> {
        self.load(s.load).map(|load| load.spec.version)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;
    use crate::event::{Event, Submit};
    use crate::ids::{LoadId, Req};
    use crate::request_meta::{QueueTerms, RequestMeta};
    use crate::spec::{Dialect, LoadSpec, Strategy};
    use crate::time::Time;

    thread_local! {
        static VISITED: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts the sequences that are looked at because of their id.
    pub(super) fn count_visit() {
        VISITED.set(VISITED.get() + 1);
    }

    fn take() -> u64 {
        VISITED.replace(0)
    }

    fn submit(req: u32, id: u64, version: Option<u64>, end: bool) -> Event {
        Event::Submit(Submit {
            req: Req::new(req, NonZeroU32::MIN),
            id: Id::from(id),
            fresh_id: 0,
            start: true,
            end,
            adopt: None,
            adopt_on: None,
            prepare: false,
            step: None,
            version,
            dialect: Dialect::TRITON,
            deadline: None,
            backlog_until: None,
            queue_until: None,
            idle: None,
            priority: 0,
            queue: QueueTerms::default(),
            meta: RequestMeta::default(),
            origin: 0,
        })
    }

    #[test]
    fn a_sequence_is_the_only_one_of_its_id_if_no_version_has_another() {
        let (mut core, id) = (Core::new(), Id::from(7));
        let apply = |core: &mut Core, event| core.apply(Time::ZERO, event, &mut Vec::new());
        for version in [1, 2] {
            let oldest = Strategy::Oldest { slots: 1, preferred: Vec::new(), delay: Duration::ZERO, in_order: false };
            let load = LoadId::new(u32::try_from(version).unwrap(), NonZeroU32::MIN);
            apply(&mut core, Event::Loaded(load, LoadSpec::new(version, oldest, 1)));
        }
        let only = |core: &Core, seq: Option<Seq>| seq.map(|seq| core.is_only(seq));
        apply(&mut core, submit(1, 7, Some(1), true));
        assert_eq!(only(&core, core.find_ending(&id)), Some(true), "its END is queued");
        apply(&mut core, submit(2, 7, Some(1), false));
        assert_eq!(only(&core, core.find(&id, Some(1))), Some(false), "the one before is to end");
        assert_eq!(only(&core, core.find_ending(&id)), Some(false));
        apply(&mut core, Event::Cancel(Req::new(1, NonZeroU32::MIN)));
        assert_eq!(only(&core, core.find(&id, Some(1))), Some(true));
        apply(&mut core, submit(3, 7, Some(2), false));
        for version in [1, 2] {
            assert_eq!(only(&core, core.find(&id, Some(version))), Some(false), "{version}");
        }
        apply(&mut core, Event::Cancel(Req::new(2, NonZeroU32::MIN)));
        assert_eq!(only(&core, core.find(&id, None)), Some(true));
    }

    /// All slots are busy, and a client sends requests that are START and END at once, all with one id.
    #[test]
    fn the_cost_of_a_request_does_not_grow_with_the_queued_sequences_of_its_id() {
        const CHAINED: u32 = 65_000;
        let mut core = Core::new();
        let mut out = Vec::new();
        let mut apply = |core: &mut Core, event| {
            core.apply(Time::ZERO, event, &mut out);
            out.clear();
        };
        for version in [1, 2] {
            let oldest = Strategy::Oldest { slots: 1, preferred: Vec::new(), delay: Duration::ZERO, in_order: false };
            let load = LoadId::new(u32::try_from(version).unwrap(), NonZeroU32::MIN);
            apply(&mut core, Event::Loaded(load, LoadSpec::new(version, oldest, 1)));
            apply(&mut core, submit(u32::try_from(version).unwrap(), 1, Some(version), false));
        }
        for req in 0..CHAINED {
            apply(&mut core, submit(10 + req, 7, Some(1), true));
        }
        take();
        let id = Id::from(7);
        for version in [None, Some(1), Some(2)] {
            core.find(&id, version);
        }
        let ending = core.find_ending(&id);
        assert!(ending.is_some());
        let lookups = take();
        for version in [None, Some(1), Some(2)] {
            let req = 10 + CHAINED + u32::try_from(version.unwrap_or(0)).unwrap();
            apply(&mut core, submit(req, 7, version, true));
        }
        let submits = take();
        // Sequences leave from the front, the middle and the end.
        for nth in [0, CHAINED / 2, CHAINED - 1] {
            apply(&mut core, Event::Cancel(Req::new(10 + nth, NonZeroU32::MIN)));
        }
        let ends = take();
        assert!([lookups, submits, ends].iter().all(|visits| *visits <= 32), "{lookups}, {submits}, {ends}");
        let usage = core.usage(LoadId::new(1, NonZeroU32::MIN));
        assert_eq!((usage.live, usage.backlog), (CHAINED - 1, CHAINED - 2), "one of the three is on the other version");
    }
}
