//! `PredictionService` and `ModelService`, without `Predict`. Calls that are not supported are refused by name.

use prost::Message as _;
use sequor_proto::Any;
use sequor_proto::tensorflow::serving as wire;
use sequor_proto::tensorflow_service::model_service_server::{ModelService, ModelServiceServer};
use sequor_proto::tensorflow_service::prediction_service_server::{PredictionService, PredictionServiceServer};
use tonic::codec::CompressionEncoding;
use tonic::{Request, Response};

use super::predict::{model_spec, named};
use super::surface::Tfs;
use super::{models, refusal};
use crate::api::frames::SHORT_MESSAGE;
use crate::api::{Code, Status};

type ServiceReply<T> = Result<Response<T>, tonic::Status>;

/// The only field of metadata.
pub(super) const SIGNATURE_DEF: &str = "signature_def";
/// The type of that field.
pub(super) const SIGNATURE_TYPE: &str = "type.googleapis.com/tensorflow.serving.SignatureDefMap";

/// Both services.
#[derive(Debug, Clone)]
pub struct TfsService {
    tfs: Tfs,
}

/// The prediction service with its message limits.
pub fn prediction_service(tfs: &Tfs) -> PredictionServiceServer<TfsService> {
    PredictionServiceServer::new(TfsService { tfs: tfs.clone() })
        .max_decoding_message_size(SHORT_MESSAGE)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate)
}

/// The model status service with its message limits.
pub fn model_service(tfs: &Tfs) -> ModelServiceServer<TfsService> {
    ModelServiceServer::new(TfsService { tfs: tfs.clone() })
        .max_decoding_message_size(SHORT_MESSAGE)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate)
}

fn not_served<T>(call: &str) -> ServiceReply<T> {
    Err(Status::unimplemented(format!("{call} is not served; use Predict")).into())
}

#[tonic::async_trait]
impl PredictionService for TfsService {
    async fn classify(&self, _: Request<wire::ClassificationRequest>) -> ServiceReply<wire::ClassificationResponse> {
        not_served("Classify")
    }

    async fn regress(&self, _: Request<wire::RegressionRequest>) -> ServiceReply<wire::RegressionResponse> {
        not_served("Regress")
    }

    /// The dispatcher sends this call to [`super::predict`] instead.
    async fn predict(&self, _: Request<wire::PredictRequest>) -> ServiceReply<wire::PredictResponse> {
        Err(Status::new(Code::Internal, "internal", "the request did not pass the dispatcher").into())
    }

    async fn multi_inference(
        &self,
        _: Request<wire::MultiInferenceRequest>,
    ) -> ServiceReply<wire::MultiInferenceResponse> {
        not_served("MultiInference")
    }

    async fn get_model_metadata(
        &self,
        request: Request<wire::GetModelMetadataRequest>,
    ) -> ServiceReply<wire::GetModelMetadataResponse> {
        let wire::GetModelMetadataRequest { model_spec: spec, metadata_field } = request.into_inner();
        let (name, version) = named(spec.as_ref())?;
        if metadata_field != [SIGNATURE_DEF] {
            return Err(refusal::bad_input("Invalid signature name").into());
        }
        let model = self.tfs.find(&name, &version)?;
        let metadata = model.metadata();
        let signatures = models::signatures(&metadata).encode_to_vec();
        let any = Any { type_url: SIGNATURE_TYPE.to_owned(), value: signatures };
        Ok(Response::new(wire::GetModelMetadataResponse {
            model_spec: Some(model_spec(&name, model.version())),
            metadata: [(SIGNATURE_DEF.to_owned(), any)].into(),
        }))
    }
}

#[tonic::async_trait]
impl ModelService for TfsService {
    async fn get_model_status(
        &self,
        request: Request<wire::GetModelStatusRequest>,
    ) -> ServiceReply<wire::GetModelStatusResponse> {
        let (name, version) = named(request.into_inner().model_spec.as_ref())?;
        let model_version_status = models::statuses(self.tfs.api(), &name, &version).await?;
        Ok(Response::new(wire::GetModelStatusResponse { model_version_status }))
    }

    async fn handle_reload_config_request(
        &self,
        _: Request<wire::ReloadConfigRequest>,
    ) -> ServiceReply<wire::ReloadConfigResponse> {
        let text = "HandleReloadConfigRequest is not served; POST /v1/config/reload, or load models by request";
        Err(Status::unimplemented(text).into())
    }
}
