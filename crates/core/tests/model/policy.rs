//! Random answers of an external policy: good, wrong, slow or broken.

use sequor_core::*;

use super::rng::Rng;

/// Fills in the picks of a planning round and returns an answer.
pub fn plan(
    rng: &mut Rng,
    now: Time,
    len: u32,
    max_batch: u32,
    shapes: &[u64],
    picks: &mut Picks,
) -> Result<Decision, PolicyFault> {
    let mut order: Vec<u32> = (0..len).collect();
    rng.shuffle(&mut order);
    match rng.below(20) {
        0 => return Err(*rng.pick(&[PolicyFault::Trap, PolicyFault::Time, PolicyFault::Memory, PolicyFault::Busy])),
        1 => return Ok(Decision::Default),
        2 => {
            let until = *rng.pick(&[Time(now.0 + 1), Time(now.0 + 40), Time(now.0.saturating_sub(3)), Time::NEVER]);
            if rng.percent(30) && len > 0 {
                picks.reject.push(rejection(rng, order[0]));
            }
            return Ok(Decision::Wait(until));
        }
        3 => {
            picks.fire = order;
            picks.fire.push(len + rng.below(3) as u32);
        }
        4 => {
            picks.fire.extend_from_slice(&order);
            picks.fire.extend(order.first());
        }
        // All candidates, regardless of shape and number.
        5 => picks.fire = order,
        6 => {}
        _ => {
            let first = order.first().copied();
            let shape = first.and_then(|i| shapes.get(i as usize)).copied();
            let alike = |i: &&u32| shapes.get(**i as usize).copied() == shape;
            let many = rng.range(1, u64::from(max_batch)) as usize;
            picks.fire = order.iter().filter(alike).take(many).copied().collect();
            if rng.percent(15) {
                let left: Vec<u32> = order.iter().copied().filter(|i| !picks.fire.contains(i)).take(2).collect();
                picks.reject = left.into_iter().map(|i| rejection(rng, i)).collect();
            }
        }
    }
    Ok(Decision::Fire)
}

/// A refusal that ends the sequence or keeps it, with any code.
fn rejection(rng: &mut Rng, candidate: u32) -> Rejection {
    Rejection { candidate, code: rng.below(3) as u32, ends: rng.percent(50) }
}

pub fn admit(rng: &mut Rng, heads: u32, room: &[u32], victims: u32) -> Result<Vec<Admission>, PolicyFault> {
    match rng.below(20) {
        0 => return Err(PolicyFault::Trap),
        1 => return Ok(vec![Admission::Defer; heads as usize + 1]),
        2 => return Ok(vec![Admission::Evict { victim: victims }; heads as usize]),
        3 => return Ok(vec![Admission::Take { instance: room.len() as u16 }; heads as usize]),
        _ => {}
    }
    let many = rng.below(u64::from(heads) + 1);
    let one = |rng: &mut Rng| match rng.below(12) {
        0 => Admission::Reject(3),
        1 | 2 => Admission::Defer,
        3..=5 if victims > 0 => Admission::Evict { victim: rng.below(u64::from(victims)) as u32 },
        _ => Admission::Take { instance: rng.index(room.len().max(1)) as u16 },
    };
    Ok((0..many).map(|_| one(rng)).collect())
}
