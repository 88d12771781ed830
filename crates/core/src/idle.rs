//! The idle sequences of a load, in the order in which they became idle. Those that ensembles hold have a list of their own: they never leave
//! for the store, and a search for one that can must not pass them all.

use crate::core::{Core, load_in};
use crate::ids::{LoadId, Seq};
use crate::list::List;
use crate::load::LoadState;

impl Core {
    /// Adds a sequence that has become idle.
    pub(crate) fn add_idle(&mut self, seq: Seq) {
        let Some(s) = self.seqs.get_mut(seq) else { return };
        let Some(state) = load_in(&mut self.loads, s.load) else { return };
        state.idle.entries += 1;
        s.idle_entry = state.idle.entries;
        let list = if s.held { &mut state.idle.held } else { &mut state.idle.free };
        self.seq_links.push_back(list, seq.ix);
    }

    /// Removes an idle sequence from its list.
    pub(crate) fn remove_idle(&mut self, seq: Seq) {
        let Some(s) = self.seqs.get(seq) else { return };
        let Some(state) = load_in(&mut self.loads, s.load) else { return };
        let list = if s.held { &mut state.idle.held } else { &mut state.idle.free };
        self.seq_links.remove(list, seq.ix);
    }

    /// The idle sequences of a load, the longest idle first.
    pub(crate) fn idle_in_order<'a>(&'a self, load: &LoadState) -> impl Iterator<Item = Seq> + use<'a> {
        let keys = |list: &List| self.seq_links.iter(list).filter_map(|ix| self.seqs.key_at(ix)).peekable();
        let (mut free, mut held) = (keys(&load.idle.free), keys(&load.idle.held));
        std::iter::from_fn(move || {
            let entry = |seq: Option<&Seq>| seq.and_then(|seq| self.seqs.get(*seq)).map(|s| s.idle_entry);
            match (entry(free.peek()), entry(held.peek())) {
                (Some(of_free), Some(of_held)) if of_held < of_free => held.next(),
                (None, _) => held.next(),
                (Some(_), _) => free.next(),
            }
        })
    }

    /// The sequences of a load that hold a slot and wait for a request, the longest idle first, without those that ensembles hold.
    pub fn idle_sequences(&self, load: LoadId) -> impl Iterator<Item = Seq> + '_ {
        let idle = self.load(load).map(|load| self.seq_links.iter(&load.idle.free));
        idle.into_iter().flatten().filter_map(|ix| self.seqs.key_at(ix))
    }
}
