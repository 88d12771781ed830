//! Fair shares by tenant. The tenant with the least use for its weight goes first, and gets the next free slot. So a tenant with many
//! requests delays only its own. Use is measured in *turns*: rows divided by weight.

use sequor_plugin::scheduler::*;

#[derive(Debug, Default)]
pub struct FairShare {
    burst: f64,
    weights: Map<Key, f64>,
    /// Turns of each tenant.
    had: Map<Key, f64>,
    /// Turns of the tenant that went first in the last round. It limits the claim of a returning tenant to one burst.
    clock: f64,
}

impl Scheduler for FairShare {
    fn configure(&mut self, config: &Config, _: &Model) -> Result<(), String> {
        self.burst = config.get_or("burst", 4.0)?;
        for (tenant, weight) in config.get_or("weights", Map::<String, f64>::new())? {
            if weight.is_nan() || weight <= 0.0 {
                return Err(format!("weights.{tenant} must be above 0"));
            }
            self.weights.insert(key_of(&tenant), weight);
        }
        Ok(())
    }

    fn plan(&mut self, round: &Round, ready: &Ready<'_>) -> Plan {
        let order = self.order(ready);
        self.clock = order.first().map_or(self.clock, |(turn, _)| turn.max(self.clock));
        Plan::fire(ready.batch(order.into_iter().map(|(_, i)| i), round))
    }

    /// The tenant that may run next gets the next slot too. Otherwise a tenant whose sequences hold all slots would make the others wait
    /// for their ends.
    fn admit(&mut self, _: &Round, waiting: &Ready<'_>, room: &[u32], _: &Ready<'_>) -> Vec<Admission> {
        let mut said = vec![Admission::Defer; waiting.len()];
        for ((_, i), slot) in self.order(waiting).into_iter().zip(Admission::in_order(waiting.len(), room)) {
            said[i as usize] = slot;
        }
        said
    }

    fn observe(&mut self, event: &Event<'_>) {
        if let Event::Done { rows, keys, .. } = event {
            let tenant = keys.get("tenant");
            let weight = self.weight(tenant);
            let turn = self.had.entry(tenant).or_insert(self.clock);
            *turn = turn.max(self.clock - self.burst / weight) + *rows as f64 / weight;
            if self.had.len() > 4096 {
                let least = self.clock - self.burst;
                self.had.retain(|_, turn| *turn > least);
            }
        }
    }
}

impl FairShare {
    /// Candidates with their turns, the next one first. Each turn assumes that the tenant's earlier candidates have run.
    fn order(&self, ready: &Ready<'_>) -> Vec<(f64, u32)> {
        let tenant_of = ready.keys("tenant");
        let mut next: Map<Key, (f64, f64)> = Map::new();
        let mut order: Vec<(f64, u32)> = Vec::with_capacity(ready.len());
        for i in ready.sorted(|i| ready.arrival_us(i)) {
            let tenant = tenant_of(i);
            let (turn, weight) = next.entry(tenant).or_insert_with(|| (self.turn(tenant), self.weight(tenant)));
            order.push((*turn, i));
            *turn += f64::from(ready.rows(i)) / *weight;
        }
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        order
    }

    fn turn(&self, tenant: Key) -> f64 {
        let least = self.clock - self.burst / self.weight(tenant);
        self.had.get(&tenant).copied().unwrap_or(self.clock).max(least)
    }

    fn weight(&self, tenant: Key) -> f64 {
        self.weights.get(&tenant).copied().unwrap_or(1.0)
    }
}

sequor_plugin::export!(FairShare);

#[cfg(test)]
mod tests {
    use sequor_plugin::testing::{Bench, Candidate};

    use super::*;

    fn of(tenant: &str) -> Candidate {
        Candidate::new().key("tenant", tenant)
    }

    fn bench() -> Bench<FairShare> {
        Bench::new().keys(&["tenant"]).max_batch(4)
    }

    #[test]
    fn a_loud_tenant_does_not_starve_a_quiet_one() {
        let mut bench = bench();
        let loud = [of("loud"), of("loud"), of("loud"), of("loud"), of("loud"), of("quiet")];
        assert_eq!(bench.plan(&loud).fire, [0, 5, 1, 2]);
        bench.done(&loud[..4]);
        assert_eq!(bench.plan(&loud).fire, [5, 0, 1, 2]);
    }

    #[test]
    fn a_quiet_tenant_gets_a_free_slot_before_a_loud_tenant() {
        let mut bench = bench();
        let waiting = [of("loud"), of("loud"), of("loud"), of("quiet"), of("quiet")];
        bench.plan(&waiting);
        bench.done(&waiting[..3]);
        let said = bench.admit(&waiting, &[1, 1], &[]);
        assert_eq!(said[3..], [Admission::Take(0), Admission::Take(1)], "{said:?}");
        assert_eq!(said[..3], [Admission::Defer; 3]);
        // Where there is room for more, the loud one has it.
        let said = bench.admit(&waiting, &[3], &[]);
        assert_eq!(
            said,
            [Admission::Take(0), Admission::Defer, Admission::Defer, Admission::Take(0), Admission::Take(0)]
        );
    }

    #[test]
    fn weights_set_each_tenants_share_of_a_batch() {
        let mut bench = bench().config(r#"{"weights": {"gold": 3}}"#);
        let candidates: Vec<Candidate> = (0..4).flat_map(|_| [of("gold"), of("free")]).collect();
        assert_eq!(bench.plan(&candidates).fire, [0, 1, 2, 4], "three of gold's and one of the other's");
        let mut bench = self::bench().config(r#"{"weights": {"gold": 0}}"#);
        assert_eq!(bench.configure().unwrap_err(), "weights.gold must be above 0");
    }

    #[test]
    fn a_returning_tenant_claims_at_most_one_burst() {
        let mut bench = bench().config(r#"{"burst": 2}"#).max_batch(8);
        bench.plan(&[of("back")]);
        bench.done(&[vec![of("back")], vec![of("busy"); 100]].concat());
        bench.plan(&[of("busy")]);
        let mut candidates = vec![of("busy"), of("busy")];
        candidates.extend(vec![of("back"); 6]);
        let fire = bench.plan(&candidates).fire;
        assert_eq!(fire.iter().position(|i| *i == 0), Some(2), "{fire:?}");
    }
}
