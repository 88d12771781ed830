//! The admin surface over gRPC: the same operations, and who tells of them.

use std::fs;

use sequor::api::admin::generated::admin_client::AdminClient;
use sequor::api::admin::generated::component::Source;
use sequor::api::admin::generated::{
    AttachPluginRequest, Component, DetachPluginRequest, DropSequenceRequest, ImportSequenceRequest, ListModelsRequest,
    ListPluginsRequest, ListSequencesRequest, PluginLogsRequest, PluginName, SequenceName, StatusRequest,
    sequence_name,
};
use tokio_stream::StreamExt;
use tonic::{Code, Request};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use super::house::{House, Wish};

fn component(name: &str, bytes: &'static [u8]) -> Component {
    Component { name: name.to_owned(), source: Some(Source::Component(bytes.into())) }
}

fn named(name: &str) -> PluginName {
    PluginName { name: name.to_owned() }
}

#[tokio::test]
async fn every_operation_is_there_over_grpc_too() {
    let house = House::new(Wish { upload: true, ..Wish::default() });
    let mut client = AdminClient::new(house.channel().await);
    let loaded = client.load_plugin(component("fair", b"\0asm1")).await.unwrap().into_inner();
    assert_eq!((loaded.version.as_str(), loaded.attached.len()), ("0.1.0", 0));
    let how = AttachPluginRequest {
        name: "fair".to_owned(),
        model: "vad".to_owned(),
        shadow: true,
        config: r#"{"burst":4}"#.to_owned(),
        time_us: 1500,
        ..AttachPluginRequest::default()
    };
    let attached = client.attach_plugin(how.clone()).await.unwrap().into_inner();
    assert_eq!((attached.attached[0].state.as_str(), attached.attached[0].differing_rounds), ("shadow", Some(41)));
    assert_eq!(house.fake.asked("fair").unwrap().time.unwrap().as_micros(), 1500);
    let wrong = client.attach_plugin(AttachPluginRequest { config: "burst".to_owned(), ..how }).await.unwrap_err();
    assert_eq!(wrong.code(), Code::InvalidArgument);

    assert_eq!(client.replace_plugin(component("fair", b"\0asm2")).await.unwrap().into_inner().version, "0.2.0");
    assert_eq!(client.rollback_plugin(named("fair")).await.unwrap().into_inner().version, "0.1.0");
    assert_eq!(client.park_plugin(named("fair")).await.unwrap().into_inner().attached[0].state, "parked");
    assert_eq!(client.unpark_plugin(named("fair")).await.unwrap().into_inner().attached[0].state, "active");
    assert_eq!(client.show_plugin(named("fair")).await.unwrap().into_inner().name, "fair");
    assert_eq!(client.list_plugins(ListPluginsRequest {}).await.unwrap().into_inner().plugins.len(), 1);
    assert_eq!(client.unload_plugin(named("fair")).await.unwrap_err().code(), Code::Aborted);
    let detach = DetachPluginRequest { name: "fair".to_owned(), model: "vad".to_owned() };
    assert!(client.detach_plugin(detach).await.unwrap().into_inner().attached.is_empty());
    client.unload_plugin(named("fair")).await.unwrap();
    let absent = client.show_plugin(named("fair")).await.unwrap_err();
    assert_eq!((absent.code(), absent.message()), (Code::NotFound, "there is no plug-in fair"));
    assert_eq!(absent.metadata().get("sequor-reason").unwrap(), "absent");

    assert!(client.list_models(ListModelsRequest {}).await.unwrap().into_inner().models.is_empty());
    let status = client.status(StatusRequest {}).await.unwrap().into_inner().json;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["changes"][0]["what"], "plugin unload");
}

#[tokio::test]
async fn sequences_are_asked_for_by_number_or_text() {
    let house = House::new(Wish::default());
    let mut client = AdminClient::new(house.channel().await);
    let name = |id| SequenceName { model: "nope".to_owned(), id };
    let unnamed = client.show_sequence(name(None)).await.unwrap_err();
    assert_eq!((unnamed.code(), unnamed.message()), (Code::InvalidArgument, "the request names no sequence"));
    let seven = Some(sequence_name::Id::Number(7));
    assert_eq!(client.show_sequence(name(seven.clone())).await.unwrap_err().code(), Code::NotFound);
    let drop = DropSequenceRequest { sequence: Some(name(seven.clone())), reason: "stuck".to_owned() };
    assert_eq!(client.drop_sequence(drop).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(client.export_sequence(name(seven.clone())).await.unwrap_err().code(), Code::PermissionDenied);
    let import = ImportSequenceRequest { sequence: Some(name(seven)), state: Vec::new() };
    assert_eq!(client.import_sequence(import).await.unwrap_err().code(), Code::PermissionDenied);
    let list = ListSequencesRequest { model: "nope".to_owned(), sort: "size".to_owned(), ..Default::default() };
    let refused = client.list_sequences(list.clone()).await.unwrap_err();
    assert_eq!(refused.message(), "\"size\" is none of age, idle, step, queued, bytes");
    let list = ListSequencesRequest { sort: String::new(), ..list };
    assert_eq!(client.list_sequences(list).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_log_is_a_stream_that_can_be_followed() {
    let house = House::new(Wish { upload: true, ..Wish::default() });
    let mut client = AdminClient::new(house.channel().await);
    client.load_plugin(component("fair", b"\0asm1")).await.unwrap();
    let of = |follow| PluginLogsRequest { name: "fair".to_owned(), after: 0, follow };
    let whole: Vec<_> = client.plugin_logs(of(false)).await.unwrap().into_inner().collect().await;
    assert_eq!(whole.len(), 1);
    let mut followed = client.plugin_logs(of(true)).await.unwrap().into_inner();
    assert_eq!(followed.next().await.unwrap().unwrap().message, "loaded by local");
    client.park_plugin(named("fair")).await.unwrap();
    let line = followed.next().await.unwrap().unwrap();
    assert_eq!((line.serial, line.message.as_str(), line.at_ms), (2, "parked by local", 1_800_000_002_000));
    let absent = PluginLogsRequest { name: "nope".to_owned(), ..PluginLogsRequest::default() };
    assert_eq!(client.plugin_logs(absent).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn keys_and_upload_hold_for_grpc_too() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "anna:first\n").unwrap();
    let house = House::new(Wish { keys: Some(file.path()), ..Wish::default() });
    let mut client = AdminClient::new(house.channel().await);
    let refused = client.list_plugins(ListPluginsRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert_eq!(refused.metadata().get("sequor-reason").unwrap(), "unauthenticated");
    let mut request = Request::new(component("fair", b"\0asm1"));
    request.metadata_mut().insert("authorization", "Bearer first".parse().unwrap());
    assert_eq!(client.load_plugin(request).await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test]
async fn reflection_on_the_admin_listener_tells_of_its_service_and_of_no_other() {
    let house = House::new(Wish::default());
    let list = MessageRequest::ListServices(String::new());
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let mut client = ServerReflectionClient::new(house.channel().await);
    let answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap();
    let answer = answers.into_inner().next().await.unwrap().unwrap().message_response;
    let Some(MessageResponse::ListServicesResponse(list)) = answer else { panic!("{answer:?}") };
    let names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    assert!(names.contains(&"sequor.v1.Admin".to_owned()), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("inference.")), "{names:?}");
}
