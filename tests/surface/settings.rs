//! Tests trace and log settings over both protocols.

use std::collections::BTreeMap;

use sequor_proto::tensorflow::serving::GetModelMetadataRequest;
use sequor_proto::tensorflow_service::prediction_service_client::PredictionServiceClient;
use sequor_proto::{LogSettingsRequest, TraceSettingRequest, trace_setting_request};
use serde_json::json;
use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;

use crate::rig::Rig;

#[tokio::test]
async fn trace_settings_are_kept_and_tracing_stays_off() {
    let rig = Rig::new();
    let update = async |key: &str, values: &[&str], model: &str| {
        let value = trace_setting_request::SettingValue { value: values.iter().map(|v| (*v).to_owned()).collect() };
        let settings = BTreeMap::from([(key.to_owned(), value)]);
        let request = TraceSettingRequest { settings, model_name: model.to_owned() };
        rig.client().await.trace_setting(request).await.map(|r| r.into_inner().settings)
    };
    assert_eq!(update("trace_rate", &["9"], "").await.unwrap()["trace_rate"].value, ["9"]);
    assert_eq!(update("trace_level", &["OFF"], "sum").await.unwrap()["trace_rate"].value, ["9"]);
    let refused = update("trace_level", &["TIMESTAMPS"], "").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().contains("not written here yet"), "{}", refused.message());
    assert_eq!(update("trace_rate", &["9"], "nope").await.unwrap_err().code(), Code::NotFound);

    let body = rig.get("/v2/models/sum/trace/setting").await;
    assert_eq!((&body["trace_rate"], &body["trace_level"]), (&json!("9"), &json!(["OFF"])));
    let cleared = rig.post("/v2/trace/setting", json!({ "trace_rate": null, "trace_count": 5 })).await.json();
    assert_eq!((&cleared["trace_rate"], &cleared["trace_count"]), (&json!("1000"), &json!("5")));
    assert_eq!(rig.post("/v2/trace/setting", json!({ "trace_level": ["TENSORS"] })).await.status, 501);
}

#[tokio::test]
async fn long_messages_of_settings_and_names_are_not_decoded() {
    const MANY: usize = 70_000;
    let rig = Rig::new();
    let value = |count| trace_setting_request::SettingValue { value: vec![String::new(); count] };
    let request = |count| TraceSettingRequest {
        settings: BTreeMap::from([("trace_rate".to_owned(), value(count))]),
        ..Default::default()
    };
    let client = rig.client().await;
    for mut client in [client.clone(), client.send_compressed(CompressionEncoding::Gzip)] {
        let refused = client.trace_setting(request(MANY)).await.unwrap_err();
        assert!(refused.message().contains("131072 bytes"), "{refused}");
        // A short one gets as far as its meaning.
        let refused = client.trace_setting(request(1)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    }
    let mut names = GetModelMetadataRequest { metadata_field: vec![String::new(); MANY], ..Default::default() };
    let address = format!("http://{}", rig.addresses.grpc.unwrap());
    let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
    let mut client = PredictionServiceClient::new(channel).send_compressed(CompressionEncoding::Gzip);
    let refused = client.get_model_metadata(names.clone()).await.unwrap_err();
    assert!(refused.message().contains("131072 bytes"), "{refused}");
    names.metadata_field.truncate(1);
    assert_eq!(client.get_model_metadata(names).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn log_settings_are_the_same_over_grpc_and_http() {
    let rig = Rig::new();
    let message = rig.client().await.log_settings(LogSettingsRequest::default()).await.unwrap().into_inner().settings;
    let json = rig.get("/v2/logging").await;
    let names: Vec<&String> = message.keys().collect();
    let mut listed: Vec<&String> = json.as_object().unwrap().keys().collect();
    listed.sort();
    assert_eq!(names, listed);
    assert_eq!(
        (&json["log_info"], &json["log_verbose_level"], &json["log_format"]),
        (&json!(true), &json!(0), &json!("default"))
    );
    assert_eq!(rig.post("/v2/logging", json!({ "log_info": 3 })).await.status, 400);
    assert_eq!(rig.post("/v2/logging", json!({ "log_file": "/tmp/x" })).await.status, 501);
    assert_eq!(rig.post("/v2/logging", json!({ "log_warning": true })).await.json(), json);
}
