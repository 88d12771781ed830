//! The service `sequor.v1.Admin`: the same operations as over HTTP.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::generated as v1;
use super::{Admin, Caller, LARGEST_COMPONENT, refused, wire};
use crate::api::{Phase, RequestContext};
use crate::plugin::report::{Attach, LogLine, Summary};
use v1::admin_server::{Admin as Service, AdminServer};

/// How long one look of those who follow a log waits for more.
const LOOK: Duration = Duration::from_secs(5);

pub fn service(admin: &Admin) -> AdminServer<Grpc> {
    // The bytes of a component, and what stands around them.
    AdminServer::new(Grpc(admin.clone())).max_decoding_message_size(LARGEST_COMPONENT + 4096)
}

#[derive(Debug)]
pub struct Grpc(Admin);

type Said<T> = Result<Response<T>, Status>;

fn caller<T>(request: &Request<T>) -> Result<Arc<Caller>, Status> {
    Ok(Arc::clone(&RequestContext::of(request.extensions())?.caller))
}

/// Who asks, and what.
fn taken<T>(request: Request<T>) -> Result<(Arc<Caller>, T), Status> {
    let caller = caller(&request)?;
    Ok((caller, request.into_inner()))
}

fn plugin(summary: Summary) -> Response<v1::Plugin> {
    Response::new(summary.into())
}

#[tonic::async_trait]
impl Service for Grpc {
    async fn list_plugins(&self, _: Request<v1::ListPluginsRequest>) -> Said<v1::ListPluginsResponse> {
        let plugins = self.0.list().await?.into_iter().map(Into::into).collect();
        Ok(Response::new(v1::ListPluginsResponse { plugins }))
    }

    async fn show_plugin(&self, request: Request<v1::PluginName>) -> Said<v1::Plugin> {
        Ok(plugin(self.0.show(request.into_inner().name).await?))
    }

    async fn load_plugin(&self, request: Request<v1::Component>) -> Said<v1::Plugin> {
        let (caller, of) = taken(request)?;
        Ok(plugin(self.0.load(&caller, of.name, wire::source(of.source)).await?))
    }

    async fn replace_plugin(&self, request: Request<v1::Component>) -> Said<v1::Plugin> {
        let (caller, of) = taken(request)?;
        Ok(plugin(self.0.replace(&caller, of.name, wire::source(of.source)).await?))
    }

    async fn rollback_plugin(&self, request: Request<v1::PluginName>) -> Said<v1::Plugin> {
        let (caller, of) = taken(request)?;
        Ok(plugin(self.0.rollback(&caller, of.name).await?))
    }

    async fn attach_plugin(&self, request: Request<v1::AttachPluginRequest>) -> Said<v1::Plugin> {
        let (caller, of) = taken(request)?;
        let v1::AttachPluginRequest { name, model, shadow, save, config, time_us } = of;
        if !config.is_empty() && serde_json::from_str::<serde_json::Value>(&config).is_err() {
            return Err(refused::bad_input("config is not JSON").into());
        }
        let time = (time_us > 0).then(|| Duration::from_micros(time_us));
        Ok(plugin(self.0.attach(&caller, Attach { plugin: name, model, shadow, save, config, time }).await?))
    }

    async fn detach_plugin(&self, request: Request<v1::DetachPluginRequest>) -> Said<v1::Plugin> {
        let (caller, of) = taken(request)?;
        Ok(plugin(self.0.detach(&caller, of.name, of.model).await?))
    }

    async fn park_plugin(&self, request: Request<v1::PluginName>) -> Said<v1::Plugin> {
        let (caller, of) = taken(request)?;
        Ok(plugin(self.0.park(&caller, of.name).await?))
    }

    async fn unpark_plugin(&self, request: Request<v1::PluginName>) -> Said<v1::Plugin> {
        let (caller, of) = taken(request)?;
        Ok(plugin(self.0.unpark(&caller, of.name).await?))
    }

    async fn unload_plugin(&self, request: Request<v1::PluginName>) -> Said<v1::Done> {
        let (caller, of) = taken(request)?;
        self.0.unload(&caller, of.name).await?;
        Ok(Response::new(v1::Done {}))
    }

    type PluginLogsStream = Pin<Box<dyn Stream<Item = Result<v1::PluginLogLine, Status>> + Send>>;

    async fn plugin_logs(&self, request: Request<v1::PluginLogsRequest>) -> Said<Self::PluginLogsStream> {
        let of = request.into_inner();
        let first = self.0.logs(&of.name, of.after, Duration::ZERO).await?;
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(tell(self.0.clone(), of, first, sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn list_models(&self, _: Request<v1::ListModelsRequest>) -> Said<v1::ListModelsResponse> {
        let models = self.0.versions().await?.into_iter().map(Into::into).collect();
        Ok(Response::new(v1::ListModelsResponse { models }))
    }

    async fn load_model(&self, request: Request<v1::ModelName>) -> Said<v1::Done> {
        let (caller, of) = taken(request)?;
        self.0.load_model(&caller, of.name).await?;
        Ok(Response::new(v1::Done {}))
    }

    async fn unload_model(&self, request: Request<v1::ModelName>) -> Said<v1::Done> {
        let (caller, of) = taken(request)?;
        self.0.unload_model(&caller, of.name).await?;
        Ok(Response::new(v1::Done {}))
    }

    async fn list_sequences(&self, request: Request<v1::ListSequencesRequest>) -> Said<v1::ListSequencesResponse> {
        let (model, wanted) = wire::wanted(request.into_inner())?;
        Ok(Response::new(self.0.sequences(model, wanted).await?.into()))
    }

    async fn show_sequence(&self, request: Request<v1::SequenceName>) -> Said<v1::Sequence> {
        let (model, id) = wire::sequence(Some(request.into_inner()))?;
        Ok(Response::new(self.0.sequence(model, id).await?.into()))
    }

    async fn drop_sequence(&self, request: Request<v1::DropSequenceRequest>) -> Said<v1::Done> {
        let (caller, of) = taken(request)?;
        let (model, id) = wire::sequence(of.sequence)?;
        self.0.drop_sequence(&caller, model, id, Some(of.reason)).await?;
        Ok(Response::new(v1::Done {}))
    }

    async fn export_sequence(&self, request: Request<v1::SequenceName>) -> Said<v1::SequenceState> {
        let (caller, of) = taken(request)?;
        let (model, id) = wire::sequence(Some(of))?;
        let state = self.0.export(&caller, model, id).await?;
        Ok(Response::new(v1::SequenceState { state }))
    }

    async fn import_sequence(&self, request: Request<v1::ImportSequenceRequest>) -> Said<v1::Done> {
        let (caller, of) = taken(request)?;
        let (model, id) = wire::sequence(of.sequence)?;
        self.0.import(&caller, model, id, of.state).await?;
        Ok(Response::new(v1::Done {}))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Said<v1::StatusResponse> {
        let report = self.0.report().await?;
        let json = serde_json::to_string(&report).map_err(|e| Status::internal(e.to_string()))?;
        Ok(Response::new(v1::StatusResponse { json }))
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> Said<v1::Done> {
        let caller = caller(&request)?;
        self.0.drain(&caller);
        Ok(Response::new(v1::Done {}))
    }
}

/// Sends what there is, and what comes, until nobody listens any more.
async fn tell(
    admin: Admin,
    of: v1::PluginLogsRequest,
    first: Vec<LogLine>,
    sender: mpsc::Sender<Result<v1::PluginLogLine, Status>>,
) {
    let (mut lines, mut after) = (first, of.after);
    loop {
        for line in lines {
            after = line.serial;
            if sender.send(Ok(line.into())).await.is_err() {
                return;
            }
        }
        let closing = *admin.api().phases().borrow() == Phase::Closing;
        if !of.follow || closing {
            return;
        }
        let more = tokio::select! {
            more = admin.logs(&of.name, after, LOOK) => more,
            () = sender.closed() => return,
        };
        match more {
            Ok(more) => lines = more,
            Err(status) => {
                let _ = sender.send(Err(status.into())).await;
                return;
            }
        }
    }
}
