//! Tests sequences over gRPC: their life, every error of OVMS's table, and the order of the checks.

use std::sync::Arc;

use sequor::api::ServerLimits;
use sequor::backend::mock::MockBackend;
use sequor::model::Clock;
use sequor_proto::tensorflow::serving::model_version_status::State;
use sequor_proto::tensorflow::serving::{
    ClassificationRequest, GetModelMetadataRequest, GetModelStatusRequest, MultiInferenceRequest, PredictRequest,
    RegressionRequest, ReloadConfigRequest, SignatureDefMap,
};
use sequor_proto::tensorflow::{DataType, TensorProto};
use tonic::{Code, Response};

use crate::gate::Gate;
use crate::rig::{Rig, SUM, write};

use super::calls::{
    END, START, answer, channel, client, control, id, limit, models, number, request, server, shape, spec, spec_of,
    step,
};

#[tokio::test]
async fn a_sequence_lives_from_start_to_end_and_each_answer_carries_its_id() {
    let server = server();
    let mut client = client(&server).await;
    let mut predict = async |request| client.predict(request).await.map(Response::into_inner);
    assert_eq!(answer(&predict(step(7, START, 40)).await.unwrap()), (40, Some(7)));
    let next = predict(step(7, 0, 2)).await.unwrap();
    assert_eq!(answer(&next), (42, Some(7)));
    let spec = next.model_spec.unwrap();
    assert_eq!((spec.name.as_str(), spec.version_choice), ("made", spec_of("made", 1).unwrap().version_choice));
    // A step without a control continues the sequence.
    let middle = request("made", &[("INPUT", number(1)), ("sequence_id", id(7))]);
    assert_eq!(answer(&predict(middle).await.unwrap()), (43, Some(7)));
    assert_eq!(answer(&predict(step(7, END, 1)).await.unwrap()), (44, Some(7)));
    assert_eq!(predict(step(7, 0, 1)).await.unwrap_err().code(), Code::NotFound);
    // The id can be used again at once.
    assert_eq!(answer(&predict(step(7, START, 5)).await.unwrap()), (5, Some(7)));
    let largest = answer(&predict(step(u64::MAX, START, 5)).await.unwrap());
    assert_eq!(largest, (5, Some(u64::MAX)));
}

#[tokio::test]
async fn the_server_makes_ids_below_2_to_the_53_and_none_twice() {
    let server = server();
    let mut client = client(&server).await;
    let mut seen = Vec::new();
    for n in 0..40 {
        let started = answer(client.predict(step(0, START, n)).await.unwrap().get_ref());
        let made = started.1.expect("an id");
        assert!(made > 0 && made < 1 << 53 && !seen.contains(&made), "{made} after {seen:?}");
        seen.push(made);
        let ended = client.predict(step(made, END, 1)).await.unwrap();
        assert_eq!(answer(ended.get_ref()), (n + 1, Some(made)));
    }
    // A client that uses the next ids itself does not get mixed up with assigned ones.
    let next = seen.last().unwrap() + 1;
    client.predict(step(next, START, 100)).await.unwrap();
    let made = answer(client.predict(step(0, START, 1)).await.unwrap().get_ref()).1.unwrap();
    assert_ne!(made, next);
    assert_eq!(answer(client.predict(step(next, 0, 1)).await.unwrap().get_ref()).0, 101);
}

/// The errors of wrong special inputs, in the order of the checks.
#[tokio::test]
async fn every_wrong_form_of_the_special_inputs_is_refused_in_ovms_words() {
    let server = server();
    let mut client = client(&server).await;
    client.predict(step(7, START, 1)).await.unwrap();
    let of = |id: TensorProto, flag: TensorProto| {
        request("made", &[("INPUT", number(1)), ("sequence_id", id), ("sequence_control_input", flag)])
    };
    let dims = |tensor: TensorProto, dims: &[i64]| TensorProto { tensor_shape: shape(dims), ..tensor };
    let rank = |input| format!("Invalid number of shape dimensions - Required shape for {input} is: (1)");
    let size = |input| format!("Invalid input shape - Required shape for {input} is: (1)");
    let (no_shape, no_id) = (
        "Special input proto does not contain tensor shape information".to_owned(),
        "Sequence ID has not been provided in request inputs".to_owned(),
    );
    let id_type = "Could not find sequence id in expected tensor proto field uint64_val".to_owned();
    let flag_type = "Could not find sequence control input in expected tensor proto field uint32_val".to_owned();
    let value = "Unexpected value of sequence control input".to_owned();
    let content =
        TensorProto { tensor_content: vec![7; 8].into(), tensor_shape: shape(&[1]), ..TensorProto::default() };
    let rows = [
        (of(dims(id(7), &[]), control(0)), no_shape.clone()),
        (of(id(7), TensorProto { tensor_shape: None, ..control(0) }), no_shape),
        (of(dims(id(7), &[1, 1]), control(0)), rank("sequence_id")),
        (of(id(7), dims(control(0), &[1, 1])), rank("sequence_control_input")),
        (of(dims(id(7), &[2]), control(0)), size("sequence_id")),
        (of(id(7), dims(control(0), &[0])), size("sequence_control_input")),
        (of(control(7), control(0)), id_type.clone()),
        (of(content.clone(), control(0)), id_type.clone()),
        (of(TensorProto { uint64_val: vec![7, 8], ..id(7) }, control(0)), id_type),
        (of(id(7), id(0)), flag_type.clone()),
        (of(id(7), content), flag_type),
        (of(id(7), control(3)), value.clone()),
        // The control is checked before a missing id, and both before the other inputs.
        (step(0, 9, 1), value),
        (step(0, 0, 1), no_id.clone()),
        (step(0, END, 1), no_id.clone()),
        (request("made", &[("INPUT", number(1))]), no_id.clone()),
        (request("made", &[]), no_id),
    ];
    for (request, text) in rows {
        let refused = client.predict(request.clone()).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, text.as_str()), "{request:?}");
    }
    // None of these requests has changed the sequence.
    assert_eq!(answer(client.predict(step(7, 0, 1)).await.unwrap().get_ref()), (2, Some(7)));
}

/// The type of a special input is not checked. Only its value is read, from the field of the expected type.
#[tokio::test]
async fn the_type_of_a_special_input_is_not_checked() {
    let server = server();
    let mut client = client(&server).await;
    let strange = |tensor: TensorProto| TensorProto { dtype: DataType::DtFloat.into(), ..tensor };
    let inputs =
        [("INPUT", number(1)), ("sequence_id", strange(id(7))), ("sequence_control_input", strange(control(START)))];
    assert_eq!(answer(client.predict(request("made", &inputs)).await.unwrap().get_ref()), (1, Some(7)));
}

#[tokio::test]
async fn violations_of_the_sequence_rules_are_refused_in_ovms_words() {
    let server = server();
    let mut client = client(&server).await;
    let mut code = async |request: PredictRequest| {
        let refused = client.predict(request).await.map(Response::into_inner);
        refused.map(|response| answer(&response)).map_err(|status| (status.code(), status.message().to_owned()))
    };
    let missing = (Code::NotFound, "Sequence with provided ID does not exist".to_owned());
    let exists = (Code::AlreadyExists, "Sequence with provided ID already exists".to_owned());
    let most = (Code::Unavailable, "Max sequence number has been reached. Could not create new sequence.".to_owned());
    assert_eq!(code(step(7, 0, 1)).await, Err(missing.clone()));
    assert_eq!(code(step(7, END, 1)).await, Err(missing.clone()));
    assert_eq!(code(step(7, START, 1)).await, Ok((1, Some(7))));
    assert_eq!(code(step(7, START, 1)).await, Err(exists.clone()));
    for id in [8, 9] {
        code(step(id, START, 1)).await.unwrap();
    }
    assert_eq!(code(step(10, START, 1)).await, Err(most.clone()));
    // The count is checked before the id.
    assert_eq!(code(step(7, START, 1)).await, Err(most));
    assert_eq!(code(step(7, END, 1)).await, Ok((2, Some(7))));
    assert_eq!(code(step(7, END, 1)).await, Err(missing.clone()));
    // A wrong ordinary input neither starts nor ends a sequence.
    let wrong = TensorProto { tensor_shape: shape(&[1, 2]), ..number(1) };
    let mut bad = step(11, START, 1);
    bad.inputs.insert("INPUT".to_owned(), wrong.clone());
    let text = "Invalid input shape - Expected: (-1,1); Actual: (1,2); input name: INPUT".to_owned();
    assert_eq!(code(bad).await, Err((Code::InvalidArgument, text.clone())));
    assert_eq!(code(step(11, 0, 1)).await, Err(missing));
    let mut bad = step(8, END, 1);
    bad.inputs.insert("INPUT".to_owned(), wrong);
    assert_eq!(code(bad).await, Err((Code::InvalidArgument, text)));
    assert_eq!(code(step(8, 0, 1)).await, Ok((2, Some(8))));
}

#[tokio::test]
async fn a_failed_start_leaves_no_sequence_and_a_failed_end_ends_its_sequence() {
    let server = server();
    let mut client = client(&server).await;
    let mut code = async |request: PredictRequest| {
        let refused = client.predict(request).await.map(Response::into_inner);
        refused.map(|response| answer(&response).0).map_err(|status| status.code())
    };
    assert_eq!(code(step(7, START, -13)).await, Err(Code::Internal));
    assert_eq!(code(step(7, 0, 1)).await, Err(Code::NotFound));
    assert_eq!(code(step(7, START, 1)).await, Ok(1));
    assert_eq!(code(step(7, 0, -13)).await, Err(Code::Internal));
    assert_eq!(code(step(7, 0, 1)).await, Ok(2), "the state is as before");
    assert_eq!(code(step(7, END, -13)).await, Err(Code::Internal));
    assert_eq!(code(step(7, 0, 1)).await, Err(Code::NotFound));
    assert_eq!(code(step(7, START, 5)).await, Ok(5), "and it does not count against the maximum");
}

/// In OVMS, a request that waits for a busy sequence blocks all sequences of its model.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_waits_for_its_sequence_holds_up_no_other_sequence() {
    let (gate, folder) = (Arc::<Gate>::default(), tempfile::tempdir().unwrap());
    let of_runs = Arc::clone(&gate);
    // A step with two numbers takes long.
    let backend = MockBackend::with_hook(Arc::new(move |shape| {
        if shape.0.last() == Some(&2) {
            of_runs.pass();
        }
    }));
    let config = SUM.replace("count: 1", "count: 2").replace("dims: [ 1 ]", "dims: [ -1 ]");
    // Steps that take this long never run on a connection's thread, which the gate would hold.
    write(folder.path(), "made", &config, 1, "append INT32 dims=-1 cost=2000");
    let server = Rig::timed(Arc::new(backend), ServerLimits::default(), Clock::manual(), folder);
    server.repository.load_all(server.folder.path()).unwrap();
    let client = client(&server).await;
    let predict = |id, control, numbers: i64| {
        let mut request = step(id, control, 0);
        let input = TensorProto {
            tensor_shape: shape(&[1, numbers]),
            tensor_content: vec![0; 4 * usize::try_from(numbers).unwrap()].into(),
            ..number(0)
        };
        request.inputs.insert("INPUT".to_owned(), input);
        let mut client = client.clone();
        async move { client.predict(request).await.map(|_| ()).map_err(|status| status.code()) }
    };
    // Each sequence is on a separate instance.
    assert_eq!((predict(7, START, 1).await, predict(8, START, 1).await), (Ok(()), Ok(())));
    gate.close();
    let long = tokio::spawn(predict(7, 0, 2));
    let of_runs = Arc::clone(&gate);
    server.until(move |_| of_runs.held() == 1).await;
    let behind = tokio::spawn(predict(7, 0, 1));
    // While the long step runs and a request waits for it, the other sequence continues to its end, and an invalid request is refused.
    for _ in 0..20 {
        assert_eq!(predict(8, 0, 1).await, Ok(()));
    }
    assert_eq!(predict(9, 0, 1).await, Err(Code::NotFound));
    assert_eq!(predict(8, END, 1).await, Ok(()));
    assert!(gate.held() == 1 && !long.is_finished() && !behind.is_finished(), "the long step has not ended");
    gate.open();
    assert_eq!((long.await.unwrap(), behind.await.unwrap()), (Ok(()), Ok(())));
}

#[tokio::test]
async fn a_start_while_the_last_request_of_its_id_runs_is_refused() {
    let (server, gate) = Rig::gated(&[("made", SUM, "accumulate INT32 cost=2000")]);
    let client = client(&server).await;
    let predict = |id, control| {
        let mut client = client.clone();
        async move { client.predict(step(id, control, 1)).await }
    };
    predict(7, START).await.unwrap();
    gate.close();
    let end = tokio::spawn(predict(7, END));
    server.until(|_| gate.held() == 1).await;
    let refused = predict(7, START).await.unwrap_err();
    gate.open();
    assert_eq!(answer(end.await.unwrap().unwrap().get_ref()), (2, Some(7)));
    let text = "Sequence last request is being processed and it's not available anymore";
    assert_eq!((refused.code(), refused.message()), (Code::FailedPrecondition, text));
    assert_eq!(answer(predict(7, START).await.unwrap().get_ref()), (1, Some(7)));
}

#[tokio::test]
async fn the_model_sets_the_sequence_rules_and_the_protocol_sets_the_texts() {
    let server = server();
    limit(&server, "rules = \"triton\"");
    let mut client = client(&server).await;
    client.predict(step(7, START, 1)).await.unwrap();
    client.predict(step(7, 0, 1)).await.unwrap();
    let again = client.predict(step(7, START, 5)).await.unwrap();
    assert_eq!(answer(again.get_ref()), (5, Some(7)), "START on a live id starts it again");
    let refused = client.predict(step(0, START, 5)).await.unwrap_err();
    let text = "Sequence ID has not been provided in request inputs";
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, text));
}

#[tokio::test]
async fn ovms_and_kserve_clients_share_one_id_space() {
    let server = server();
    let mut client = client(&server).await;
    let mut kserve = server.client().await;
    client.predict(step(7, START, 40)).await.unwrap();
    let mut next = crate::rig::step(7, "", 2, &[]);
    next.model_name = "made".to_owned();
    assert_eq!(crate::rig::values(kserve.model_infer(next).await.unwrap().get_ref()), [42]);
    assert_eq!(answer(client.predict(step(7, END, 1)).await.unwrap().get_ref()), (43, Some(7)));
}

#[tokio::test]
async fn inputs_that_do_not_fit_are_refused_in_ovms_words() {
    let server = server();
    let mut client = client(&server).await;
    let with = |tensor: TensorProto| request("same", &[("INPUT", tensor)]);
    let ints = |count: usize| TensorProto {
        int_val: vec![1; count],
        tensor_content: bytes::Bytes::new(),
        tensor_shape: shape(&[1, 2]),
        ..number(1)
    };
    let rows = [
        (request("same", &[]), "Invalid number of inputs - Expected: 1; Actual: 0 (missing: INPUT)"),
        (
            request("same", &[("OTHER", number(1))]),
            "Missing input with specific name - Required input: INPUT (model 'same' has no input 'OTHER')",
        ),
        (
            with(TensorProto { dtype: DataType::DtFloat.into(), ..number(1) }),
            "Invalid input precision - Expected: I32; Actual: FP32; input name: INPUT",
        ),
        (
            with(TensorProto { dtype: DataType::DtComplex64.into(), ..number(1) }),
            "Invalid input precision - Expected: I32; Actual: INVALID; input name: INPUT (DT_COMPLEX64)",
        ),
        (
            with(TensorProto { dtype: DataType::DtFloat.into(), tensor_shape: shape(&[1, -1]), ..number(1) }),
            "Invalid input shape - Negative or zero dimension size is not acceptable: (1,-1); input name: INPUT",
        ),
        (
            with(TensorProto { tensor_shape: shape(&[1]), ..number(1) }),
            "Invalid number of shape dimensions - Expected: (-1,-1); Actual: (1); input name: INPUT",
        ),
        (
            with(TensorProto { tensor_shape: shape(&[1, 2]), ..number(1) }),
            "Invalid content size of tensor proto - Expected: 8 bytes; Actual: 4 bytes; input name: INPUT",
        ),
        (
            with(ints(1)),
            "Invalid number of values in tensor proto container - Expected: 2; Actual: 1; input name: INPUT",
        ),
        (with(ints(0)), "Invalid content size of tensor proto - Expected: 8 bytes; Actual: 0 bytes; input name: INPUT"),
    ];
    for (request, text) in rows {
        let refused = client.predict(request).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, text));
    }
    let fine = client.predict(with(ints(2))).await.unwrap().into_inner();
    assert_eq!(fine.outputs["OUTPUT"].tensor_content.len(), 8);
    assert!(!fine.outputs.contains_key("sequence_id"), "the model has no sequences");
    let filtered = PredictRequest { output_filter: vec!["NOPE".to_owned()], ..with(ints(2)) };
    assert_eq!(client.predict(filtered).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn models_that_are_not_there_are_refused_in_ovms_words() {
    let server = server();
    let (mut client, mut models) = (client(&server).await, models(&server).await);
    let of = |model_spec| PredictRequest { model_spec, ..request("same", &[("INPUT", number(1))]) };
    let rows = [
        (None, Code::InvalidArgument, "model_spec missing in request"),
        (spec("nope"), Code::NotFound, "Model with requested name is not found"),
        (spec_of("same", 9), Code::NotFound, "Model with requested version is not found"),
        (spec_of("same", -1), Code::NotFound, "Model with requested version is not found"),
    ];
    for (model_spec, code, text) in rows {
        let refused = client.predict(of(model_spec.clone())).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (code, text));
        let metadata_field = vec!["signature_def".to_owned()];
        let asked = GetModelMetadataRequest { model_spec: model_spec.clone(), metadata_field };
        let refused = client.get_model_metadata(asked).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (code, text));
        let refused = models.get_model_status(GetModelStatusRequest { model_spec }).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (code, text));
    }
    for version in [0, 1] {
        assert!(client.predict(of(spec_of("same", version))).await.is_ok(), "{version}");
    }
}

#[tokio::test]
async fn metadata_and_status_are_those_of_tensorflow_serving() {
    use prost::Message as _;
    let server = server();
    let (mut client, mut models) = (client(&server).await, models(&server).await);
    let asked =
        |field: &str| GetModelMetadataRequest { model_spec: spec("made"), metadata_field: vec![field.to_owned()] };
    let metadata = client.get_model_metadata(asked("signature_def")).await.unwrap().into_inner();
    let any = &metadata.metadata["signature_def"];
    assert_eq!(any.type_url, "type.googleapis.com/tensorflow.serving.SignatureDefMap");
    let signatures = SignatureDefMap::decode(&*any.value).unwrap().signature_def;
    let signature = &signatures["serving_default"];
    assert_eq!(signature.method_name, "tensorflow/serving/predict");
    let input = &signature.inputs["INPUT"];
    assert_eq!((input.dtype, &input.tensor_shape), (DataType::DtInt32.into(), &shape(&[-1, 1])));
    assert_eq!(signature.outputs.keys().collect::<Vec<_>>(), ["OUTPUT"], "states are not listed");
    let refused = client.get_model_metadata(asked("other")).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, "Invalid signature name"));

    let status = models.get_model_status(GetModelStatusRequest { model_spec: spec("made") }).await.unwrap();
    let [version] = status.get_ref().model_version_status.as_slice() else { panic!("{status:?}") };
    let text = version.status.clone().unwrap();
    assert_eq!((version.version, version.state(), text.error_code), (1, State::Available, 0));
}

#[tokio::test]
async fn calls_that_are_not_served_are_answered_as_unimplemented() {
    let server = server();
    let (mut client, mut models) = (client(&server).await, models(&server).await);
    let codes = [
        client.classify(ClassificationRequest {}).await.unwrap_err().code(),
        client.regress(RegressionRequest {}).await.unwrap_err().code(),
        client.multi_inference(MultiInferenceRequest {}).await.unwrap_err().code(),
        models.handle_reload_config_request(ReloadConfigRequest {}).await.unwrap_err().code(),
    ];
    assert_eq!(codes, [Code::Unimplemented; 4]);
    drop(channel(&server).await);
}
