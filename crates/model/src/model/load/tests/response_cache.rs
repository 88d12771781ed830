//! The cache alone: which answers it finds again, and how much it holds.

use proptest::prelude::*;
use sequor_core::{DataType, Shape};

use super::*;
use crate::telemetry::Metrics;

fn tensor(dtype: DataType, shape: &[u64], data: &[u8]) -> Option<Tensor> {
    Some(Tensor { dtype, shape: Shape::new(shape), data: Bytes::copy_from_slice(data) })
}

fn bytes(data: &[u8]) -> Vec<Option<Tensor>> {
    vec![tensor(DataType::Uint8, &[data.len() as u64], data)]
}

fn cache(size: u64) -> (Arc<ResponseCache>, CacheUsage) {
    let usage = Metrics::new(true).cache();
    (ResponseCache::new(size, usage.clone()).unwrap(), usage)
}

fn found(load: &LoadCache, inputs: &[Option<Tensor>]) -> Option<Vec<Option<Tensor>>> {
    match load.look_up(inputs)? {
        CacheLookup::Hit(answer, _) => Some(answer),
        CacheLookup::Miss(..) => None,
    }
}

/// Looks up a request that is not in the cache, and keeps its answer.
fn keep(load: &LoadCache, inputs: &[Option<Tensor>], answer: &[Option<Tensor>]) {
    match load.look_up(inputs) {
        Some(CacheLookup::Miss(miss, _)) => load.keep(&miss, answer),
        other => panic!("{other:?}"),
    };
}

#[test]
fn an_answer_belongs_to_its_inputs_and_to_its_load() {
    let (cache, _) = cache(1 << 20);
    let [load, other] = [cache.for_load(), cache.for_load()];
    let asked = vec![tensor(DataType::Int32, &[1, 2], &[1; 8]), None];
    let answer = bytes(b"answer");
    keep(&load, &asked, &answer);
    assert_eq!(found(&load, &asked), Some(answer));
    assert_eq!(found(&other, &asked), None, "a reload");
    let others = [
        vec![tensor(DataType::Int32, &[2, 1], &[1; 8]), None],
        vec![tensor(DataType::Uint32, &[1, 2], &[1; 8]), None],
        vec![tensor(DataType::Int32, &[1, 2], &[1, 1, 1, 1, 1, 1, 1, 2]), None],
        vec![None, tensor(DataType::Int32, &[1, 2], &[1; 8])],
        vec![tensor(DataType::Int32, &[1, 2], &[1; 8])],
        vec![],
    ];
    for inputs in others {
        assert_eq!(found(&load, &inputs), None, "{inputs:?}");
    }
}

#[test]
fn cached_answers_are_dropped_with_their_load() {
    let (cache, _) = cache(1 << 20);
    let [load, other] = [cache.for_load(), cache.for_load()];
    keep(&load, &bytes(b"a"), &bytes(b"1"));
    keep(&other, &bytes(b"a"), &bytes(b"2"));
    drop(load);
    assert_eq!((cache.answers.len(), found(&other, &bytes(b"a"))), (1, Some(bytes(b"2"))));
}

#[test]
fn answers_and_inputs_that_are_too_large_are_left_out() {
    let (cache, usage) = cache(64 << 10);
    let load = cache.for_load();
    keep(&load, &bytes(b"large"), &bytes(&vec![0; 17 << 10]));
    assert_eq!(found(&load, &bytes(b"large")), None);
    keep(&load, &bytes(b"fits"), &bytes(&vec![0; 12 << 10]));
    assert!(found(&load, &bytes(b"fits")).is_some());
    assert!(load.look_up(&bytes(&vec![0; MOST_INPUT_BYTES + 1])).is_none());
    assert_eq!(usage.evictions(), 0);
    assert!(ResponseCache::new(0, usage.clone()).is_none() && ResponseCache::new(3, usage).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The cache never holds more bytes than its maximum, and never gives another request's answer.
    #[test]
    fn a_cache_holds_no_more_than_its_bytes_and_gives_no_other_answer(
        size in 1024u64..64 << 10,
        steps in prop::collection::vec((0u16..200, 0usize..6000), 1..400),
    ) {
        let (cache, _) = cache(size);
        let load = cache.for_load();
        for (request, length) in steps {
            let inputs = bytes(&request.to_le_bytes());
            match load.look_up(&inputs) {
                Some(CacheLookup::Hit(answer, _)) => {
                    let data = &answer[0].as_ref().unwrap().data;
                    prop_assert!(data.iter().all(|byte| *byte == request as u8));
                }
                Some(CacheLookup::Miss(miss, _)) => {
                    load.keep(&miss, &bytes(&vec![request as u8; length]));
                }
                None => prop_assert!(false, "two bytes are not too many"),
            }
            prop_assert!(cache.answers.weight() <= size, "{} of {size}", cache.answers.weight());
        }
    }
}
