//! Plug-ins that do what no plug-in should, for the server's tests. One module does all of it: which is said by `do` of its configuration, and
//! each file of `manifests/` makes it a plug-in of its own. It behaves for `after` calls of `plan` first.

use sequor_plugin::scheduler::*;

#[derive(Debug, Default)]
pub struct Hostile {
    does: String,
    after: u64,
    amount: u64,
    calls: u64,
    victim: Option<Sequence>,
    hoard: Vec<Vec<u8>>,
}

impl Scheduler for Hostile {
    fn configure(&mut self, config: &Config, _: &Model) -> Result<(), String> {
        self.does = config.get("do")?;
        self.after = config.get_or("after", 0)?;
        self.amount = config.get_or("amount", 0)?;
        match self.does.as_str() {
            "refuse" => Err("this configuration is refused, as it was told to".into()),
            "trap-configure" => panic!("told to trap in configure"),
            _ => Ok(()),
        }
    }

    fn plan(&mut self, round: &Round, ready: &Ready<'_>) -> Plan {
        self.calls += 1;
        if self.calls <= self.after {
            return oldest(round, ready);
        }
        match self.does.as_str() {
            "loop" => spin(u64::MAX),
            "spin" => spin(self.amount),
            "spin-when-told" if ready.indices().any(|i| ready.number("spin", i) > 0.0) => spin(self.amount),
            "trap" => panic!("told to trap in plan"),
            "recursion" => host::debug(&deeper(1).to_string()),
            "gigabyte" => self.hoard.push(vec![1; 1 << 30]),
            "leak" => self.hoard.push(vec![1; self.amount as usize]),
            "flood" => (0..self.amount).for_each(|n| host::info(&format!("line {n} of {}", self.amount))),
            "long-line" => host::info(&"a long line, ".repeat(self.amount as usize)),
            "counters" => (0..self.amount).for_each(|n| host::metric_add(&format!("counter_{n}"), 1.0)),
            "beyond" => return Plan::fire([ready.len() as u32 + 33]),
            "twice" => return Plan::fire([0, 0]),
            "both" => return Plan::fire([0]).reject(0, 1),
            "shapes" => return Plan::fire(ready.indices().take(round.max_batch as usize)),
            "too-many" => return Plan::fire(ready.indices()),
            "starve" => return self.starve(round, ready),
            "wait" => return Plan::wait(),
            "reject" => return Plan::wait().reject_all(ready.indices(), 42),
            "shed" => return Plan::wait().shed_all(ready.indices(), 42),
            "default" => return Plan::default(),
            _ => {}
        }
        oldest(round, ready)
    }

    fn admit(&mut self, _: &Round, waiting: &Ready<'_>, room: &[u32], victims: &Ready<'_>) -> Vec<Admission> {
        match self.does.as_str() {
            "trap-admit" => panic!("told to trap in admit"),
            "admit-beyond" => waiting.indices().map(|_| Admission::Evict(victims.len() as u32 + 7)).collect(),
            "admit-none" => Vec::new(),
            "admit-reject" => waiting.indices().map(|_| Admission::Reject(42)).collect(),
            _ => Admission::in_order(waiting.len(), room),
        }
    }

    fn observe(&mut self, _: &Event<'_>) {
        assert_ne!(self.does, "trap-observe", "told to trap in observe");
    }

    fn save(&mut self) -> Vec<u8> {
        vec![1; if self.does == "save-much" { 4 << 20 } else { 8 }]
    }

    fn restore(&mut self, _: &[u8]) -> Result<(), String> {
        if self.does == "refuse-restore" { Err("what was saved is not mine".into()) } else { Ok(()) }
    }
}

impl Hostile {
    /// Everybody but the first sequence that was ever seen.
    fn starve(&mut self, round: &Round, ready: &Ready<'_>) -> Plan {
        let victim = *self.victim.get_or_insert_with(|| ready.sequence(0));
        let others = ready.indices().filter(|&i| ready.sequence(i) != victim);
        Plan::fire(ready.batch(others, round))
    }
}

fn oldest(round: &Round, ready: &Ready<'_>) -> Plan {
    Plan::fire(ready.batch(ready.indices(), round))
}

fn spin(times: u64) {
    for n in 0..times {
        std::hint::black_box(n);
    }
}

#[allow(unconditional_recursion, reason = "what it is for")]
fn deeper(n: u64) -> u64 {
    let mine = std::hint::black_box([n; 64]);
    deeper(n + 1) + mine[(n % 64) as usize]
}

sequor_plugin::export!(Hostile);

#[cfg(test)]
mod tests {
    use sequor_plugin::testing::{Bench, Candidate};

    use super::*;

    fn told(what: &str) -> Bench<Hostile> {
        Bench::new().config(&format!(r#"{{"do": "{what}", "after": 1}}"#)).max_batch(2)
    }

    #[test]
    fn a_hostile_scheduler_plans_correctly_before_it_misbehaves() {
        let mut bench = told("starve");
        let two = [Candidate::new(), Candidate::new()];
        assert_eq!(bench.plan(&two).fire, [0, 1]);
        assert_eq!(bench.plan(&two).fire, [1]);
    }

    #[test]
    #[should_panic(expected = "index 34 of 1 candidates")]
    fn the_bench_panics_on_a_candidate_index_out_of_range() {
        let mut bench = told("beyond");
        bench.plan(&[Candidate::new()]);
        bench.plan(&[Candidate::new()]);
    }
}
