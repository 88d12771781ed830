//! The tenants of a flow's sequences: one name for all, or many of which few send most requests (Zipf's law).

use serde::Deserialize;

use crate::simulate::random::Random;

/// Tenants `t1`, `t2`, …: the n-th has 1/n^zipf of the first one's share.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Many {
    pub count: u16,
    /// 0 gives equal shares; 1 is a usual distribution.
    #[serde(default = "usual")]
    pub zipf: f64,
}

fn usual() -> f64 {
    1.0
}

impl Many {
    pub(super) fn check(self) -> Result<(), String> {
        if self.count == 0 {
            return Err("tenants.count must be 1 or more".to_owned());
        }
        if !(self.zipf.is_finite() && self.zipf >= 0.0) {
            return Err("tenants.zipf must be 0 or more".to_owned());
        }
        Ok(())
    }

    /// The cumulated shares, the last being 1.
    fn sums(self) -> Vec<f64> {
        let weights = (1..=self.count).map(|n| f64::from(n).powf(-self.zipf));
        let sums: Vec<f64> = weights
            .scan(0.0, |sum, w| {
                *sum += w;
                Some(*sum)
            })
            .collect();
        let all = sums.last().copied().unwrap_or(1.0);
        sums.into_iter().map(|sum| sum / all).collect()
    }
}

/// Draws a tenant for each sequence.
#[derive(Debug)]
pub(super) struct Picker {
    /// Indices in the workload's list of names.
    places: Vec<u16>,
    sums: Vec<f64>,
}

impl Picker {
    /// Adds a flow's tenants, one or many, to the workload's list. An existing name is the same tenant.
    pub(super) fn new(one: Option<&str>, many: Option<Many>, names: &mut Vec<String>) -> Picker {
        let (its_names, sums) = match (one, many) {
            (_, Some(many)) => ((1..=many.count).map(|n| format!("t{n}")).collect(), many.sums()),
            (Some(name), None) => (vec![name.to_owned()], vec![1.0]),
            (None, None) => (Vec::new(), Vec::new()),
        };
        Picker { places: its_names.into_iter().map(|name| place_of(name, names)).collect(), sums }
    }

    pub(super) fn pick(&self, random: &mut Random) -> u16 {
        if self.places.len() < 2 {
            return self.places.first().copied().unwrap_or(NO_TENANT);
        }
        self.places.get(random.among(&self.sums)).copied().unwrap_or(NO_TENANT)
    }
}

/// The tenant of requests without one.
pub const NO_TENANT: u16 = u16::MAX;

/// The index of a name in the list. A new name is added.
pub(super) fn place_of(name: String, names: &mut Vec<String>) -> u16 {
    let place = names.iter().position(|known| *known == name).unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    });
    u16::try_from(place).unwrap_or(NO_TENANT)
}

/// A tenant's key for schedulers: the 64-bit FNV-1a of its name, the same in every process.
pub fn key(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenant_shares_follow_the_zipf_distribution() {
        let sums = Many { count: 3, zipf: 1.0 }.sums();
        let shares: Vec<f64> = sums
            .iter()
            .scan(0.0, |before, s| {
                let share = s - *before;
                *before = *s;
                Some(share)
            })
            .collect();
        assert!(
            (shares[0] / shares[1] - 2.0).abs() < 1e-9 && (shares[0] / shares[2] - 3.0).abs() < 1e-9 && sums[2] == 1.0
        );
        assert_eq!(Many { count: 2, zipf: 0.0 }.sums(), [0.5, 1.0]);
    }

    #[test]
    fn keys_are_fnv_1a() {
        assert_eq!(
            (key(""), key("a"), key("foobar")),
            (0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8)
        );
    }
}
