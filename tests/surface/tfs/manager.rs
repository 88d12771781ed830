//! Sends random requests to 500 sequences, about half of them wrong, and compares the answers with a model of OVMS's sequence manager.

use std::collections::{BTreeMap, BTreeSet};

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng as _;
use sequor::api::ServerLimits;
use sequor_proto::tensorflow_service::prediction_service_client::PredictionServiceClient;
use tonic::Code;
use tonic::transport::Channel;

use super::calls::{END, START, answer, client, limit, step};
use crate::rig::{Rig, SUM};

const POISON: i32 = -13;
const REQUESTS: u32 = 6000;

/// OVMS's documented sequence manager, with two bugs fixed: a failed START leaves nothing, and a failed END ends the sequence.
struct Manager {
    live: BTreeMap<u64, i32>,
    most: usize,
}

impl Manager {
    /// The outcome of a request: the sum, or the error. `made` is the id that the server assigned.
    fn apply(&mut self, id: u64, control: u32, value: i32, made: Option<u64>) -> Result<i32, Code> {
        match (control, id) {
            (3.., _) | (0 | END, 0) => return Err(Code::InvalidArgument),
            (START, _) if self.live.len() >= self.most => return Err(Code::Unavailable),
            (START, id) if self.live.contains_key(&id) => return Err(Code::AlreadyExists),
            (0 | END, id) if !self.live.contains_key(&id) => return Err(Code::NotFound),
            _ => {}
        }
        let id = if id == 0 { made.unwrap_or(0) } else { id };
        let sum = if control == START { value } else { self.live[&id] + value };
        if control == END {
            self.live.remove(&id);
        }
        if value == POISON {
            return Err(Code::Internal);
        }
        if control != END {
            self.live.insert(id, sum);
        }
        Ok(sum)
    }
}

struct Chance(Pcg64Mcg);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }
}

async fn ask(
    client: &mut PredictionServiceClient<Channel>,
    id: u64,
    control: u32,
    value: i32,
) -> Result<(i32, u64), Code> {
    let answered = client.predict(step(id, control, value)).await;
    answered.map(|response| answer(response.get_ref())).map(|(sum, id)| (sum, id.unwrap())).map_err(|s| s.code())
}

#[tokio::test]
async fn random_requests_match_a_model_of_the_ovms_sequence_manager() {
    let config = SUM.replace("max_candidate_sequences: 4", "max_candidate_sequences: 500");
    let rig = Rig::with(ServerLimits::default(), &[("made", &config, "accumulate INT32 poison=-13")]);
    limit(&rig, "max_live = 120");
    let mut client = client(&rig).await;
    let mut chance = Chance(Pcg64Mcg::new(42));
    let mut manager = Manager { live: BTreeMap::new(), most: 120 };
    let mut outcomes = BTreeMap::<String, u32>::new();
    let mut asked = BTreeSet::new();
    for n in 0..REQUESTS {
        let control = [START, START, 0, 0, 0, 0, END, 3][chance.below(8) as usize];
        let known: Vec<u64> = manager.live.keys().copied().collect();
        let id = match chance.below(8) {
            0 => 0,
            1..5 if !known.is_empty() => known[chance.below(known.len() as u64) as usize],
            _ => 1 + chance.below(500),
        };
        asked.insert(id);
        let value = if chance.below(24) == 0 { POISON } else { chance.below(1000) as i32 };
        let got = ask(&mut client, id, control, value).await;
        let made = got.ok().map(|(_, id)| id);
        let want = manager.apply(id, control, value, made);
        assert_eq!(got.map(|(sum, _)| sum), want, "request {n}: id {id}, control {control}, value {value}");
        if let (Ok((_, answered)), true) = (got, id > 0) {
            assert_eq!(answered, id, "request {n}");
        }
        let outcome = want.map_or_else(|code| format!("{code:?}"), |_| "Ok".to_owned());
        *outcomes.entry(outcome).or_default() += 1;
    }
    let right = outcomes["Ok"];
    assert!((REQUESTS * 7 / 20..REQUESTS * 13 / 20).contains(&right), "{right} of {REQUESTS} are right: {outcomes:?}");
    assert!(asked.range(1..=500).count() > 480, "{} sequences", asked.len());
    for outcome in ["Ok", "InvalidArgument", "NotFound", "AlreadyExists", "Unavailable", "Internal"] {
        assert!(outcomes.get(outcome).is_some_and(|count| *count > 20), "{outcome}: {outcomes:?}");
    }
}
