//! The policy of `plugins/guests/fair-share` without weights, as a native policy with the same interface.

use std::collections::BTreeMap;
use std::sync::Arc;

use sequor::config::model::LoadFacts;
use sequor::scheduling::guest::{Events, Guest, Manifest, Source};
use sequor_core::policy::columns;
use sequor_core::{Admission, Columns, Decision, Hooks, Picks};
use sequor_wasm::call_error::CallError;
use sequor_wasm::limits::Limits;
use sequor_wasm::services::Services;

pub(crate) const NATIVE: &str = "fair-share-native";

#[derive(Debug)]
pub(crate) struct Native(Manifest);

impl Default for Native {
    fn default() -> Self {
        let columns = columns::ARRIVAL | columns::SHAPE | columns::ROWS | columns::KEYS;
        let hooks = Hooks { plan: true, admit: true, observe: true, columns, ..Hooks::default() };
        Native(Manifest {
            name: NATIVE.to_owned(),
            version: "0".to_owned(),
            hooks,
            features: vec!["tenant".to_owned()],
            codes: Arc::default(),
        })
    }
}

impl Source for Native {
    fn manifest(&self) -> &Manifest {
        &self.0
    }

    fn sha256(&self) -> &str {
        NATIVE
    }

    fn start(&self, _: Arc<dyn Services>, _: Limits) -> Result<Box<dyn Guest>, CallError> {
        Ok(Box::new(FairShare::default()))
    }
}

#[derive(Debug, Default)]
struct FairShare {
    had: BTreeMap<u64, f64>,
    clock: f64,
}

impl FairShare {
    fn turn(&self, tenant: u64) -> f64 {
        self.had.get(&tenant).copied().unwrap_or(self.clock).max(self.clock - 4.0)
    }

    /// Candidates with their turns, in order.
    fn order(&self, see: &Columns) -> Vec<(f64, u32)> {
        let column = |column: &[u64], i: u32| column.get(i as usize).copied().unwrap_or(0);
        let mut arrived: Vec<u32> = (0..see.len).collect();
        arrived.sort_by_key(|&i| column(&see.arrival, i));
        let mut next: BTreeMap<u64, f64> = BTreeMap::new();
        let mut order: Vec<(f64, u32)> = Vec::with_capacity(arrived.len());
        for i in arrived {
            let tenant = column(&see.keys, i);
            let turn = next.entry(tenant).or_insert_with(|| self.turn(tenant));
            order.push((*turn, i));
            *turn += f64::from(see.rows.get(i as usize).copied().unwrap_or(1));
        }
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        order
    }
}

impl Guest for FairShare {
    fn configure(&mut self, _: &str, _: &LoadFacts) -> Result<Result<(), String>, CallError> {
        Ok(Ok(()))
    }

    fn plan(&mut self, _: u32, see: &Columns, news: &Events, picks: &mut Picks) -> Result<Decision, CallError> {
        self.observe(news)?;
        picks.clear();
        let order = self.order(see);
        self.clock = order.first().map_or(self.clock, |(turn, _)| turn.max(self.clock));
        picks.fire.extend(order.into_iter().map(|(_, i)| i).take(see.max_batch as usize));
        Ok(Decision::Fire)
    }

    fn admit(&mut self, see: &Columns, room: &[u32], _: &Columns, news: &Events) -> Result<Vec<Admission>, CallError> {
        self.observe(news)?;
        let mut message = vec![Admission::Defer; see.len as usize];
        let free = (0u16..).zip(room).flat_map(|(instance, free)| (0..*free).map(move |_| instance));
        for ((_, i), instance) in self.order(see).into_iter().zip(free) {
            message[i as usize] = Admission::Take { instance };
        }
        Ok(message)
    }

    fn observe(&mut self, events: &Events) -> Result<(), CallError> {
        for ((kind, rows), tenant) in events.kind.iter().zip(&events.amount).zip(&events.keys) {
            if *kind == 3 {
                let turn = self.turn(*tenant) + *rows as f64;
                self.had.insert(*tenant, turn);
            }
        }
        Ok(())
    }
}
