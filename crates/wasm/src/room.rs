//! The room for guests: counts them before they start, and gives every place of a plug-in its share.
//!
//! A [`RoomShare`] belongs to one version of a plug-in at one place, where its guests are called. It owns the room of one guest, used or
//! not. A [`RoomTicket`] belongs to one guest, for as long as it exists.
//!
//! # Invariants
//!
//! - Each share commits what it owns, or what its guests use if that is more. All shares together never commit more than the total.
//! - So a share always has room for its first guest. No place is without a guest because others use up the room.
//! - Only a replacement may use the reserve: another version, or another load of a model that is served. Therefore the room that other
//!   plug-ins use cannot prevent one.
//! - A share gets a further guest only if its further guests then take no more than what is left. So shares that grow together get equal
//!   parts, and leave as much as one of them has.
//!
//! A guest weighs more than one if it needs more memories or tables than the engine has for each of them. So the engine's own limits are
//! never reached, and no start fails in the middle. The room counts guests. The bytes of each are limited elsewhere ([`super::limits`]).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use sequor_sync::Mutex;

/// Room for guests of weight 1, of all plug-ins together.
pub const INSTANCES: u32 = 1024;
/// Maximum part of the room that is kept for replacements: 1/8, and at most 128.
const RESERVE: (u32, u32) = (8, 128);

/// The room for the guests of an engine. Cheap to clone; all clones are one room.
#[derive(Clone)]
pub struct GuestRoom(Arc<RoomParts>);

struct RoomParts {
    state: Mutex<RoomState>,
    /// Ends guests that are not needed now.
    make_room: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct RoomState {
    total: u32,
    reserve: u32,
    /// Sum of what the shares commit.
    committed: u32,
    shares: BTreeMap<u64, ShareUse>,
    next: u64,
    refused: RefusedRoom,
}

/// What one share owns, and what its guests use.
#[derive(Debug, Clone, Copy)]
struct ShareUse {
    /// 0 once the share is dropped.
    own: u32,
    used: u32,
}

impl ShareUse {
    fn committed(self) -> u32 {
        self.own.max(self.used)
    }

    fn further(self) -> u32 {
        self.used.saturating_sub(self.own)
    }
}

/// The purpose of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoomPurpose {
    /// A plug-in at a place that had none.
    New,
    /// A replacement: the version or load that serves keeps its own share until it is gone.
    Replacement,
}

/// Why there is no room.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoGuestRoom {
    #[error(
        "the server has no room for another plug-in: of {total} instances, {committed} are in use or promised, and {reserve} are kept for replacements. Unload a model, or lower plugins.instances"
    )]
    New { total: u32, committed: u32, reserve: u32 },
    #[error(
        "the server has no room for another version beside the one that serves: of {total} instances, {committed} are in use or promised. Try again later, or unload a model"
    )]
    Replacement { total: u32, committed: u32 },
    #[error("the server has no room for another instance of the plug-in now")]
    Further,
}

/// How much of the room is used, in guests of weight 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoomUsage {
    /// The room that shares own.
    pub own: u32,
    /// The room of guests beyond that.
    pub further: u32,
    /// The rest, the reserve included.
    pub free: u32,
    pub refused: RefusedRoom,
}

/// How often there was no room, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RefusedRoom {
    pub new: u64,
    pub replacement: u64,
    pub further: u64,
}

impl Default for GuestRoom {
    fn default() -> GuestRoom {
        GuestRoom::new(INSTANCES)
    }
}

impl GuestRoom {
    /// Room for this many guests of weight 1.
    pub fn new(total: u32) -> GuestRoom {
        let (part, most) = RESERVE;
        let reserve = (total / part).min(most);
        let (shares, refused) = (BTreeMap::new(), RefusedRoom::default());
        let state = Mutex::new(RoomState { total, reserve, committed: 0, shares, next: 0, refused });
        GuestRoom(Arc::new(RoomParts { state, make_room: OnceLock::new() }))
    }

    /// Sets a function that ends guests which are not needed now. It runs when a share finds no room. Only the first call has an effect.
    pub fn make_room_with(&self, make_room: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.make_room.set(Box::new(make_room));
    }

    /// A share for guests of this weight. The caller holds no lock that ends guests.
    pub fn open(&self, weight: u32, purpose: RoomPurpose) -> Result<RoomShare, NoGuestRoom> {
        let opened = self.try_open(weight, purpose);
        let opened = match (opened, self.0.make_room.get()) {
            (Err(_), Some(make_room)) => {
                make_room();
                self.try_open(weight, purpose)
            }
            (opened, _) => opened,
        };
        if opened.is_err() {
            let refused = &mut self.0.state.lock().refused;
            *match purpose {
                RoomPurpose::New => &mut refused.new,
                RoomPurpose::Replacement => &mut refused.replacement,
            } += 1;
        }
        opened
    }

    fn try_open(&self, weight: u32, purpose: RoomPurpose) -> Result<RoomShare, NoGuestRoom> {
        let mut state = self.0.state.lock();
        let RoomState { total, reserve, committed, .. } = *state;
        let (kept, refusal) = match purpose {
            RoomPurpose::New => (reserve, NoGuestRoom::New { total, committed, reserve }),
            RoomPurpose::Replacement => (0, NoGuestRoom::Replacement { total, committed }),
        };
        if committed.saturating_add(weight).saturating_add(kept) > total {
            return Err(refusal);
        }
        let id = state.next;
        state.next += 1;
        state.committed += weight;
        state.shares.insert(id, ShareUse { own: weight, used: 0 });
        drop(state);
        Ok(RoomShare { room: self.clone(), id, weight })
    }

    pub fn usage(&self) -> RoomUsage {
        let state = self.0.state.lock();
        let sum = |of: fn(ShareUse) -> u32| state.shares.values().copied().map(of).sum();
        let free = state.total.saturating_sub(state.committed);
        RoomUsage { own: sum(|share| share.own), further: sum(ShareUse::further), free, refused: state.refused }
    }
}

impl RoomState {
    /// Changes one share. A share that owns and uses nothing is removed.
    fn change(&mut self, id: u64, change: impl FnOnce(&mut ShareUse)) {
        let Some(share) = self.shares.get_mut(&id) else { return };
        let before = share.committed();
        change(share);
        let after = share.committed();
        self.committed = self.committed.saturating_sub(before).saturating_add(after);
        if after == 0 {
            self.shares.remove(&id);
        }
    }

    /// Whether a share may have one more guest of this weight beyond what it owns.
    fn takes_further(&self, share: ShareUse, weight: u32) -> bool {
        let left = self.total.saturating_sub(self.committed).saturating_sub(self.reserve);
        share.further().saturating_add(weight) <= left
    }
}

/// The share of one version at one place. Once it is dropped, only its guests take room.
pub struct RoomShare {
    room: GuestRoom,
    id: u64,
    weight: u32,
}

impl RoomShare {
    /// The weight of each guest.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Room for a guest. The first guest at a time always gets it.
    pub fn ticket(&self) -> Result<RoomTicket, NoGuestRoom> {
        if let Some(first) = self.first_ticket() {
            return Ok(first);
        }
        let mut state = self.room.0.state.lock();
        let share = state.shares.get(&self.id).copied();
        if !share.is_some_and(|share| state.takes_further(share, self.weight)) {
            state.refused.further += 1;
            return Err(NoGuestRoom::Further);
        }
        state.change(self.id, |share| share.used += self.weight);
        Ok(self.granted())
    }

    /// Room for a guest within what the share owns; `None` if another guest uses that.
    pub fn first_ticket(&self) -> Option<RoomTicket> {
        let mut state = self.room.0.state.lock();
        let share = state.shares.get(&self.id)?;
        if share.used + self.weight > share.own {
            return None;
        }
        state.change(self.id, |share| share.used += self.weight);
        Some(self.granted())
    }

    fn granted(&self) -> RoomTicket {
        RoomTicket { room: self.room.clone(), id: self.id, weight: self.weight }
    }
}

impl Drop for RoomShare {
    fn drop(&mut self) {
        self.room.0.state.lock().change(self.id, |share| share.own = 0);
    }
}

/// The room of one guest. It is dropped after the guest.
#[must_use]
pub struct RoomTicket {
    room: GuestRoom,
    id: u64,
    weight: u32,
}

impl Drop for RoomTicket {
    fn drop(&mut self) {
        self.room.0.state.lock().change(self.id, |share| share.used = share.used.saturating_sub(self.weight));
    }
}

impl fmt::Debug for GuestRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GuestRoom({:?})", self.usage())
    }
}

impl fmt::Debug for RoomShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoomShare").field("weight", &self.weight).finish_non_exhaustive()
    }
}

impl fmt::Debug for RoomTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoomTicket").field("weight", &self.weight).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use rand_pcg::Pcg64;
    use rand_pcg::rand_core::{Rng as _, SeedableRng as _};

    use super::*;

    /// A share with its guests, as the reference of the property test knows them.
    struct Known {
        share: Option<RoomShare>,
        weight: u32,
        guests: Vec<RoomTicket>,
    }

    impl Known {
        fn used(&self) -> u32 {
            self.weight * self.guests.len() as u32
        }

        fn own(&self) -> u32 {
            if self.share.is_some() { self.weight } else { 0 }
        }
    }

    fn check(room: &GuestRoom, total: u32, all: &[Known]) -> u32 {
        let committed: u32 = all.iter().map(|one| one.own().max(one.used())).sum();
        let usage = room.usage();
        assert!(committed <= total, "{committed} of {total}");
        assert_eq!(usage.free, total - committed);
        assert_eq!(usage.own, all.iter().map(Known::own).sum::<u32>());
        assert_eq!(usage.further, all.iter().map(|one| one.used().saturating_sub(one.own())).sum::<u32>());
        total - committed
    }

    #[test]
    fn any_order_of_operations_keeps_the_total_and_each_share_s_first_guest() {
        for seed in 0..200 {
            let mut random = Pcg64::seed_from_u64(seed);
            let mut below = |n: usize| random.next_u64() as usize % n.max(1);
            let total = 1 + below(60) as u32;
            let reserve = total / 8;
            let (room, mut all) = (GuestRoom::new(total), Vec::<Known>::new());
            for _ in 0..400 {
                let free = check(&room, total, &all);
                let at = below(all.len());
                match below(8) {
                    0 | 1 => {
                        let (weight, is_new) = (1 + below(3) as u32, below(2) == 0);
                        let purpose = if is_new { RoomPurpose::New } else { RoomPurpose::Replacement };
                        let opened = room.open(weight, purpose);
                        assert_eq!(opened.is_ok(), weight + if is_new { reserve } else { 0 } <= free);
                        all.extend(opened.ok().map(|share| Known { share: Some(share), weight, guests: Vec::new() }));
                    }
                    2..=4 => {
                        let Some(one) = all.get_mut(at) else { continue };
                        let Some(share) = &one.share else { continue };
                        let (is_first, more) = (one.guests.is_empty(), one.used() + one.weight - one.own());
                        let ticket = share.ticket();
                        assert_eq!(ticket.is_ok(), is_first || more + reserve <= free, "{more} more, {free} free");
                        one.guests.extend(ticket.ok());
                    }
                    5 | 6 => drop(all.get_mut(at).and_then(|one| one.guests.pop())),
                    _ => drop(all.get_mut(at).and_then(|one| one.share.take())),
                }
                all.retain(|one| one.share.is_some() || !one.guests.is_empty());
            }
            drop(all);
            assert_eq!(room.usage().free, total);
        }
    }

    #[test]
    fn greedy_shares_get_equal_parts_and_leave_one_for_others() {
        let room = GuestRoom::new(1024);
        let shares: Vec<RoomShare> = (0..8).map(|_| room.open(1, RoomPurpose::New).unwrap()).collect();
        let mut guests: Vec<Vec<RoomTicket>> = shares.iter().map(|_| Vec::new()).collect();
        for _ in 0..1024 {
            for (share, guests) in shares.iter().zip(&mut guests) {
                guests.extend(share.ticket());
            }
        }
        let counts: Vec<usize> = guests.iter().map(Vec::len).collect();
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(most - least <= 1 && *least > 90, "{counts:?}");
        let left = room.usage().free as usize - 128;
        assert!(left + 1 >= *least, "{left}");
        assert!((0..left).all(|_| room.open(1, RoomPurpose::New).map(std::mem::forget).is_ok()));
        assert!(matches!(room.open(1, RoomPurpose::New), Err(NoGuestRoom::New { reserve: 128, .. })));
        assert!((0..128).all(|_| room.open(1, RoomPurpose::Replacement).map(std::mem::forget).is_ok()));
        assert!(matches!(
            room.open(1, RoomPurpose::Replacement),
            Err(NoGuestRoom::Replacement { committed: 1024, .. })
        ));
        // The engine is full, and a place whose guests are gone starts another.
        guests[0].clear();
        let first = shares[0].ticket().unwrap();
        assert!(shares[0].first_ticket().is_none());
        drop(first);
        let RefusedRoom { new, replacement, further } = room.usage().refused;
        assert!((new, replacement) == (1, 1) && further > 0);
    }

    #[test]
    fn a_share_without_room_ends_guests_that_are_not_needed() {
        let room = GuestRoom::new(2);
        let share = room.open(1, RoomPurpose::New).unwrap();
        let idle = Mutex::new(vec![share.ticket().unwrap(), share.ticket().unwrap()]);
        assert!(room.open(1, RoomPurpose::Replacement).is_err());
        room.make_room_with(move || idle.lock().truncate(1));
        assert!(room.open(1, RoomPurpose::Replacement).is_ok());
    }
}
