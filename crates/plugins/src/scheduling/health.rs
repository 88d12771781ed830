//! The state machine of a binding: strikes, back-off, parking. Pure: the caller passes the time.

use std::collections::VecDeque;
use std::time::Duration;

use sequor_core::Time;

use super::report::BindingState;
use crate::telemetry::GaugePart;

/// The window within which strikes count together.
pub(super) const WINDOW: Duration = Duration::from_secs(60);
/// Maximum replacements of a growing guest within [`WINDOW`]. After those it is not replaced. If it then hits its memory limit, that is a
/// strike.
const RECYCLES: usize = 3;
/// Delay before the first new instance. It doubles with every strike that counts.
const FIRST: Duration = Duration::from_millis(100);

// The transitions are listed at `report::BindingState`.
#[derive(Debug)]
pub struct Health {
    at: HealthState,
    /// Whether the binding is a shadow.
    shadow: bool,
    strikes: VecDeque<Time>,
    /// Number of strikes within the window that park it.
    most: usize,
    /// Times at which a grown instance was replaced.
    recycled: VecDeque<Time>,
    /// No grown instance is replaced before this time.
    recycles_from: Time,
    /// 1 while it is parked.
    parked: GaugePart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HealthState {
    Serving,
    /// A new instance is due at this time.
    Recovering(Time),
    Parked,
}

/// The consequence of a strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The instance continues.
    GoesOn,
    /// A new instance must start at this time.
    Recovers(Time),
    Parks,
}

impl Health {
    /// A binding that does not serve yet. An instance may start at once.
    pub fn new(shadow: bool, most: u32) -> Health {
        let most = usize::try_from(most.max(1)).unwrap_or(usize::MAX);
        Health {
            at: HealthState::Recovering(Time::ZERO),
            shadow,
            strikes: VecDeque::new(),
            most,
            recycled: VecDeque::new(),
            recycles_from: Time::ZERO,
            parked: GaugePart::default(),
        }
    }

    /// The same, with a part of a gauge that shows whether it is parked.
    pub fn shown_by(self, parked: GaugePart) -> Health {
        Health { parked, ..self }
    }

    fn turn(&mut self, at: HealthState) {
        self.at = at;
        self.parked.set(u64::from(at == HealthState::Parked));
    }

    pub fn state(&self) -> BindingState {
        match (self.at, self.shadow) {
            (HealthState::Serving, false) => BindingState::Active,
            (HealthState::Serving, true) => BindingState::Shadow,
            (HealthState::Recovering(_), _) => BindingState::Recovering,
            (HealthState::Parked, _) => BindingState::Parked,
        }
    }

    /// Strikes that count at this time.
    pub fn strikes(&self, now: Time) -> u32 {
        let counts = self.strikes.iter().filter(|at| now - **at < WINDOW).count();
        u32::try_from(counts).unwrap_or(u32::MAX)
    }

    /// Counts a strike. `lost`: the instance can no longer be used.
    pub fn add_strike(&mut self, now: Time, lost: bool) -> Verdict {
        self.strikes.retain(|at| now - *at < WINDOW);
        self.strikes.push_back(now);
        if self.at == HealthState::Parked || self.strikes.len() >= self.most {
            self.turn(HealthState::Parked);
            return Verdict::Parks;
        }
        if !lost {
            return Verdict::GoesOn;
        }
        let doubled = u32::try_from(self.strikes.len().saturating_sub(1)).unwrap_or(u32::MAX).min(16);
        let due = now + FIRST * 2u32.pow(doubled);
        self.turn(HealthState::Recovering(due));
        Verdict::Recovers(due)
    }

    /// Requests a new guest without a strike.
    pub fn renew(&mut self, now: Time) {
        if self.at == HealthState::Serving {
            self.turn(HealthState::Recovering(now));
        }
    }

    /// Delays the start of a new guest until this time, without a strike.
    pub fn postpone(&mut self, until: Time) {
        if matches!(self.at, HealthState::Recovering(_)) {
            self.turn(HealthState::Recovering(until));
        }
    }

    /// The time at which a new instance is due, if one is.
    pub fn due(&self) -> Option<Time> {
        match self.at {
            HealthState::Recovering(due) => Some(due),
            HealthState::Serving | HealthState::Parked => None,
        }
    }

    /// Records that an instance serves. False if the binding was parked meanwhile.
    pub fn serves(&mut self) -> bool {
        let wanted = self.at != HealthState::Parked;
        if wanted {
            self.turn(HealthState::Serving);
        }
        wanted
    }

    pub fn park(&mut self) {
        self.turn(HealthState::Parked);
    }

    /// Unparks the binding and clears its strikes.
    pub fn unpark(&mut self, now: Time) {
        if self.at == HealthState::Parked {
            self.forgive(now, true);
        }
    }

    /// Clears the strikes, which do not count against a new version. A parked binding stays parked unless `unparks`.
    pub fn forgive(&mut self, now: Time, unparks: bool) {
        self.strikes.clear();
        self.recycled.clear();
        if unparks && self.at == HealthState::Parked {
            self.turn(HealthState::Recovering(now));
        }
    }

    /// The earliest time at which a grown instance may be replaced next.
    pub fn recycles_at(&self, now: Time) -> Time {
        let nth = self.recycled.len().checked_sub(RECYCLES).and_then(|nth| self.recycled.get(nth));
        nth.map_or(now, |nth| now.max(*nth + WINDOW)).max(self.recycles_from)
    }

    /// Delays the replacement of a grown instance until this time. It does not count as one.
    pub fn postpone_recycling(&mut self, until: Time) {
        self.recycles_from = until;
    }

    pub fn recycled(&mut self, now: Time) {
        if self.recycled.len() >= RECYCLES {
            self.recycled.pop_front();
        }
        self.recycled.push_back(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn ms(due: Time, now: Time) -> u128 {
        (due - now).as_millis()
    }

    #[test]
    fn strikes_back_off_and_the_third_within_a_minute_parks() {
        let mut health = Health::new(false, 3);
        assert_eq!(health.state(), BindingState::Recovering);
        health.serves();
        assert_eq!(health.state(), BindingState::Active);
        let Verdict::Recovers(due) = health.add_strike(Time(S), true) else { panic!() };
        assert_eq!((ms(due, Time(S)), health.state(), health.due()), (100, BindingState::Recovering, Some(due)));
        health.serves();
        let Verdict::Recovers(due) = health.add_strike(Time(2 * S), true) else { panic!() };
        assert_eq!(ms(due, Time(2 * S)), 200);
        assert_eq!(health.add_strike(Time(3 * S), true), Verdict::Parks, "while it recovers, too");
        assert_eq!((health.state(), health.due(), health.serves()), (BindingState::Parked, None, false));
        health.unpark(Time(4 * S));
        assert_eq!((health.state(), health.strikes(Time(4 * S))), (BindingState::Recovering, 0));
    }

    #[test]
    fn strikes_older_than_a_minute_do_not_count() {
        let mut health = Health::new(false, 3);
        health.serves();
        for n in 0..10 {
            assert_eq!(health.add_strike(Time(n * 31 * S), false), Verdict::GoesOn, "{n}");
        }
        assert_eq!((health.state(), health.strikes(Time(9 * 31 * S))), (BindingState::Active, 2));
    }

    #[test]
    fn a_recovered_shadow_is_a_shadow_again() {
        let mut health = Health::new(true, 2);
        health.serves();
        health.add_strike(Time(0), true);
        health.serves();
        assert_eq!(health.state(), BindingState::Shadow);
        health.renew(Time(5));
        assert_eq!((health.state(), health.due()), (BindingState::Recovering, Some(Time(5))));
        health.park();
        health.renew(Time(6));
        assert_eq!(health.state(), BindingState::Parked);
    }
}
