//! The answer for one sequence that waits for a slot.

/// The answer for one waiting sequence. Has the contract's memory layout, so a list of them is handed over unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, u8)]
pub enum Admission {
    /// It gets a free slot of this instance.
    Take(u32),
    /// It gets the slot of this victim (an index), whose sequence ends as evicted.
    Evict(u32),
    /// It keeps waiting.
    Defer,
    /// Its START is refused, with the plug-in's code for the reason.
    Reject(u32),
}

impl Admission {
    /// Gives the free slots to the sequences that wait longest, from the instance with the most room.
    #[must_use]
    pub fn in_order(waiting: usize, room: &[u32]) -> Vec<Admission> {
        let mut room = room.to_vec();
        let free = room.iter().map(|free| *free as usize).sum();
        let take = |_| {
            let (instance, most) = room.iter_mut().enumerate().max_by_key(|(i, free)| (**free, usize::MAX - i))?;
            *most = most.checked_sub(1)?;
            Some(Admission::Take(instance as u32))
        };
        let mut said = Vec::with_capacity(waiting.min(free));
        said.extend((0..waiting).map_while(take));
        said
    }
}

#[cfg(test)]
mod tests {
    use super::Admission::{self, Take};

    #[test]
    fn free_slots_go_to_those_who_wait_longest() {
        assert_eq!(Admission::in_order(5, &[1, 2]), [Take(1), Take(0), Take(1)]);
        assert_eq!(Admission::in_order(1, &[1, 2]), [Take(1)]);
        assert_eq!(Admission::in_order(1, &[]), []);
    }
}
