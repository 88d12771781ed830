//! KServe's gRPC service. Each call decodes, passes on and encodes. Calls that are not supported are refused by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use sequor_proto::service::grpc_inference_service_server::{GrpcInferenceService, GrpcInferenceServiceServer};
use sequor_proto::system_shared_memory_status_response::RegionStatus;
use sequor_proto::{
    self as proto, ModelInferRequest, ModelInferResponse, ModelStreamInferResponse, log_settings_request,
    log_settings_response,
};
use tonic::{Request, Response, Streaming};

use super::reply_queue::Replies;
use super::settings::{self, LogSetting};
use super::shared_memory::{self, Region};
use super::surface::Kserve;
use super::{EXTENSIONS, encode, statistics};
use crate::api::frames::SHORT_MESSAGE;
use crate::api::peers::PeerKey;
use crate::api::{Code, RequestContext, Status, control};

type GrpcResult<T> = Result<Response<T>, tonic::Status>;

#[derive(Debug, Clone)]
pub struct GrpcService {
    kserve: Kserve,
}

/// The service with its message limits. Requests may be compressed. Answers are not, because most clients announce support for compressed
/// answers but do not want them. The calls with large messages are not in it.
pub fn service(kserve: &Kserve) -> GrpcInferenceServiceServer<GrpcService> {
    GrpcInferenceServiceServer::new(GrpcService { kserve: kserve.clone() })
        .max_decoding_message_size(SHORT_MESSAGE)
        .max_encoding_message_size(usize::MAX)
        .accept_compressed(tonic::codec::CompressionEncoding::Gzip)
        .accept_compressed(tonic::codec::CompressionEncoding::Deflate)
}

fn not_dispatched() -> tonic::Status {
    Status::new(Code::Internal, "internal", "the request did not pass the dispatcher").into()
}

#[tonic::async_trait]
impl GrpcInferenceService for GrpcService {
    async fn server_live(&self, _: Request<proto::ServerLiveRequest>) -> GrpcResult<proto::ServerLiveResponse> {
        Ok(Response::new(proto::ServerLiveResponse { live: true }))
    }

    async fn server_ready(&self, _: Request<proto::ServerReadyRequest>) -> GrpcResult<proto::ServerReadyResponse> {
        Ok(Response::new(proto::ServerReadyResponse { ready: self.kserve.api().ready() }))
    }

    async fn model_ready(&self, request: Request<proto::ModelReadyRequest>) -> GrpcResult<proto::ModelReadyResponse> {
        let request = request.into_inner();
        let model = self.kserve.find(&request.name, &request.version)?;
        Ok(Response::new(proto::ModelReadyResponse { ready: model.unready().is_none() }))
    }

    async fn server_metadata(
        &self,
        _: Request<proto::ServerMetadataRequest>,
    ) -> GrpcResult<proto::ServerMetadataResponse> {
        Ok(Response::new(proto::ServerMetadataResponse {
            name: "sequor".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            extensions: EXTENSIONS.map(str::to_owned).to_vec(),
        }))
    }

    async fn model_metadata(
        &self,
        request: Request<proto::ModelMetadataRequest>,
    ) -> GrpcResult<proto::ModelMetadataResponse> {
        let request = request.into_inner();
        let model = self.kserve.find(&request.name, &request.version)?;
        Ok(Response::new(encode::metadata(&model.metadata())))
    }

    async fn model_config(
        &self,
        request: Request<proto::ModelConfigRequest>,
    ) -> GrpcResult<proto::ModelConfigResponse> {
        let request = request.into_inner();
        let model = self.kserve.find(&request.name, &request.version)?;
        let config = proto::ModelConfig::clone(&model.config());
        Ok(Response::new(proto::ModelConfigResponse { config: Some(config) }))
    }

    /// The dispatcher sends this call to [`super::infer`] instead.
    async fn model_infer(&self, _: Request<ModelInferRequest>) -> GrpcResult<ModelInferResponse> {
        Err(not_dispatched())
    }

    type ModelStreamInferStream = Replies<ModelStreamInferResponse>;

    /// Like [`GrpcService::model_infer`].
    async fn model_stream_infer(
        &self,
        _: Request<Streaming<ModelInferRequest>>,
    ) -> GrpcResult<Self::ModelStreamInferStream> {
        Err(not_dispatched())
    }

    async fn model_statistics(
        &self,
        request: Request<proto::ModelStatisticsRequest>,
    ) -> GrpcResult<proto::ModelStatisticsResponse> {
        let request = request.into_inner();
        let counted = self.kserve.statistics(&request.name, &request.version)?;
        Ok(Response::new(statistics::response(counted)))
    }

    async fn repository_index(
        &self,
        request: Request<proto::RepositoryIndexRequest>,
    ) -> GrpcResult<proto::RepositoryIndexResponse> {
        let request = request.into_inner();
        control::check_repository(&request.repository_name)?;
        let models = control::index(self.kserve.api(), request.ready).await?;
        Ok(Response::new(proto::RepositoryIndexResponse { models }))
    }

    /// The router sends this call to [`super::load_call`] instead.
    async fn repository_model_load(
        &self,
        _: Request<proto::RepositoryModelLoadRequest>,
    ) -> GrpcResult<proto::RepositoryModelLoadResponse> {
        Err(not_dispatched())
    }

    async fn repository_model_unload(
        &self,
        request: Request<proto::RepositoryModelUnloadRequest>,
    ) -> GrpcResult<proto::RepositoryModelUnloadResponse> {
        let caller = Arc::clone(&RequestContext::from_extensions(request.extensions())?.caller);
        let proto::RepositoryModelUnloadRequest { repository_name, model_name: model, parameters } =
            request.into_inner();
        control::check_repository(&repository_name)?;
        control::unload_for_client(self.kserve.api(), &caller, model, given(parameters)).await?;
        Ok(Response::new(proto::RepositoryModelUnloadResponse {}))
    }

    async fn system_shared_memory_status(
        &self,
        request: Request<proto::SystemSharedMemoryStatusRequest>,
    ) -> GrpcResult<proto::SystemSharedMemoryStatusResponse> {
        let regions = self.kserve.regions().status(&request.into_inner().name)?;
        let status = |region: &Arc<Region>| {
            let Region { name, key, offset, size, .. } = &**region;
            let (name, key) = (name.clone(), key.clone());
            (name.clone(), RegionStatus { name, key, offset: *offset, byte_size: *size })
        };
        let regions = regions.iter().map(status).collect();
        Ok(Response::new(proto::SystemSharedMemoryStatusResponse { regions }))
    }

    async fn system_shared_memory_register(
        &self,
        request: Request<proto::SystemSharedMemoryRegisterRequest>,
    ) -> GrpcResult<proto::SystemSharedMemoryRegisterResponse> {
        let peer = PeerKey::of(&RequestContext::from_extensions(request.extensions())?.caller);
        let proto::SystemSharedMemoryRegisterRequest { name, key, offset, byte_size } = request.into_inner();
        self.kserve.regions().register(peer, &name, &key, (offset, byte_size))?;
        Ok(Response::new(proto::SystemSharedMemoryRegisterResponse {}))
    }

    async fn system_shared_memory_unregister(
        &self,
        request: Request<proto::SystemSharedMemoryUnregisterRequest>,
    ) -> GrpcResult<proto::SystemSharedMemoryUnregisterResponse> {
        self.kserve.regions().unregister(&request.into_inner().name);
        Ok(Response::new(proto::SystemSharedMemoryUnregisterResponse {}))
    }

    async fn cuda_shared_memory_status(
        &self,
        request: Request<proto::CudaSharedMemoryStatusRequest>,
    ) -> GrpcResult<proto::CudaSharedMemoryStatusResponse> {
        shared_memory::no_cuda_status(&request.into_inner().name)?;
        Ok(Response::new(proto::CudaSharedMemoryStatusResponse::default()))
    }

    async fn cuda_shared_memory_register(
        &self,
        request: Request<proto::CudaSharedMemoryRegisterRequest>,
    ) -> GrpcResult<proto::CudaSharedMemoryRegisterResponse> {
        Err(shared_memory::no_cuda(&request.into_inner().name).into())
    }

    /// The server has no such regions. Clients clean up without knowing that.
    async fn cuda_shared_memory_unregister(
        &self,
        _: Request<proto::CudaSharedMemoryUnregisterRequest>,
    ) -> GrpcResult<proto::CudaSharedMemoryUnregisterResponse> {
        Ok(Response::new(proto::CudaSharedMemoryUnregisterResponse {}))
    }

    async fn trace_setting(
        &self,
        request: Request<proto::TraceSettingRequest>,
    ) -> GrpcResult<proto::TraceSettingResponse> {
        let request = request.into_inner();
        if !request.model_name.is_empty() {
            self.kserve.find(&request.model_name, "")?;
        }
        let changes = request.settings.into_iter().map(|(key, value)| (key, value.value)).collect();
        let settings = self.kserve.traces().update(&request.model_name, changes)?;
        let value = |(key, value)| (key, proto::trace_setting_response::SettingValue { value });
        Ok(Response::new(proto::TraceSettingResponse { settings: settings.into_iter().map(value).collect() }))
    }

    async fn log_settings(
        &self,
        request: Request<proto::LogSettingsRequest>,
    ) -> GrpcResult<proto::LogSettingsResponse> {
        let changes = request.into_inner().settings.into_iter().map(|(key, value)| read_log(key, value));
        let settings = settings::update_log(changes.collect::<Result<_, _>>()?)?;
        let written = settings.into_iter().map(|(key, value)| (key.to_owned(), write_log(value)));
        Ok(Response::new(proto::LogSettingsResponse { settings: written.collect() }))
    }
}

pub(super) fn given(parameters: BTreeMap<String, proto::ModelRepositoryParameter>) -> control::ControlParameters {
    parameters.into_iter().map(|(key, value)| (key, value.parameter_choice.into())).collect()
}

fn read_log(key: String, value: log_settings_request::SettingValue) -> Result<(String, LogSetting), Status> {
    use log_settings_request::setting_value::ParameterChoice;
    let value = match value.parameter_choice {
        Some(ParameterChoice::BoolParam(flag)) => LogSetting::Bool(flag),
        Some(ParameterChoice::Uint32Param(number)) => LogSetting::Number(number),
        Some(ParameterChoice::StringParam(text)) => LogSetting::Text(text),
        None => return Err(Status::new(Code::InvalidArgument, "bad_input", format!("no value for '{key}'"))),
    };
    Ok((key, value))
}

fn write_log(value: LogSetting) -> log_settings_response::SettingValue {
    use log_settings_response::setting_value::ParameterChoice;
    let choice = match value {
        LogSetting::Bool(flag) => ParameterChoice::BoolParam(flag),
        LogSetting::Number(number) => ParameterChoice::Uint32Param(number),
        LogSetting::Text(text) => ParameterChoice::StringParam(text),
    };
    log_settings_response::SettingValue { parameter_choice: Some(choice) }
}
