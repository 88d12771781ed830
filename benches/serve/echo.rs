//! The minimum of a gRPC server for this protocol: decode a request, answer with its tensors, encode. It has the same generated code and
//! the same transport settings. With a hop, one thread besides the sockets' threads makes the answer. That is the minimum for any server
//! that runs its models on separate threads.

use std::pin::Pin;
use std::sync::mpsc::{SyncSender, sync_channel};

use sequor_proto::model_infer_response::InferOutputTensor;
use sequor_proto::service::grpc_inference_service_server::{GrpcInferenceService, GrpcInferenceServiceServer};
use sequor_proto::{self as proto, ModelInferRequest, ModelInferResponse};
use tokio::sync::oneshot;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

/// A request for the thread behind the hop.
type Hop = (ModelInferRequest, oneshot::Sender<ModelInferResponse>);

pub(crate) fn serve(hop: bool) {
    let hop = hop.then(beside);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        println!("grpc {}", listener.local_addr().expect("an address"));
        let service = GrpcInferenceServiceServer::new(Echo { hop }).max_decoding_message_size(usize::MAX);
        let server = tonic::transport::Server::builder()
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(4 << 20)
            .max_concurrent_streams(1 << 16)
            .add_service(service);
        let incoming = TcpListenerStream::new(listener)
            .map(|stream| stream.inspect(|stream| stream.set_nodelay(true).expect("TCP_NODELAY")));
        server.serve_with_incoming(incoming).await.expect("a server");
    });
}

fn beside() -> SyncSender<Hop> {
    let (sender, receiver) = sync_channel::<Hop>(1 << 16);
    std::thread::spawn(move || {
        while let Ok((request, reply)) = receiver.recv() {
            let _ = reply.send(answer(request));
        }
    });
    sender
}

struct Echo {
    hop: Option<SyncSender<Hop>>,
}

type Reply<T> = Result<Response<T>, Status>;

macro_rules! unserved {
    () => {
        Err(Status::unimplemented("this only echoes"))
    };
}

fn answer(request: ModelInferRequest) -> ModelInferResponse {
    let output = |input: proto::model_infer_request::InferInputTensor| InferOutputTensor {
        name: input.name,
        datatype: input.datatype,
        shape: input.shape,
        ..InferOutputTensor::default()
    };
    ModelInferResponse {
        model_name: request.model_name,
        model_version: "1".to_owned(),
        id: request.id,
        outputs: request.inputs.into_iter().map(output).collect(),
        raw_output_contents: request.raw_input_contents,
        ..ModelInferResponse::default()
    }
}

#[tonic::async_trait]
impl GrpcInferenceService for Echo {
    async fn model_infer(&self, request: Request<ModelInferRequest>) -> Reply<ModelInferResponse> {
        let request = request.into_inner();
        let Some(hop) = &self.hop else { return Ok(Response::new(answer(request))) };
        let (reply, answered) = oneshot::channel();
        hop.send((request, reply)).map_err(|_| Status::internal("the thread has gone"))?;
        answered.await.map(Response::new).map_err(|_| Status::internal("the thread has gone"))
    }

    type ModelStreamInferStream =
        Pin<Box<dyn Stream<Item = Result<proto::ModelStreamInferResponse, Status>> + Send + 'static>>;

    /// Without a hop: the answer is made on the thread that reads the request.
    async fn model_stream_infer(
        &self,
        request: Request<Streaming<ModelInferRequest>>,
    ) -> Reply<Self::ModelStreamInferStream> {
        let reply = |request: Result<ModelInferRequest, Status>| {
            let infer_response = Some(answer(request?));
            Ok(proto::ModelStreamInferResponse { infer_response, error_message: String::new() })
        };
        Ok(Response::new(Box::pin(request.into_inner().map(reply))))
    }
    async fn server_live(&self, _: Request<proto::ServerLiveRequest>) -> Reply<proto::ServerLiveResponse> {
        unserved!()
    }
    async fn server_ready(&self, _: Request<proto::ServerReadyRequest>) -> Reply<proto::ServerReadyResponse> {
        unserved!()
    }
    async fn model_ready(&self, _: Request<proto::ModelReadyRequest>) -> Reply<proto::ModelReadyResponse> {
        unserved!()
    }
    async fn server_metadata(&self, _: Request<proto::ServerMetadataRequest>) -> Reply<proto::ServerMetadataResponse> {
        unserved!()
    }
    async fn model_metadata(&self, _: Request<proto::ModelMetadataRequest>) -> Reply<proto::ModelMetadataResponse> {
        unserved!()
    }
    async fn model_config(&self, _: Request<proto::ModelConfigRequest>) -> Reply<proto::ModelConfigResponse> {
        unserved!()
    }
    async fn model_statistics(
        &self,
        _: Request<proto::ModelStatisticsRequest>,
    ) -> Reply<proto::ModelStatisticsResponse> {
        unserved!()
    }
    async fn repository_index(
        &self,
        _: Request<proto::RepositoryIndexRequest>,
    ) -> Reply<proto::RepositoryIndexResponse> {
        unserved!()
    }
    async fn repository_model_load(
        &self,
        _: Request<proto::RepositoryModelLoadRequest>,
    ) -> Reply<proto::RepositoryModelLoadResponse> {
        unserved!()
    }
    async fn repository_model_unload(
        &self,
        _: Request<proto::RepositoryModelUnloadRequest>,
    ) -> Reply<proto::RepositoryModelUnloadResponse> {
        unserved!()
    }
    async fn system_shared_memory_status(
        &self,
        _: Request<proto::SystemSharedMemoryStatusRequest>,
    ) -> Reply<proto::SystemSharedMemoryStatusResponse> {
        unserved!()
    }
    async fn system_shared_memory_register(
        &self,
        _: Request<proto::SystemSharedMemoryRegisterRequest>,
    ) -> Reply<proto::SystemSharedMemoryRegisterResponse> {
        unserved!()
    }
    async fn system_shared_memory_unregister(
        &self,
        _: Request<proto::SystemSharedMemoryUnregisterRequest>,
    ) -> Reply<proto::SystemSharedMemoryUnregisterResponse> {
        unserved!()
    }
    async fn cuda_shared_memory_status(
        &self,
        _: Request<proto::CudaSharedMemoryStatusRequest>,
    ) -> Reply<proto::CudaSharedMemoryStatusResponse> {
        unserved!()
    }
    async fn cuda_shared_memory_register(
        &self,
        _: Request<proto::CudaSharedMemoryRegisterRequest>,
    ) -> Reply<proto::CudaSharedMemoryRegisterResponse> {
        unserved!()
    }
    async fn cuda_shared_memory_unregister(
        &self,
        _: Request<proto::CudaSharedMemoryUnregisterRequest>,
    ) -> Reply<proto::CudaSharedMemoryUnregisterResponse> {
        unserved!()
    }
    async fn trace_setting(&self, _: Request<proto::TraceSettingRequest>) -> Reply<proto::TraceSettingResponse> {
        unserved!()
    }
    async fn log_settings(&self, _: Request<proto::LogSettingsRequest>) -> Reply<proto::LogSettingsResponse> {
        unserved!()
    }
}
