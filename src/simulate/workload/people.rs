//! The sequences of a flow: which are live, how many steps each has left, and which begins when one has ended.

use sequor_core::Time;

use super::flow::Common;
use super::tenants::Picker;
use super::{Arrival, Workload};
use crate::simulate::random::Random;

/// Sequences that are live at the same time. When one ends, another begins with the next request in its place.
#[derive(Debug)]
pub(super) struct People {
    common: Common,
    picker: Picker,
    seats: Vec<Option<Person>>,
}

/// A live sequence.
#[derive(Debug, Clone, Copy)]
struct Person {
    sequence: u32,
    tenant: u16,
    /// Number of requests left; `None` means it never ends.
    left: Option<u64>,
}

impl People {
    pub(super) fn new(common: Common, into: &mut Workload) -> People {
        let picker = Picker::new(common.tenant.as_deref(), common.tenants, &mut into.tenants);
        let seats = vec![None; common.sequences as usize];
        People { common, picker, seats }
    }

    pub(super) fn len(&self) -> usize {
        self.seats.len()
    }

    /// Adds the next request of the sequence in this place. `last` makes it an END, even if more were planned.
    pub(super) fn step(&mut self, place: usize, at: Time, last: bool, random: &mut Random, into: &mut Workload) {
        let Some(seat) = self.seats.get_mut(place) else { return };
        let start = seat.is_none();
        let mut person = match *seat {
            Some(person) => person,
            None => {
                let sequence = into.sequences;
                into.sequences += 1;
                Person {
                    sequence,
                    tenant: self.picker.pick(random),
                    left: self.common.steps.map(|mean| random.tries(mean)),
                }
            }
        };
        person.left = person.left.map(|n| n.saturating_sub(1));
        let end = last || person.left == Some(0);
        *seat = (!end).then_some(person);
        let Common { deadline, priority, bytes, shape, .. } = self.common;
        let Person { sequence, tenant, .. } = person;
        into.arrivals.push(Arrival {
            at,
            sequence,
            start,
            end,
            tenant,
            flow: 0,
            priority,
            within: deadline,
            bytes,
            shape,
        });
    }
}
