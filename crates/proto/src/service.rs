//! Made from `proto/` by `UPDATE_GENERATED=1 cargo test -p sequor-proto`. Not to be edited.
// @generated

/// Generated client implementations.
pub mod grpc_inference_service_client {
    #![allow(
        unused_variables,
        dead_code,
        missing_docs,
        clippy::wildcard_imports,
        clippy::let_unit_value,
    )]
    use tonic::codegen::*;
    use tonic::codegen::http::Uri;
    #[derive(Debug, Clone)]
    pub struct GrpcInferenceServiceClient<T> {
        inner: tonic::client::Grpc<T>,
    }
    impl GrpcInferenceServiceClient<tonic::transport::Channel> {
        /// Attempt to create a new client by connecting to a given endpoint.
        pub async fn connect<D>(dst: D) -> Result<Self, tonic::transport::Error>
        where
            D: TryInto<tonic::transport::Endpoint>,
            D::Error: Into<StdError>,
        {
            let conn = tonic::transport::Endpoint::new(dst)?.connect().await?;
            Ok(Self::new(conn))
        }
    }
    impl<T> GrpcInferenceServiceClient<T>
    where
        T: tonic::client::GrpcService<tonic::body::Body>,
        T::Error: Into<StdError>,
        T::ResponseBody: Body<Data = Bytes> + std::marker::Send + 'static,
        <T::ResponseBody as Body>::Error: Into<StdError> + std::marker::Send,
    {
        pub fn new(inner: T) -> Self {
            let inner = tonic::client::Grpc::new(inner);
            Self { inner }
        }
        pub fn with_origin(inner: T, origin: Uri) -> Self {
            let inner = tonic::client::Grpc::with_origin(inner, origin);
            Self { inner }
        }
        pub fn with_interceptor<F>(
            inner: T,
            interceptor: F,
        ) -> GrpcInferenceServiceClient<InterceptedService<T, F>>
        where
            F: tonic::service::Interceptor,
            T::ResponseBody: Default,
            T: tonic::codegen::Service<
                http::Request<tonic::body::Body>,
                Response = http::Response<
                    <T as tonic::client::GrpcService<tonic::body::Body>>::ResponseBody,
                >,
            >,
            <T as tonic::codegen::Service<
                http::Request<tonic::body::Body>,
            >>::Error: Into<StdError> + std::marker::Send + std::marker::Sync,
        {
            GrpcInferenceServiceClient::new(InterceptedService::new(inner, interceptor))
        }
        /// Compress requests with the given encoding.
        ///
        /// This requires the server to support it otherwise it might respond with an
        /// error.
        #[must_use]
        pub fn send_compressed(mut self, encoding: CompressionEncoding) -> Self {
            self.inner = self.inner.send_compressed(encoding);
            self
        }
        /// Enable decompressing responses.
        #[must_use]
        pub fn accept_compressed(mut self, encoding: CompressionEncoding) -> Self {
            self.inner = self.inner.accept_compressed(encoding);
            self
        }
        /// Limits the maximum size of a decoded message.
        ///
        /// Default: `4MB`
        #[must_use]
        pub fn max_decoding_message_size(mut self, limit: usize) -> Self {
            self.inner = self.inner.max_decoding_message_size(limit);
            self
        }
        /// Limits the maximum size of an encoded message.
        ///
        /// Default: `usize::MAX`
        #[must_use]
        pub fn max_encoding_message_size(mut self, limit: usize) -> Self {
            self.inner = self.inner.max_encoding_message_size(limit);
            self
        }
        pub async fn server_live(
            &mut self,
            request: impl tonic::IntoRequest<crate::ServerLiveRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::ServerLiveResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/ServerLive",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("inference.GRPCInferenceService", "ServerLive"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn server_ready(
            &mut self,
            request: impl tonic::IntoRequest<crate::ServerReadyRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::ServerReadyResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/ServerReady",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("inference.GRPCInferenceService", "ServerReady"),
                );
            self.inner.unary(req, path, codec).await
        }
        /// An empty version asks for the highest one that is ready.
        pub async fn model_ready(
            &mut self,
            request: impl tonic::IntoRequest<crate::ModelReadyRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::ModelReadyResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/ModelReady",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("inference.GRPCInferenceService", "ModelReady"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn server_metadata(
            &mut self,
            request: impl tonic::IntoRequest<crate::ServerMetadataRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::ServerMetadataResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/ServerMetadata",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("inference.GRPCInferenceService", "ServerMetadata"),
                );
            self.inner.unary(req, path, codec).await
        }
        pub async fn model_metadata(
            &mut self,
            request: impl tonic::IntoRequest<crate::ModelMetadataRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::ModelMetadataResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/ModelMetadata",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("inference.GRPCInferenceService", "ModelMetadata"),
                );
            self.inner.unary(req, path, codec).await
        }
        pub async fn model_infer(
            &mut self,
            request: impl tonic::IntoRequest<crate::ModelInferRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::ModelInferResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/ModelInfer",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("inference.GRPCInferenceService", "ModelInfer"));
            self.inner.unary(req, path, codec).await
        }
        /// Answers come in the order of the requests; a failed request does not close the stream.
        pub async fn model_stream_infer(
            &mut self,
            request: impl tonic::IntoStreamingRequest<Message = crate::ModelInferRequest>,
        ) -> std::result::Result<
            tonic::Response<tonic::codec::Streaming<crate::ModelStreamInferResponse>>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/ModelStreamInfer",
            );
            let mut req = request.into_streaming_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("inference.GRPCInferenceService", "ModelStreamInfer"),
                );
            self.inner.streaming(req, path, codec).await
        }
        pub async fn model_config(
            &mut self,
            request: impl tonic::IntoRequest<crate::ModelConfigRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::ModelConfigResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/ModelConfig",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("inference.GRPCInferenceService", "ModelConfig"),
                );
            self.inner.unary(req, path, codec).await
        }
        pub async fn model_statistics(
            &mut self,
            request: impl tonic::IntoRequest<crate::ModelStatisticsRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::ModelStatisticsResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/ModelStatistics",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("inference.GRPCInferenceService", "ModelStatistics"),
                );
            self.inner.unary(req, path, codec).await
        }
        pub async fn repository_index(
            &mut self,
            request: impl tonic::IntoRequest<crate::RepositoryIndexRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::RepositoryIndexResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/RepositoryIndex",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("inference.GRPCInferenceService", "RepositoryIndex"),
                );
            self.inner.unary(req, path, codec).await
        }
        /// Loads a model, or loads it again from what its files say now.
        pub async fn repository_model_load(
            &mut self,
            request: impl tonic::IntoRequest<crate::RepositoryModelLoadRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::RepositoryModelLoadResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/RepositoryModelLoad",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new(
                        "inference.GRPCInferenceService",
                        "RepositoryModelLoad",
                    ),
                );
            self.inner.unary(req, path, codec).await
        }
        pub async fn repository_model_unload(
            &mut self,
            request: impl tonic::IntoRequest<crate::RepositoryModelUnloadRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::RepositoryModelUnloadResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/RepositoryModelUnload",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new(
                        "inference.GRPCInferenceService",
                        "RepositoryModelUnload",
                    ),
                );
            self.inner.unary(req, path, codec).await
        }
        pub async fn system_shared_memory_status(
            &mut self,
            request: impl tonic::IntoRequest<crate::SystemSharedMemoryStatusRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::SystemSharedMemoryStatusResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/SystemSharedMemoryStatus",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new(
                        "inference.GRPCInferenceService",
                        "SystemSharedMemoryStatus",
                    ),
                );
            self.inner.unary(req, path, codec).await
        }
        pub async fn system_shared_memory_register(
            &mut self,
            request: impl tonic::IntoRequest<crate::SystemSharedMemoryRegisterRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::SystemSharedMemoryRegisterResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/SystemSharedMemoryRegister",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new(
                        "inference.GRPCInferenceService",
                        "SystemSharedMemoryRegister",
                    ),
                );
            self.inner.unary(req, path, codec).await
        }
        pub async fn system_shared_memory_unregister(
            &mut self,
            request: impl tonic::IntoRequest<crate::SystemSharedMemoryUnregisterRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::SystemSharedMemoryUnregisterResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/SystemSharedMemoryUnregister",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new(
                        "inference.GRPCInferenceService",
                        "SystemSharedMemoryUnregister",
                    ),
                );
            self.inner.unary(req, path, codec).await
        }
        pub async fn cuda_shared_memory_status(
            &mut self,
            request: impl tonic::IntoRequest<crate::CudaSharedMemoryStatusRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::CudaSharedMemoryStatusResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/CudaSharedMemoryStatus",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new(
                        "inference.GRPCInferenceService",
                        "CudaSharedMemoryStatus",
                    ),
                );
            self.inner.unary(req, path, codec).await
        }
        pub async fn cuda_shared_memory_register(
            &mut self,
            request: impl tonic::IntoRequest<crate::CudaSharedMemoryRegisterRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::CudaSharedMemoryRegisterResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/CudaSharedMemoryRegister",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new(
                        "inference.GRPCInferenceService",
                        "CudaSharedMemoryRegister",
                    ),
                );
            self.inner.unary(req, path, codec).await
        }
        pub async fn cuda_shared_memory_unregister(
            &mut self,
            request: impl tonic::IntoRequest<crate::CudaSharedMemoryUnregisterRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::CudaSharedMemoryUnregisterResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/CudaSharedMemoryUnregister",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new(
                        "inference.GRPCInferenceService",
                        "CudaSharedMemoryUnregister",
                    ),
                );
            self.inner.unary(req, path, codec).await
        }
        /// Without settings it reads; with settings it changes them. It always answers what holds afterwards.
        pub async fn trace_setting(
            &mut self,
            request: impl tonic::IntoRequest<crate::TraceSettingRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::TraceSettingResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/TraceSetting",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("inference.GRPCInferenceService", "TraceSetting"),
                );
            self.inner.unary(req, path, codec).await
        }
        /// As TraceSetting.
        pub async fn log_settings(
            &mut self,
            request: impl tonic::IntoRequest<crate::LogSettingsRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::LogSettingsResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/LogSettings",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("inference.GRPCInferenceService", "LogSettings"),
                );
            self.inner.unary(req, path, codec).await
        }
    }
}
/// Generated server implementations.
pub mod grpc_inference_service_server {
    #![allow(
        unused_variables,
        dead_code,
        missing_docs,
        clippy::wildcard_imports,
        clippy::let_unit_value,
    )]
    use tonic::codegen::*;
    /// Generated trait containing gRPC methods that should be implemented for use with GrpcInferenceServiceServer.
    #[async_trait]
    pub trait GrpcInferenceService: std::marker::Send + std::marker::Sync + 'static {
        async fn server_live(
            &self,
            request: tonic::Request<crate::ServerLiveRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::ServerLiveResponse>,
            tonic::Status,
        >;
        async fn server_ready(
            &self,
            request: tonic::Request<crate::ServerReadyRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::ServerReadyResponse>,
            tonic::Status,
        >;
        /// An empty version asks for the highest one that is ready.
        async fn model_ready(
            &self,
            request: tonic::Request<crate::ModelReadyRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::ModelReadyResponse>,
            tonic::Status,
        >;
        async fn server_metadata(
            &self,
            request: tonic::Request<crate::ServerMetadataRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::ServerMetadataResponse>,
            tonic::Status,
        >;
        async fn model_metadata(
            &self,
            request: tonic::Request<crate::ModelMetadataRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::ModelMetadataResponse>,
            tonic::Status,
        >;
        async fn model_infer(
            &self,
            request: tonic::Request<crate::ModelInferRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::ModelInferResponse>,
            tonic::Status,
        >;
        /// Server streaming response type for the ModelStreamInfer method.
        type ModelStreamInferStream: tonic::codegen::tokio_stream::Stream<
                Item = std::result::Result<
                    crate::ModelStreamInferResponse,
                    tonic::Status,
                >,
            >
            + std::marker::Send
            + 'static;
        /// Answers come in the order of the requests; a failed request does not close the stream.
        async fn model_stream_infer(
            &self,
            request: tonic::Request<tonic::Streaming<crate::ModelInferRequest>>,
        ) -> std::result::Result<
            tonic::Response<Self::ModelStreamInferStream>,
            tonic::Status,
        >;
        async fn model_config(
            &self,
            request: tonic::Request<crate::ModelConfigRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::ModelConfigResponse>,
            tonic::Status,
        >;
        async fn model_statistics(
            &self,
            request: tonic::Request<crate::ModelStatisticsRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::ModelStatisticsResponse>,
            tonic::Status,
        >;
        async fn repository_index(
            &self,
            request: tonic::Request<crate::RepositoryIndexRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::RepositoryIndexResponse>,
            tonic::Status,
        >;
        /// Loads a model, or loads it again from what its files say now.
        async fn repository_model_load(
            &self,
            request: tonic::Request<crate::RepositoryModelLoadRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::RepositoryModelLoadResponse>,
            tonic::Status,
        >;
        async fn repository_model_unload(
            &self,
            request: tonic::Request<crate::RepositoryModelUnloadRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::RepositoryModelUnloadResponse>,
            tonic::Status,
        >;
        async fn system_shared_memory_status(
            &self,
            request: tonic::Request<crate::SystemSharedMemoryStatusRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::SystemSharedMemoryStatusResponse>,
            tonic::Status,
        >;
        async fn system_shared_memory_register(
            &self,
            request: tonic::Request<crate::SystemSharedMemoryRegisterRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::SystemSharedMemoryRegisterResponse>,
            tonic::Status,
        >;
        async fn system_shared_memory_unregister(
            &self,
            request: tonic::Request<crate::SystemSharedMemoryUnregisterRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::SystemSharedMemoryUnregisterResponse>,
            tonic::Status,
        >;
        async fn cuda_shared_memory_status(
            &self,
            request: tonic::Request<crate::CudaSharedMemoryStatusRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::CudaSharedMemoryStatusResponse>,
            tonic::Status,
        >;
        async fn cuda_shared_memory_register(
            &self,
            request: tonic::Request<crate::CudaSharedMemoryRegisterRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::CudaSharedMemoryRegisterResponse>,
            tonic::Status,
        >;
        async fn cuda_shared_memory_unregister(
            &self,
            request: tonic::Request<crate::CudaSharedMemoryUnregisterRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::CudaSharedMemoryUnregisterResponse>,
            tonic::Status,
        >;
        /// Without settings it reads; with settings it changes them. It always answers what holds afterwards.
        async fn trace_setting(
            &self,
            request: tonic::Request<crate::TraceSettingRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::TraceSettingResponse>,
            tonic::Status,
        >;
        /// As TraceSetting.
        async fn log_settings(
            &self,
            request: tonic::Request<crate::LogSettingsRequest>,
        ) -> std::result::Result<
            tonic::Response<crate::LogSettingsResponse>,
            tonic::Status,
        >;
    }
    #[derive(Debug)]
    pub struct GrpcInferenceServiceServer<T> {
        inner: Arc<T>,
        accept_compression_encodings: EnabledCompressionEncodings,
        send_compression_encodings: EnabledCompressionEncodings,
        max_decoding_message_size: Option<usize>,
        max_encoding_message_size: Option<usize>,
    }
    impl<T> GrpcInferenceServiceServer<T> {
        pub fn new(inner: T) -> Self {
            Self::from_arc(Arc::new(inner))
        }
        pub fn from_arc(inner: Arc<T>) -> Self {
            Self {
                inner,
                accept_compression_encodings: Default::default(),
                send_compression_encodings: Default::default(),
                max_decoding_message_size: None,
                max_encoding_message_size: None,
            }
        }
        pub fn with_interceptor<F>(
            inner: T,
            interceptor: F,
        ) -> InterceptedService<Self, F>
        where
            F: tonic::service::Interceptor,
        {
            InterceptedService::new(Self::new(inner), interceptor)
        }
        /// Enable decompressing requests with the given encoding.
        #[must_use]
        pub fn accept_compressed(mut self, encoding: CompressionEncoding) -> Self {
            self.accept_compression_encodings.enable(encoding);
            self
        }
        /// Compress responses with the given encoding, if the client supports it.
        #[must_use]
        pub fn send_compressed(mut self, encoding: CompressionEncoding) -> Self {
            self.send_compression_encodings.enable(encoding);
            self
        }
        /// Limits the maximum size of a decoded message.
        ///
        /// Default: `4MB`
        #[must_use]
        pub fn max_decoding_message_size(mut self, limit: usize) -> Self {
            self.max_decoding_message_size = Some(limit);
            self
        }
        /// Limits the maximum size of an encoded message.
        ///
        /// Default: `usize::MAX`
        #[must_use]
        pub fn max_encoding_message_size(mut self, limit: usize) -> Self {
            self.max_encoding_message_size = Some(limit);
            self
        }
    }
    impl<T, B> tonic::codegen::Service<http::Request<B>>
    for GrpcInferenceServiceServer<T>
    where
        T: GrpcInferenceService,
        B: Body + std::marker::Send + 'static,
        B::Error: Into<StdError> + std::marker::Send + 'static,
    {
        type Response = http::Response<tonic::body::Body>;
        type Error = std::convert::Infallible;
        type Future = BoxFuture<Self::Response, Self::Error>;
        fn poll_ready(
            &mut self,
            _cx: &mut Context<'_>,
        ) -> Poll<std::result::Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, req: http::Request<B>) -> Self::Future {
            match req.uri().path() {
                "/inference.GRPCInferenceService/ServerLive" => {
                    #[allow(non_camel_case_types)]
                    struct ServerLiveSvc<T: GrpcInferenceService>(pub Arc<T>);
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::UnaryService<crate::ServerLiveRequest>
                    for ServerLiveSvc<T> {
                        type Response = crate::ServerLiveResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<crate::ServerLiveRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::server_live(&inner, request)
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = ServerLiveSvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/inference.GRPCInferenceService/ServerReady" => {
                    #[allow(non_camel_case_types)]
                    struct ServerReadySvc<T: GrpcInferenceService>(pub Arc<T>);
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::UnaryService<crate::ServerReadyRequest>
                    for ServerReadySvc<T> {
                        type Response = crate::ServerReadyResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<crate::ServerReadyRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::server_ready(&inner, request)
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = ServerReadySvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/inference.GRPCInferenceService/ModelReady" => {
                    #[allow(non_camel_case_types)]
                    struct ModelReadySvc<T: GrpcInferenceService>(pub Arc<T>);
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::UnaryService<crate::ModelReadyRequest>
                    for ModelReadySvc<T> {
                        type Response = crate::ModelReadyResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<crate::ModelReadyRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::model_ready(&inner, request)
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = ModelReadySvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/inference.GRPCInferenceService/ServerMetadata" => {
                    #[allow(non_camel_case_types)]
                    struct ServerMetadataSvc<T: GrpcInferenceService>(pub Arc<T>);
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::UnaryService<crate::ServerMetadataRequest>
                    for ServerMetadataSvc<T> {
                        type Response = crate::ServerMetadataResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<crate::ServerMetadataRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::server_metadata(
                                        &inner,
                                        request,
                                    )
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = ServerMetadataSvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/inference.GRPCInferenceService/ModelMetadata" => {
                    #[allow(non_camel_case_types)]
                    struct ModelMetadataSvc<T: GrpcInferenceService>(pub Arc<T>);
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::UnaryService<crate::ModelMetadataRequest>
                    for ModelMetadataSvc<T> {
                        type Response = crate::ModelMetadataResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<crate::ModelMetadataRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::model_metadata(&inner, request)
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = ModelMetadataSvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/inference.GRPCInferenceService/ModelInfer" => {
                    #[allow(non_camel_case_types)]
                    struct ModelInferSvc<T: GrpcInferenceService>(pub Arc<T>);
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::UnaryService<crate::ModelInferRequest>
                    for ModelInferSvc<T> {
                        type Response = crate::ModelInferResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<crate::ModelInferRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::model_infer(&inner, request)
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = ModelInferSvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/inference.GRPCInferenceService/ModelStreamInfer" => {
                    #[allow(non_camel_case_types)]
                    struct ModelStreamInferSvc<T: GrpcInferenceService>(pub Arc<T>);
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::StreamingService<crate::ModelInferRequest>
                    for ModelStreamInferSvc<T> {
                        type Response = crate::ModelStreamInferResponse;
                        type ResponseStream = T::ModelStreamInferStream;
                        type Future = BoxFuture<
                            tonic::Response<Self::ResponseStream>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<
                                tonic::Streaming<crate::ModelInferRequest>,
                            >,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::model_stream_infer(
                                        &inner,
                                        request,
                                    )
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = ModelStreamInferSvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.streaming(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/inference.GRPCInferenceService/ModelConfig" => {
                    #[allow(non_camel_case_types)]
                    struct ModelConfigSvc<T: GrpcInferenceService>(pub Arc<T>);
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::UnaryService<crate::ModelConfigRequest>
                    for ModelConfigSvc<T> {
                        type Response = crate::ModelConfigResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<crate::ModelConfigRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::model_config(&inner, request)
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = ModelConfigSvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/inference.GRPCInferenceService/ModelStatistics" => {
                    #[allow(non_camel_case_types)]
                    struct ModelStatisticsSvc<T: GrpcInferenceService>(pub Arc<T>);
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::UnaryService<crate::ModelStatisticsRequest>
                    for ModelStatisticsSvc<T> {
                        type Response = crate::ModelStatisticsResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<crate::ModelStatisticsRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::model_statistics(
                                        &inner,
                                        request,
                                    )
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = ModelStatisticsSvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/inference.GRPCInferenceService/RepositoryIndex" => {
                    #[allow(non_camel_case_types)]
                    struct RepositoryIndexSvc<T: GrpcInferenceService>(pub Arc<T>);
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::UnaryService<crate::RepositoryIndexRequest>
                    for RepositoryIndexSvc<T> {
                        type Response = crate::RepositoryIndexResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<crate::RepositoryIndexRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::repository_index(
                                        &inner,
                                        request,
                                    )
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = RepositoryIndexSvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/inference.GRPCInferenceService/RepositoryModelLoad" => {
                    #[allow(non_camel_case_types)]
                    struct RepositoryModelLoadSvc<T: GrpcInferenceService>(pub Arc<T>);
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::UnaryService<crate::RepositoryModelLoadRequest>
                    for RepositoryModelLoadSvc<T> {
                        type Response = crate::RepositoryModelLoadResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<crate::RepositoryModelLoadRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::repository_model_load(
                                        &inner,
                                        request,
                                    )
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = RepositoryModelLoadSvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/inference.GRPCInferenceService/RepositoryModelUnload" => {
                    #[allow(non_camel_case_types)]
                    struct RepositoryModelUnloadSvc<T: GrpcInferenceService>(pub Arc<T>);
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::UnaryService<crate::RepositoryModelUnloadRequest>
                    for RepositoryModelUnloadSvc<T> {
                        type Response = crate::RepositoryModelUnloadResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<crate::RepositoryModelUnloadRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::repository_model_unload(
                                        &inner,
                                        request,
                                    )
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = RepositoryModelUnloadSvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/inference.GRPCInferenceService/SystemSharedMemoryStatus" => {
                    #[allow(non_camel_case_types)]
                    struct SystemSharedMemoryStatusSvc<T: GrpcInferenceService>(
                        pub Arc<T>,
                    );
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::UnaryService<crate::SystemSharedMemoryStatusRequest>
                    for SystemSharedMemoryStatusSvc<T> {
                        type Response = crate::SystemSharedMemoryStatusResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<
                                crate::SystemSharedMemoryStatusRequest,
                            >,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::system_shared_memory_status(
                                        &inner,
                                        request,
                                    )
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = SystemSharedMemoryStatusSvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/inference.GRPCInferenceService/SystemSharedMemoryRegister" => {
                    #[allow(non_camel_case_types)]
                    struct SystemSharedMemoryRegisterSvc<T: GrpcInferenceService>(
                        pub Arc<T>,
                    );
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::UnaryService<
                        crate::SystemSharedMemoryRegisterRequest,
                    > for SystemSharedMemoryRegisterSvc<T> {
                        type Response = crate::SystemSharedMemoryRegisterResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<
                                crate::SystemSharedMemoryRegisterRequest,
                            >,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::system_shared_memory_register(
                                        &inner,
                                        request,
                                    )
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = SystemSharedMemoryRegisterSvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/inference.GRPCInferenceService/SystemSharedMemoryUnregister" => {
                    #[allow(non_camel_case_types)]
                    struct SystemSharedMemoryUnregisterSvc<T: GrpcInferenceService>(
                        pub Arc<T>,
                    );
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::UnaryService<
                        crate::SystemSharedMemoryUnregisterRequest,
                    > for SystemSharedMemoryUnregisterSvc<T> {
                        type Response = crate::SystemSharedMemoryUnregisterResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<
                                crate::SystemSharedMemoryUnregisterRequest,
                            >,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::system_shared_memory_unregister(
                                        &inner,
                                        request,
                                    )
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = SystemSharedMemoryUnregisterSvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/inference.GRPCInferenceService/CudaSharedMemoryStatus" => {
                    #[allow(non_camel_case_types)]
                    struct CudaSharedMemoryStatusSvc<T: GrpcInferenceService>(
                        pub Arc<T>,
                    );
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::UnaryService<crate::CudaSharedMemoryStatusRequest>
                    for CudaSharedMemoryStatusSvc<T> {
                        type Response = crate::CudaSharedMemoryStatusResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<crate::CudaSharedMemoryStatusRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::cuda_shared_memory_status(
                                        &inner,
                                        request,
                                    )
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = CudaSharedMemoryStatusSvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/inference.GRPCInferenceService/CudaSharedMemoryRegister" => {
                    #[allow(non_camel_case_types)]
                    struct CudaSharedMemoryRegisterSvc<T: GrpcInferenceService>(
                        pub Arc<T>,
                    );
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::UnaryService<crate::CudaSharedMemoryRegisterRequest>
                    for CudaSharedMemoryRegisterSvc<T> {
                        type Response = crate::CudaSharedMemoryRegisterResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<
                                crate::CudaSharedMemoryRegisterRequest,
                            >,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::cuda_shared_memory_register(
                                        &inner,
                                        request,
                                    )
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = CudaSharedMemoryRegisterSvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/inference.GRPCInferenceService/CudaSharedMemoryUnregister" => {
                    #[allow(non_camel_case_types)]
                    struct CudaSharedMemoryUnregisterSvc<T: GrpcInferenceService>(
                        pub Arc<T>,
                    );
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::UnaryService<
                        crate::CudaSharedMemoryUnregisterRequest,
                    > for CudaSharedMemoryUnregisterSvc<T> {
                        type Response = crate::CudaSharedMemoryUnregisterResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<
                                crate::CudaSharedMemoryUnregisterRequest,
                            >,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::cuda_shared_memory_unregister(
                                        &inner,
                                        request,
                                    )
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = CudaSharedMemoryUnregisterSvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/inference.GRPCInferenceService/TraceSetting" => {
                    #[allow(non_camel_case_types)]
                    struct TraceSettingSvc<T: GrpcInferenceService>(pub Arc<T>);
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::UnaryService<crate::TraceSettingRequest>
                    for TraceSettingSvc<T> {
                        type Response = crate::TraceSettingResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<crate::TraceSettingRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::trace_setting(&inner, request)
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = TraceSettingSvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/inference.GRPCInferenceService/LogSettings" => {
                    #[allow(non_camel_case_types)]
                    struct LogSettingsSvc<T: GrpcInferenceService>(pub Arc<T>);
                    impl<
                        T: GrpcInferenceService,
                    > tonic::server::UnaryService<crate::LogSettingsRequest>
                    for LogSettingsSvc<T> {
                        type Response = crate::LogSettingsResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<crate::LogSettingsRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as GrpcInferenceService>::log_settings(&inner, request)
                                    .await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = LogSettingsSvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.unary(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                _ => {
                    Box::pin(async move {
                        let mut response = http::Response::new(
                            tonic::body::Body::default(),
                        );
                        let headers = response.headers_mut();
                        headers
                            .insert(
                                tonic::Status::GRPC_STATUS,
                                (tonic::Code::Unimplemented as i32).into(),
                            );
                        headers
                            .insert(
                                http::header::CONTENT_TYPE,
                                tonic::metadata::GRPC_CONTENT_TYPE,
                            );
                        Ok(response)
                    })
                }
            }
        }
    }
    impl<T> Clone for GrpcInferenceServiceServer<T> {
        fn clone(&self) -> Self {
            let inner = self.inner.clone();
            Self {
                inner,
                accept_compression_encodings: self.accept_compression_encodings,
                send_compression_encodings: self.send_compression_encodings,
                max_decoding_message_size: self.max_decoding_message_size,
                max_encoding_message_size: self.max_encoding_message_size,
            }
        }
    }
    /// Generated gRPC service name
    pub const SERVICE_NAME: &str = "inference.GRPCInferenceService";
    impl<T> tonic::server::NamedService for GrpcInferenceServiceServer<T> {
        const NAME: &'static str = SERVICE_NAME;
    }
}
