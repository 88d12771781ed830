//! Changes between the check of a request and its place in a queue.

use super::*;
use crate::model::tests::{Fixture, load, request};

/// The model `sum` and its scheduler. Version 2 adds 1000 to its answers.
fn served() -> (Fixture, Arc<ModelScheduler>) {
    let fixture = Fixture::empty(u64::MAX);
    load(&fixture.repository, &fixture.model());
    let model = fixture.repository.0.catalog.entries.read()["sum"].model.clone().unwrap();
    (fixture, model)
}

fn replace(fixture: &Fixture) {
    let folder = fixture.model().join("2");
    fs_err::create_dir(&folder).unwrap();
    fs_err::write(folder.join("model.onnx"), "accumulate INT32 plus=1000").unwrap();
    load(&fixture.repository, &fixture.model());
}

/// Sends a step, and replaces the model between its check and its queue.
fn send(fixture: &Fixture, model: &Arc<ModelScheduler>, id: u64, starts: bool) -> Result<(u64, i32), Failure> {
    let (reply, receiver) = oneshot::channel();
    let (mut request, origin) = (request(id, 5, |s| s.start = starts), RequestOrigin::default());
    let accepted = accept(model, &mut request, None, origin, None)?;
    replace(fixture);
    submit_accepted(model, request, accepted, origin, ReplyTo::Surface(reply), (None, None))?;
    let answer = receiver.blocking_recv().unwrap()?;
    Ok((answer.version, i32::from_le_bytes(answer.outputs[0].tensor.data[..].try_into().unwrap())))
}

#[test]
fn a_start_runs_on_the_load_that_it_was_checked_for() {
    let (fixture, model) = served();
    // Acts as if the new load were being made already.
    let _key = model.reserve_load();
    assert_eq!(send(&fixture, &model, 7, true).unwrap(), (2, 1005), "it was checked once more");
}

#[test]
fn a_step_stays_with_the_load_of_its_sequence() {
    let (fixture, model) = served();
    assert_eq!(fixture.sum(7, 1, |s| s.start = true), 1);
    assert_eq!(send(&fixture, &model, 7, false).unwrap(), (1, 6));
}

#[test]
fn a_start_is_checked_again_after_a_reload_that_began_after_its_check() {
    let (fixture, model) = served();
    assert_eq!(send(&fixture, &model, 7, true).unwrap(), (2, 1005));
    assert_eq!(fixture.sum(7, 5, |_| {}), 1010);
}
