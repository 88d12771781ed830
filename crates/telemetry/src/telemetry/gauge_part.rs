//! One holder's part of a gauge that is the sum over several holders.

use std::sync::atomic::{AtomicI64, Ordering};

use super::kinds::Gauge;

/// A part of a gauge. Dropping it subtracts the part.
#[derive(Debug, Default)]
pub struct GaugePart {
    gauge: Gauge,
    part: AtomicI64,
}

impl GaugePart {
    /// A part of 0.
    pub fn new(gauge: Gauge) -> GaugePart {
        GaugePart { gauge, part: AtomicI64::new(0) }
    }

    pub fn set(&self, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.gauge.add(value.saturating_sub(self.part.swap(value, Ordering::AcqRel)));
    }
}

impl Drop for GaugePart {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_until_they_are_dropped() {
        let gauge = Gauge::default();
        let (first, second) = (GaugePart::new(gauge.clone()), GaugePart::new(gauge.clone()));
        first.set(70);
        first.set(60);
        second.set(5);
        assert_eq!(gauge.get(), 65);
        drop(first);
        assert_eq!(gauge.get(), 5);
        second.set(0);
        assert_eq!(gauge.get(), 0);
    }
}
