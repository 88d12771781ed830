//! Two batches of an instance in flight on an accelerator. The next one is submitted while the first runs, and each is answered when it is
//! done. After any failure, every sum is that of the answered steps. The accelerators are stand-ins. They do nothing until a thread waits
//! for them, and end no wait before the test allows it.

use std::sync::Arc;

use parking_lot::Mutex;
use sequor::backend::mock::MockBackend;
use sequor::device::stand_in::StandIns;
use sequor::error::Failure;
use sequor_core::Id;

use crate::support::server::wait;
use crate::support::{Server, model};

/// A model on a stand-in, and the shapes of all batches submitted so far.
struct Rig {
    gpus: StandIns,
    server: Server,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Rig {
    fn new(batch: u32, slots: u32, program: &str) -> Rig {
        Rig::of(batch, slots, program, 256 << 20)
    }

    fn of(batch: u32, slots: u32, program: &str, room: usize) -> Rig {
        let dims = if program.starts_with("append") { -1 } else { 1 };
        let config = format!(
            r#"
            max_batch_size: {batch}
            instance_group {{ kind: KIND_GPU count: 1 }}
            input {{ name: "INPUT" data_type: TYPE_INT32 dims: [ {dims} ] }}
            output {{ name: "OUTPUT" data_type: TYPE_INT32 dims: [ {dims} ] }}
            sequence_batching {{
              max_sequence_idle_microseconds: 600000000
              oldest {{ max_candidate_sequences: {slots} }}
              state {{ input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ {dims} ] }}
            }}
            "#
        );
        let asked = Arc::new(Mutex::new(Vec::new()));
        let shapes = Arc::clone(&asked);
        let backend = MockBackend::with_hook(Arc::new(move |shape| shapes.lock().push(shape.to_string())));
        let gpus = StandIns::new(1, room);
        let server = model("sum").config(&config).mock(program, backend.with_stand_ins()).accelerators(&gpus).serve();
        Rig { gpus, server, asked }
    }

    #[track_caller]
    fn wait_for(&self, runs: usize) {
        wait(|| self.asked.lock().len() >= runs, || format!("{:?} were asked for, not {runs}", self.asked.lock()));
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.gpus.go_on();
    }
}

#[test]
fn the_next_batch_is_submitted_while_another_runs() {
    let rig = Rig::new(1, 4, "accumulate INT32");
    let [a, b, c] = [1u64, 2, 3].map(|id| rig.server.seq(id));
    rig.gpus.hold();
    let before = rig.gpus.waits();
    let first = a.start().input(&[1]).send();
    let (second, third) = (b.start().input(&[10]).send(), c.start().input(&[100]).send());
    rig.wait_for(2);
    rig.gpus.finish(1);
    first.gives(&[1]);
    // The first is done, which makes room for a third beside the second one.
    rig.wait_for(3);
    let step = a.step().input(&[2]).send();
    assert_eq!(rig.asked.lock().len(), 3);
    rig.gpus.go_on();
    second.gives(&[10]);
    third.gives(&[100]);
    step.gives(&[3]);
    assert_eq!((rig.asked.lock().len(), rig.gpus.waits() - before), (4, 4), "one wait a batch");
}

#[test]
fn a_partial_batch_waits_until_a_running_batch_finishes() {
    let rig = Rig::new(4, 8, "accumulate INT32");
    rig.gpus.hold();
    let first = rig.server.seq(1).start().input(&[1]).send();
    rig.wait_for(1);
    let few: Vec<_> = (2..4u64).map(|id| rig.server.seq(id).start().input(&[id as i32]).send()).collect();
    rig.gpus.finish(1);
    first.gives(&[1]);
    rig.wait_for(2);
    let many: Vec<_> = (4..8u64).map(|id| rig.server.seq(id).start().input(&[id as i32]).send()).collect();
    rig.wait_for(3);
    assert_eq!(*rig.asked.lock(), ["[1,1]", "[2,1]", "[4,1]"]);
    rig.gpus.go_on();
    for (id, waiting) in (2..).zip(few.into_iter().chain(many)) {
        waiting.gives(&[id]);
    }
}

/// Each sequence sends its steps one after the other. Some steps are poison, which fails only that step.
fn load(rig: &Rig, sequences: u64, steps: i32, poison: i32) {
    std::thread::scope(|scope| {
        for id in 1..=sequences {
            let seq = rig.server.seq(id);
            scope.spawn(move || {
                let mut want = 0;
                for n in 0..steps {
                    // No START is poison: other tests cover the remains of a failed START.
                    let value = if n == 0 { 1 } else { (id as i32 * 7 + n * 13) % 20 };
                    let ask = if n == 0 { seq.start() } else { seq.step() };
                    match ask.input(&[value]).send().result() {
                        Ok(answer) => {
                            want += value;
                            assert_eq!(answer.output::<i32>("OUTPUT"), [want], "sequence {id}, step {n}");
                        }
                        Err(Failure::Run(_)) if value == poison => {}
                        Err(other) => panic!("sequence {id}, step {n}: {other:?}"),
                    }
                }
                seq.end().input(&[1]).gives(&[want + 1]);
            });
        }
    });
    assert_eq!(rig.server.repository.live(), 0);
    assert_eq!(rig.server.repository.state_bytes().0, 0);
}

#[test]
fn sums_stay_right_under_load() {
    let rig = Rig::new(4, 24, "accumulate INT32 cost=200");
    load(&rig, 24, 40, -1);
    assert!(rig.asked.lock().iter().any(|shape| shape == "[4,1]"), "no batch was full");
}

#[test]
fn sums_stay_right_under_load_with_rows_that_fail() {
    let rig = Rig::new(4, 24, "accumulate INT32 cost=50 poison=19");
    load(&rig, 24, 40, 19);
}

#[test]
fn an_export_includes_the_step_in_flight() {
    let rig = Rig::new(1, 2, "accumulate INT32");
    let a = rig.server.seq(1);
    a.start().input(&[1]).gives(&[1]);
    rig.gpus.hold();
    let step = a.step().input(&[2]).send();
    rig.wait_for(2);
    let file = std::thread::scope(|scope| {
        let export = scope.spawn(|| rig.server.repository.find("sum", "").unwrap().export(&Id::Int(1)).unwrap());
        rig.gpus.go_on();
        export.join().unwrap()
    });
    step.gives(&[3]);
    let text = String::from_utf8_lossy(&file);
    assert!(text.contains(r#""sequor.step":"2""#) && file.ends_with(&3i32.to_le_bytes()), "{text}");
}

#[test]
fn batches_in_flight_are_answered_when_the_server_stops() {
    let rig = Rig::new(1, 4, "accumulate INT32");
    rig.gpus.hold();
    let [first, second] = [1u64, 2].map(|id| rig.server.seq(id).start().input(&[5]).send());
    rig.wait_for(2);
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| rig.server.repository.stop());
        rig.gpus.go_on();
        stop.join().unwrap();
    });
    first.gives(&[5]);
    second.gives(&[5]);
}

#[test]
fn a_broken_gpu_fails_requests_in_flight_and_later_requests() {
    let rig = Rig::new(1, 4, "accumulate INT32");
    let [a, b] = [1u64, 2].map(|id| rig.server.seq(id));
    a.start().input(&[1]).gives(&[1]);
    b.start().input(&[1]).gives(&[1]);
    rig.gpus.hold();
    let under_way = [a.step().input(&[1]).send(), b.step().input(&[1]).send()];
    rig.wait_for(4);
    rig.gpus.break_down();
    let sentence = |failure: Failure| match failure {
        Failure::Run(text) => assert_eq!(text, "GPU 0 failed to finish its work: it was broken on purpose"),
        other => panic!("{other:?}"),
    };
    under_way.into_iter().for_each(|waiting| sentence(waiting.fails()));
    sentence(a.start().input(&[1]).fails());
    assert_eq!(rig.asked.lock().len(), 4, "nothing is asked of it any more");
}

#[test]
fn states_that_grow_stay_on_the_accelerator() {
    let rig = Rig::new(2, 4, "append INT32 dims=-1");
    let [a, b] = [1u64, 2].map(|id| rig.server.seq(id));
    // The first state has one element.
    a.start().input(&[5]).gives(&[0, 5]);
    b.start().input(&[7]).gives(&[0, 7]);
    let before = rig.gpus.copied();
    a.step().input(&[6]).gives(&[0, 5, 6]);
    assert_eq!(rig.gpus.copied() - before, 4 + 12, "an input there, an output back");
    b.step().input(&[8]).gives(&[0, 7, 8]);
    // The two run together. Until then, a request of another length occupies the instance.
    let c = rig.server.seq(3);
    rig.gpus.hold();
    let first = c.start().input(&[1]).send();
    rig.wait_for(5);
    let both = [a.step().input(&[1, 2]).send(), b.step().input(&[3, 4]).send()];
    rig.gpus.go_on();
    first.gives(&[0, 1]);
    for (waiting, want) in both.into_iter().zip([[0, 5, 6, 1, 2], [0, 7, 8, 3, 4]]) {
        waiting.gives(&want);
    }
    let file = rig.server.repository.find("sum", "").unwrap().export(&Id::Int(2)).unwrap();
    b.end().input(&[9]).gives(&[0, 7, 8, 3, 4, 9]);
    rig.server.repository.find("sum", "").unwrap().import(Id::Int(9), &file).unwrap();
    rig.server.seq(9).step().input(&[2]).gives(&[0, 7, 8, 3, 4, 2]);
    a.start().input(&[1]).gives(&[0, 1]);
}

#[test]
fn a_step_fails_and_keeps_its_state_if_the_gpu_cannot_hold_the_new_state() {
    let rig = Rig::of(1, 2, "append INT32 dims=-1", 7 << 20);
    let a = rig.server.seq(1);
    a.start().input(&[5]).gives(&[0, 5]);
    match a.step().input(&vec![1i32; 1 << 20]).fails() {
        Failure::Run(text) => assert!(text.contains("GPU 0 has no room for"), "{text}"),
        other => panic!("{other:?}"),
    }
    a.step().input(&[6]).gives(&[0, 5, 6]);
}
