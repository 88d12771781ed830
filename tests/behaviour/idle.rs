//! Idle time. The clock is the real one. Tests wait for expiry, never for a fixed time.

use std::time::{Duration, Instant};

use sequor_core::Stage;

use crate::slots::{sum_with_id, with_id};
use crate::support::{Server, both, sum};

fn idle(config: &str, micros: u64) -> Server {
    sum_with_id(&config.replace("microseconds: 600000000", &format!("microseconds: {micros}")))
}

#[test]
fn an_idle_sequence_expires_and_its_slot_and_id_are_free_again() {
    for strategy in both() {
        let server = idle(&with_id(strategy).replace("max_batch_size: 4", "max_batch_size: 1"), 50_000);
        let a = server.seq(1);
        a.start().input(&[5]).gives(&[5]);
        assert_eq!(server.runs().len(), 1);
        server.wait_for_live(0);
        let failure = a.step().input(&[1]).fails();
        assert!(format!("{failure:?}").contains("Unknown(Some(Tombstone { why: Idle"), "{failure:?}");
        a.start().input(&[7]).gives(&[7]);
        assert_eq!(server.last_run().fed::<i32>("INPUT_STATE"), [0]);
    }
}

#[test]
fn an_expired_sequence_makes_room_for_the_backlog() {
    for strategy in ["direct { }", "oldest { max_candidate_sequences: 1 }"] {
        let server = idle(&with_id(strategy).replace("max_batch_size: 4", "max_batch_size: 1"), 50_000);
        server.seq(1).start().input(&[1]).gives(&[1]);
        // The first sequence gets no END.
        server.seq(2).start().input(&[2]).gives(&[2]);
        assert!(!server.runs().iter().any(|run| run.rows() != 1));
    }
}

/// Whether a sequence continues if its run took longer than the idle time. `None` if the machine was too slow to decide.
fn goes_on_after_a_long_run() -> Option<bool> {
    const IDLE: Duration = Duration::from_millis(200);
    let config =
        with_id("direct { }").replace("count: 1", "count: 2").replace("max_batch_size: 4", "max_batch_size: 1");
    let server = idle(&config, 200_000);
    let [a, c, d] = [1u64, 2, 3].map(|id| server.seq(id));
    // a's run is held on one instance, and a second request of it waits.
    server.watch.close(".0");
    let running = a.start().input(&[1]).send();
    server.watch.wait_for(1);
    let queued = a.step().input(&[1]).send();
    // c arrives after it, is answered on the other instance, and expires. The idle time has then passed for a too. The same happens with d.
    for other in [c, d] {
        other.start().input(&[1]).gives(&[1]);
        server.wait_for_live(1);
    }
    server.watch.open();
    running.gives(&[1]);
    queued.gives(&[2]);
    let answered = Instant::now();
    let went_on = a.step().input(&[1]).send().result().is_ok();
    if !went_on && answered.elapsed() >= IDLE {
        return None;
    }
    // From here on it expires like every sequence.
    server.wait_for_live(0);
    Some(went_on)
}

#[test]
fn a_sequence_does_not_expire_while_its_request_runs_or_waits() {
    assert_eq!(std::iter::repeat_with(goes_on_after_a_long_run).flatten().next(), Some(true));
}

#[test]
fn a_sequence_in_the_backlog_does_not_expire() {
    let config =
        with_id("direct { }").replace("count: 1", "count: 2").replace("max_batch_size: 4", "max_batch_size: 1");
    let server = idle(&config, 100_000);
    server.watch.close(".0");
    let a = server.seq(1).start().input(&[1]).send();
    server.watch.wait_for(1);
    let b = server.seq(2).start().input(&[1]).send();
    b.gives(&[1]);
    // The first slot is busy and the second belongs to 2. Both requests wait, one behind the other, for about the idle time or longer.
    let (c, d) = (server.seq(3).start().input(&[3]).send(), server.seq(4).start().input(&[4]).send());
    c.gives(&[3]);
    d.gives(&[4]);
    server.wait_for_live(1);
    server.watch.open();
    a.gives(&[1]);
}

#[test]
fn sequor_toml_can_set_the_idle_time() {
    let config = sum("TYPE_INT32", "", "");
    let server =
        crate::support::model("sum").config(&config).toml("[sequence]\nidle = \"50ms\"\n").onnx("sum_int32").serve();
    server.seq(1).start().input(&[1]).gives(&[1]);
    server.wait_for_live(0);
}

/// The idle time of a sequence whose START asks for this time, as the server reports it: the rest, plus the time since it became idle.
fn idle_asked(toml: &str, asked: Duration) -> Option<Duration> {
    let server = crate::support::model("sum").config(&sum("TYPE_INT32", "", "")).toml(toml).onnx("sum_int32").serve();
    server.seq(1).start().idle(asked).input(&[1]).gives(&[1]);
    // Its answer is sent before the table shows it as idle.
    crate::support::server::wait(
        || server.repository.live_sequences("sum").unwrap().iter().all(|seq| seq.stage == Stage::Idle),
        || "it is not idle".to_owned(),
    );
    let [seq] = &server.repository.live_sequences("sum").unwrap()[..] else { panic!("it does not live") };
    seq.left.map(|left| left + seq.quiet)
}

#[test]
fn a_start_may_ask_for_an_idle_time_up_to_the_models_longest() {
    let secs = Duration::from_secs;
    let with = "[sequence]\nidle = \"100s\"\nidle_longest = \"300s\"\n";
    assert_eq!(idle_asked(with, secs(200)), Some(secs(200)), "longer than the model's own");
    assert_eq!(idle_asked(with, secs(50)), Some(secs(50)), "shorter");
    assert_eq!(idle_asked(with, secs(1000)), Some(secs(300)), "capped");
    let never = "[sequence]\nidle = \"never\"\nidle_longest = \"300s\"\n";
    assert_eq!(idle_asked(never, secs(50)), Some(secs(50)), "where no other sequence expires");
}

#[test]
fn the_idle_time_of_a_start_is_ignored_without_idle_longest() {
    let secs = Duration::from_secs;
    assert_eq!(idle_asked("[sequence]\nidle = \"100s\"\n", secs(50)), Some(secs(100)));
    assert_eq!(idle_asked("[sequence]\nidle = \"never\"\n", secs(50)), None);
}
