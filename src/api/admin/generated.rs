//! Made from `proto/` by `UPDATE_GENERATED=1 cargo test --test generated`. Not to be edited.
// @generated

#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct Done {}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct PluginName {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ListPluginsRequest {}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ListPluginsResponse {
    #[prost(message, repeated, tag = "1")]
    pub plugins: ::prost::alloc::vec::Vec<Plugin>,
}
/// A component: its bytes (the server must allow it: admin.upload), or a file of the server's plugins.dir.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct Component {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(oneof = "component::Source", tags = "2, 3")]
    pub source: ::core::option::Option<component::Source>,
}
/// Nested message and enum types in `Component`.
pub mod component {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Oneof)]
    pub enum Source {
        #[prost(bytes, tag = "2")]
        Component(::prost::bytes::Bytes),
        /// A file's name, without a folder.
        #[prost(string, tag = "3")]
        From(::prost::alloc::string::String),
    }
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Plugin {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    /// Its author's version.
    #[prost(string, tag = "2")]
    pub version: ::prost::alloc::string::String,
    /// Of the file, in hex.
    #[prost(string, tag = "3")]
    pub sha256: ::prost::alloc::string::String,
    #[prost(string, tag = "4")]
    pub world: ::prost::alloc::string::String,
    #[prost(message, repeated, tag = "5")]
    pub attached: ::prost::alloc::vec::Vec<Attachment>,
}
/// A plug-in at a model.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Attachment {
    #[prost(string, tag = "1")]
    pub model: ::prost::alloc::string::String,
    #[prost(uint64, tag = "2")]
    pub model_version: u64,
    /// active, shadow, recovering, parked
    #[prost(string, tag = "3")]
    pub state: ::prost::alloc::string::String,
    /// A table of the model's sequor.toml says so; else somebody said so at run time.
    #[prost(bool, tag = "4")]
    pub from_file: bool,
    #[prost(uint64, tag = "5")]
    pub calls: u64,
    #[prost(double, tag = "6")]
    pub calls_per_second: f64,
    #[prost(double, tag = "7")]
    pub p50_us: f64,
    #[prost(double, tag = "8")]
    pub p99_us: f64,
    /// Rounds the built-in policy decided in its place.
    #[prost(uint64, tag = "9")]
    pub fallbacks: u64,
    /// Picks that no longer stood when the answer came.
    #[prost(uint64, tag = "10")]
    pub stale: u64,
    #[prost(uint32, tag = "11")]
    pub strikes: u32,
    #[prost(message, optional, tag = "12")]
    pub last_fault: ::core::option::Option<Fault>,
    /// Of a shadow: rounds in which it would have decided otherwise, and all rounds.
    #[prost(uint64, optional, tag = "13")]
    pub differing_rounds: ::core::option::Option<u64>,
    #[prost(uint64, optional, tag = "14")]
    pub compared_rounds: ::core::option::Option<u64>,
    #[prost(uint64, tag = "15")]
    pub memory_bytes: u64,
    #[prost(uint64, tag = "16")]
    pub memory_limit_bytes: u64,
    /// CPU time that a call may take.
    #[prost(uint64, tag = "17")]
    pub time_us: u64,
    /// A JSON object, as it was attached with; empty is {}.
    #[prost(string, tag = "18")]
    pub config: ::prost::alloc::string::String,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct Fault {
    #[prost(string, tag = "1")]
    pub kind: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub what: ::prost::alloc::string::String,
    /// Milliseconds since 1970.
    #[prost(uint64, tag = "3")]
    pub at_ms: u64,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct AttachPluginRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub model: ::prost::alloc::string::String,
    /// It is asked, and what it says is only counted.
    #[prost(bool, tag = "3")]
    pub shadow: bool,
    /// Write it to the model's sequor.toml.
    #[prost(bool, tag = "4")]
    pub save: bool,
    /// A JSON object; empty is {}.
    #[prost(string, tag = "5")]
    pub config: ::prost::alloc::string::String,
    /// CPU time of a call, in place of the server's limit; 0 leaves that.
    #[prost(uint64, tag = "6")]
    pub time_us: u64,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct DetachPluginRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub model: ::prost::alloc::string::String,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct PluginLogsRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    /// Lines after this one; 0 is from the oldest that is kept.
    #[prost(uint64, tag = "2")]
    pub after: u64,
    #[prost(bool, tag = "3")]
    pub follow: bool,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct PluginLogLine {
    /// Counts all lines of this plug-in.
    #[prost(uint64, tag = "1")]
    pub serial: u64,
    /// Milliseconds since 1970.
    #[prost(uint64, tag = "2")]
    pub at_ms: u64,
    /// error, warn, info, debug
    #[prost(string, tag = "3")]
    pub level: ::prost::alloc::string::String,
    #[prost(string, tag = "4")]
    pub message: ::prost::alloc::string::String,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelName {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ListModelsRequest {}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ListModelsResponse {
    #[prost(message, repeated, tag = "1")]
    pub models: ::prost::alloc::vec::Vec<ModelVersion>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelVersion {
    #[prost(string, tag = "1")]
    pub model: ::prost::alloc::string::String,
    /// 0 if nothing is known of its versions.
    #[prost(uint64, tag = "2")]
    pub version: u64,
    /// READY, LOADING, UNLOADING, UNAVAILABLE, or nothing.
    #[prost(string, tag = "3")]
    pub state: ::prost::alloc::string::String,
    #[prost(string, tag = "4")]
    pub reason: ::prost::alloc::string::String,
    /// direct, oldest, dynamic, default; nothing if it is not ready.
    #[prost(string, tag = "5")]
    pub strategy: ::prost::alloc::string::String,
    #[prost(uint32, tag = "6")]
    pub instances: u32,
    /// Of all instances.
    #[prost(uint32, tag = "7")]
    pub slots: u32,
    #[prost(uint32, tag = "8")]
    pub slots_used: u32,
    #[prost(uint32, tag = "9")]
    pub live: u32,
    #[prost(uint32, tag = "10")]
    pub backlog: u32,
    /// Of one sequence, and of all that live.
    #[prost(uint64, tag = "11")]
    pub sequence_bytes: u64,
    #[prost(uint64, tag = "12")]
    pub state_bytes: u64,
    /// Since the server began.
    #[prost(uint64, tag = "13")]
    pub requests: u64,
    #[prost(uint64, tag = "14")]
    pub failures: u64,
    #[prost(uint64, tag = "15")]
    pub batches: u64,
    #[prost(uint64, tag = "16")]
    pub rows: u64,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SequenceName {
    #[prost(string, tag = "1")]
    pub model: ::prost::alloc::string::String,
    #[prost(oneof = "sequence_name::Id", tags = "2, 3")]
    pub id: ::core::option::Option<sequence_name::Id>,
}
/// Nested message and enum types in `SequenceName`.
pub mod sequence_name {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Oneof)]
    pub enum Id {
        #[prost(uint64, tag = "2")]
        Number(u64),
        #[prost(string, tag = "3")]
        Text(::prost::alloc::string::String),
    }
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ListSequencesRequest {
    #[prost(string, tag = "1")]
    pub model: ::prost::alloc::string::String,
    /// 0 is 100.
    #[prost(uint32, tag = "2")]
    pub limit: u32,
    /// age, idle, step, queued, bytes: the largest first; nothing is age.
    #[prost(string, tag = "3")]
    pub sort: ::prost::alloc::string::String,
    /// Those that have ended instead of those that live.
    #[prost(bool, tag = "4")]
    pub ended: bool,
    /// Of the ended: for this reason only.
    #[prost(string, tag = "5")]
    pub reason: ::prost::alloc::string::String,
    /// Of the ended: within this time; 0 is ever.
    #[prost(uint64, tag = "6")]
    pub since_ms: u64,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ListSequencesResponse {
    #[prost(message, repeated, tag = "1")]
    pub sequences: ::prost::alloc::vec::Vec<Sequence>,
    /// How many there are, those that are not told of among them.
    #[prost(uint64, tag = "2")]
    pub all: u64,
    /// Of the live ones.
    #[prost(uint64, tag = "3")]
    pub in_slots: u64,
    #[prost(uint64, tag = "4")]
    pub in_backlog: u64,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Sequence {
    /// preparing, backlog, idle, ready, running, sealing, posting, ended
    #[prost(string, tag = "4")]
    pub state: ::prost::alloc::string::String,
    /// The last committed step.
    #[prost(uint64, tag = "5")]
    pub step: u64,
    #[prost(message, optional, tag = "6")]
    pub live: ::core::option::Option<LiveSequence>,
    #[prost(message, optional, tag = "7")]
    pub ended: ::core::option::Option<EndedSequence>,
    #[prost(oneof = "sequence::Id", tags = "1, 2, 3")]
    pub id: ::core::option::Option<sequence::Id>,
}
/// Nested message and enum types in `Sequence`.
pub mod sequence {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Oneof)]
    pub enum Id {
        #[prost(uint64, tag = "1")]
        Number(u64),
        /// Only where it may be shown (admin.peek).
        #[prost(string, tag = "2")]
        Text(::prost::alloc::string::String),
        /// Instead of a text: the same for the same text until the server ends.
        #[prost(string, tag = "3")]
        TextHash(::prost::alloc::string::String),
    }
}
#[derive(Clone, Copy, PartialEq, ::prost::Message)]
pub struct LiveSequence {
    #[prost(uint64, tag = "1")]
    pub model_version: u64,
    #[prost(uint32, optional, tag = "2")]
    pub instance: ::core::option::Option<u32>,
    #[prost(uint32, optional, tag = "3")]
    pub slot: ::core::option::Option<u32>,
    #[prost(uint32, tag = "4")]
    pub queued: u32,
    #[prost(uint64, tag = "5")]
    pub queued_bytes: u64,
    #[prost(uint64, tag = "6")]
    pub state_bytes: u64,
    /// It ends with what is queued.
    #[prost(bool, tag = "7")]
    pub ending: bool,
    #[prost(double, tag = "8")]
    pub age_seconds: f64,
    /// Since its last request arrived or was answered.
    #[prost(double, tag = "9")]
    pub idle_seconds: f64,
    /// Until it expires or leaves the backlog.
    #[prost(double, optional, tag = "10")]
    pub left_seconds: ::core::option::Option<f64>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct EndedSequence {
    #[prost(string, tag = "1")]
    pub reason: ::prost::alloc::string::String,
    #[prost(double, tag = "2")]
    pub ago_seconds: f64,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct DropSequenceRequest {
    #[prost(message, optional, tag = "1")]
    pub sequence: ::core::option::Option<SequenceName>,
    /// For the audit line.
    #[prost(string, tag = "2")]
    pub reason: ::prost::alloc::string::String,
}
/// A .safetensors file.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SequenceState {
    #[prost(bytes = "vec", tag = "1")]
    pub state: ::prost::alloc::vec::Vec<u8>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ImportSequenceRequest {
    #[prost(message, optional, tag = "1")]
    pub sequence: ::core::option::Option<SequenceName>,
    #[prost(bytes = "vec", tag = "2")]
    pub state: ::prost::alloc::vec::Vec<u8>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct StatusRequest {}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct StatusResponse {
    #[prost(string, tag = "1")]
    pub json: ::prost::alloc::string::String,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct DrainRequest {}
/// Generated client implementations.
pub mod admin_client {
    #![allow(
        unused_variables,
        dead_code,
        missing_docs,
        clippy::wildcard_imports,
        clippy::let_unit_value,
    )]
    use tonic::codegen::*;
    use tonic::codegen::http::Uri;
    /// Each change is one audit line of the server's log: who, what, from which address, with which result.
    #[derive(Debug, Clone)]
    pub struct AdminClient<T> {
        inner: tonic::client::Grpc<T>,
    }
    impl AdminClient<tonic::transport::Channel> {
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
    impl<T> AdminClient<T>
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
        ) -> AdminClient<InterceptedService<T, F>>
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
            AdminClient::new(InterceptedService::new(inner, interceptor))
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
        /// Plug-ins, in their current versions, and where they decide.
        pub async fn list_plugins(
            &mut self,
            request: impl tonic::IntoRequest<super::ListPluginsRequest>,
        ) -> std::result::Result<
            tonic::Response<super::ListPluginsResponse>,
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
                "/sequor.v1.Admin/ListPlugins",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("sequor.v1.Admin", "ListPlugins"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn show_plugin(
            &mut self,
            request: impl tonic::IntoRequest<super::PluginName>,
        ) -> std::result::Result<tonic::Response<super::Plugin>, tonic::Status> {
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
                "/sequor.v1.Admin/ShowPlugin",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("sequor.v1.Admin", "ShowPlugin"));
            self.inner.unary(req, path, codec).await
        }
        /// Takes a component in, under a name. It decides nothing until it is attached.
        pub async fn load_plugin(
            &mut self,
            request: impl tonic::IntoRequest<super::Component>,
        ) -> std::result::Result<tonic::Response<super::Plugin>, tonic::Status> {
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
                "/sequor.v1.Admin/LoadPlugin",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("sequor.v1.Admin", "LoadPlugin"));
            self.inner.unary(req, path, codec).await
        }
        /// Puts a new version in the place of the one that serves, wherever it is attached. If it fails its dry run, the old one goes on.
        pub async fn replace_plugin(
            &mut self,
            request: impl tonic::IntoRequest<super::Component>,
        ) -> std::result::Result<tonic::Response<super::Plugin>, tonic::Status> {
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
                "/sequor.v1.Admin/ReplacePlugin",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("sequor.v1.Admin", "ReplacePlugin"));
            self.inner.unary(req, path, codec).await
        }
        /// Back to the version before.
        pub async fn rollback_plugin(
            &mut self,
            request: impl tonic::IntoRequest<super::PluginName>,
        ) -> std::result::Result<tonic::Response<super::Plugin>, tonic::Status> {
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
                "/sequor.v1.Admin/RollbackPlugin",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("sequor.v1.Admin", "RollbackPlugin"));
            self.inner.unary(req, path, codec).await
        }
        /// Lets a plug-in decide for a model, in place of the one that does.
        pub async fn attach_plugin(
            &mut self,
            request: impl tonic::IntoRequest<super::AttachPluginRequest>,
        ) -> std::result::Result<tonic::Response<super::Plugin>, tonic::Status> {
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
                "/sequor.v1.Admin/AttachPlugin",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("sequor.v1.Admin", "AttachPlugin"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn detach_plugin(
            &mut self,
            request: impl tonic::IntoRequest<super::DetachPluginRequest>,
        ) -> std::result::Result<tonic::Response<super::Plugin>, tonic::Status> {
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
                "/sequor.v1.Admin/DetachPlugin",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("sequor.v1.Admin", "DetachPlugin"));
            self.inner.unary(req, path, codec).await
        }
        /// The built-in policy at once, everywhere.
        pub async fn park_plugin(
            &mut self,
            request: impl tonic::IntoRequest<super::PluginName>,
        ) -> std::result::Result<tonic::Response<super::Plugin>, tonic::Status> {
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
                "/sequor.v1.Admin/ParkPlugin",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("sequor.v1.Admin", "ParkPlugin"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn unpark_plugin(
            &mut self,
            request: impl tonic::IntoRequest<super::PluginName>,
        ) -> std::result::Result<tonic::Response<super::Plugin>, tonic::Status> {
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
                "/sequor.v1.Admin/UnparkPlugin",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("sequor.v1.Admin", "UnparkPlugin"));
            self.inner.unary(req, path, codec).await
        }
        /// Forgets a plug-in; it must be attached nowhere.
        pub async fn unload_plugin(
            &mut self,
            request: impl tonic::IntoRequest<super::PluginName>,
        ) -> std::result::Result<tonic::Response<super::Done>, tonic::Status> {
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
                "/sequor.v1.Admin/UnloadPlugin",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("sequor.v1.Admin", "UnloadPlugin"));
            self.inner.unary(req, path, codec).await
        }
        /// What a plug-in and the host wrote about it, oldest first. With `follow` the stream goes on until the client ends it.
        pub async fn plugin_logs(
            &mut self,
            request: impl tonic::IntoRequest<super::PluginLogsRequest>,
        ) -> std::result::Result<
            tonic::Response<tonic::codec::Streaming<super::PluginLogLine>>,
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
                "/sequor.v1.Admin/PluginLogs",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("sequor.v1.Admin", "PluginLogs"));
            self.inner.server_streaming(req, path, codec).await
        }
        /// Every version of every model of the repositories.
        pub async fn list_models(
            &mut self,
            request: impl tonic::IntoRequest<super::ListModelsRequest>,
        ) -> std::result::Result<
            tonic::Response<super::ListModelsResponse>,
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
                "/sequor.v1.Admin/ListModels",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("sequor.v1.Admin", "ListModels"));
            self.inner.unary(req, path, codec).await
        }
        /// Only where models are loaded by request (model.control_mode = "explicit").
        pub async fn load_model(
            &mut self,
            request: impl tonic::IntoRequest<super::ModelName>,
        ) -> std::result::Result<tonic::Response<super::Done>, tonic::Status> {
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
                "/sequor.v1.Admin/LoadModel",
            );
            let mut req = request.into_request();
            req.extensions_mut().insert(GrpcMethod::new("sequor.v1.Admin", "LoadModel"));
            self.inner.unary(req, path, codec).await
        }
        pub async fn unload_model(
            &mut self,
            request: impl tonic::IntoRequest<super::ModelName>,
        ) -> std::result::Result<tonic::Response<super::Done>, tonic::Status> {
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
                "/sequor.v1.Admin/UnloadModel",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("sequor.v1.Admin", "UnloadModel"));
            self.inner.unary(req, path, codec).await
        }
        /// Sequences of a model that live, or that have ended and are remembered.
        pub async fn list_sequences(
            &mut self,
            request: impl tonic::IntoRequest<super::ListSequencesRequest>,
        ) -> std::result::Result<
            tonic::Response<super::ListSequencesResponse>,
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
                "/sequor.v1.Admin/ListSequences",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("sequor.v1.Admin", "ListSequences"));
            self.inner.unary(req, path, codec).await
        }
        /// The live sequence of this id, or what became of it.
        pub async fn show_sequence(
            &mut self,
            request: impl tonic::IntoRequest<super::SequenceName>,
        ) -> std::result::Result<tonic::Response<super::Sequence>, tonic::Status> {
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
                "/sequor.v1.Admin/ShowSequence",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("sequor.v1.Admin", "ShowSequence"));
            self.inner.unary(req, path, codec).await
        }
        /// Ends a live sequence; what it has queued is refused.
        pub async fn drop_sequence(
            &mut self,
            request: impl tonic::IntoRequest<super::DropSequenceRequest>,
        ) -> std::result::Result<tonic::Response<super::Done>, tonic::Status> {
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
                "/sequor.v1.Admin/DropSequence",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("sequor.v1.Admin", "DropSequence"));
            self.inner.unary(req, path, codec).await
        }
        /// The state of a live sequence (the server must allow it: admin.peek).
        pub async fn export_sequence(
            &mut self,
            request: impl tonic::IntoRequest<super::SequenceName>,
        ) -> std::result::Result<tonic::Response<super::SequenceState>, tonic::Status> {
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
                "/sequor.v1.Admin/ExportSequence",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("sequor.v1.Admin", "ExportSequence"));
            self.inner.unary(req, path, codec).await
        }
        /// Gives a state to a sequence that does not live there; its next step goes on from it (admin.upload).
        pub async fn import_sequence(
            &mut self,
            request: impl tonic::IntoRequest<super::ImportSequenceRequest>,
        ) -> std::result::Result<tonic::Response<super::Done>, tonic::Status> {
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
                "/sequor.v1.Admin/ImportSequence",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("sequor.v1.Admin", "ImportSequence"));
            self.inner.unary(req, path, codec).await
        }
        /// Everything the status page shows, as the JSON of /admin/status.json.
        pub async fn status(
            &mut self,
            request: impl tonic::IntoRequest<super::StatusRequest>,
        ) -> std::result::Result<tonic::Response<super::StatusResponse>, tonic::Status> {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static("/sequor.v1.Admin/Status");
            let mut req = request.into_request();
            req.extensions_mut().insert(GrpcMethod::new("sequor.v1.Admin", "Status"));
            self.inner.unary(req, path, codec).await
        }
        /// Takes the server out of service, as SIGTERM does.
        pub async fn drain(
            &mut self,
            request: impl tonic::IntoRequest<super::DrainRequest>,
        ) -> std::result::Result<tonic::Response<super::Done>, tonic::Status> {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static("/sequor.v1.Admin/Drain");
            let mut req = request.into_request();
            req.extensions_mut().insert(GrpcMethod::new("sequor.v1.Admin", "Drain"));
            self.inner.unary(req, path, codec).await
        }
    }
}
/// Generated server implementations.
pub mod admin_server {
    #![allow(
        unused_variables,
        dead_code,
        missing_docs,
        clippy::wildcard_imports,
        clippy::let_unit_value,
    )]
    use tonic::codegen::*;
    /// Generated trait containing gRPC methods that should be implemented for use with AdminServer.
    #[async_trait]
    pub trait Admin: std::marker::Send + std::marker::Sync + 'static {
        /// Plug-ins, in their current versions, and where they decide.
        async fn list_plugins(
            &self,
            request: tonic::Request<super::ListPluginsRequest>,
        ) -> std::result::Result<
            tonic::Response<super::ListPluginsResponse>,
            tonic::Status,
        >;
        async fn show_plugin(
            &self,
            request: tonic::Request<super::PluginName>,
        ) -> std::result::Result<tonic::Response<super::Plugin>, tonic::Status>;
        /// Takes a component in, under a name. It decides nothing until it is attached.
        async fn load_plugin(
            &self,
            request: tonic::Request<super::Component>,
        ) -> std::result::Result<tonic::Response<super::Plugin>, tonic::Status>;
        /// Puts a new version in the place of the one that serves, wherever it is attached. If it fails its dry run, the old one goes on.
        async fn replace_plugin(
            &self,
            request: tonic::Request<super::Component>,
        ) -> std::result::Result<tonic::Response<super::Plugin>, tonic::Status>;
        /// Back to the version before.
        async fn rollback_plugin(
            &self,
            request: tonic::Request<super::PluginName>,
        ) -> std::result::Result<tonic::Response<super::Plugin>, tonic::Status>;
        /// Lets a plug-in decide for a model, in place of the one that does.
        async fn attach_plugin(
            &self,
            request: tonic::Request<super::AttachPluginRequest>,
        ) -> std::result::Result<tonic::Response<super::Plugin>, tonic::Status>;
        async fn detach_plugin(
            &self,
            request: tonic::Request<super::DetachPluginRequest>,
        ) -> std::result::Result<tonic::Response<super::Plugin>, tonic::Status>;
        /// The built-in policy at once, everywhere.
        async fn park_plugin(
            &self,
            request: tonic::Request<super::PluginName>,
        ) -> std::result::Result<tonic::Response<super::Plugin>, tonic::Status>;
        async fn unpark_plugin(
            &self,
            request: tonic::Request<super::PluginName>,
        ) -> std::result::Result<tonic::Response<super::Plugin>, tonic::Status>;
        /// Forgets a plug-in; it must be attached nowhere.
        async fn unload_plugin(
            &self,
            request: tonic::Request<super::PluginName>,
        ) -> std::result::Result<tonic::Response<super::Done>, tonic::Status>;
        /// Server streaming response type for the PluginLogs method.
        type PluginLogsStream: tonic::codegen::tokio_stream::Stream<
                Item = std::result::Result<super::PluginLogLine, tonic::Status>,
            >
            + std::marker::Send
            + 'static;
        /// What a plug-in and the host wrote about it, oldest first. With `follow` the stream goes on until the client ends it.
        async fn plugin_logs(
            &self,
            request: tonic::Request<super::PluginLogsRequest>,
        ) -> std::result::Result<tonic::Response<Self::PluginLogsStream>, tonic::Status>;
        /// Every version of every model of the repositories.
        async fn list_models(
            &self,
            request: tonic::Request<super::ListModelsRequest>,
        ) -> std::result::Result<
            tonic::Response<super::ListModelsResponse>,
            tonic::Status,
        >;
        /// Only where models are loaded by request (model.control_mode = "explicit").
        async fn load_model(
            &self,
            request: tonic::Request<super::ModelName>,
        ) -> std::result::Result<tonic::Response<super::Done>, tonic::Status>;
        async fn unload_model(
            &self,
            request: tonic::Request<super::ModelName>,
        ) -> std::result::Result<tonic::Response<super::Done>, tonic::Status>;
        /// Sequences of a model that live, or that have ended and are remembered.
        async fn list_sequences(
            &self,
            request: tonic::Request<super::ListSequencesRequest>,
        ) -> std::result::Result<
            tonic::Response<super::ListSequencesResponse>,
            tonic::Status,
        >;
        /// The live sequence of this id, or what became of it.
        async fn show_sequence(
            &self,
            request: tonic::Request<super::SequenceName>,
        ) -> std::result::Result<tonic::Response<super::Sequence>, tonic::Status>;
        /// Ends a live sequence; what it has queued is refused.
        async fn drop_sequence(
            &self,
            request: tonic::Request<super::DropSequenceRequest>,
        ) -> std::result::Result<tonic::Response<super::Done>, tonic::Status>;
        /// The state of a live sequence (the server must allow it: admin.peek).
        async fn export_sequence(
            &self,
            request: tonic::Request<super::SequenceName>,
        ) -> std::result::Result<tonic::Response<super::SequenceState>, tonic::Status>;
        /// Gives a state to a sequence that does not live there; its next step goes on from it (admin.upload).
        async fn import_sequence(
            &self,
            request: tonic::Request<super::ImportSequenceRequest>,
        ) -> std::result::Result<tonic::Response<super::Done>, tonic::Status>;
        /// Everything the status page shows, as the JSON of /admin/status.json.
        async fn status(
            &self,
            request: tonic::Request<super::StatusRequest>,
        ) -> std::result::Result<tonic::Response<super::StatusResponse>, tonic::Status>;
        /// Takes the server out of service, as SIGTERM does.
        async fn drain(
            &self,
            request: tonic::Request<super::DrainRequest>,
        ) -> std::result::Result<tonic::Response<super::Done>, tonic::Status>;
    }
    /// Each change is one audit line of the server's log: who, what, from which address, with which result.
    #[derive(Debug)]
    pub struct AdminServer<T> {
        inner: Arc<T>,
        accept_compression_encodings: EnabledCompressionEncodings,
        send_compression_encodings: EnabledCompressionEncodings,
        max_decoding_message_size: Option<usize>,
        max_encoding_message_size: Option<usize>,
    }
    impl<T> AdminServer<T> {
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
    impl<T, B> tonic::codegen::Service<http::Request<B>> for AdminServer<T>
    where
        T: Admin,
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
                "/sequor.v1.Admin/ListPlugins" => {
                    #[allow(non_camel_case_types)]
                    struct ListPluginsSvc<T: Admin>(pub Arc<T>);
                    impl<T: Admin> tonic::server::UnaryService<super::ListPluginsRequest>
                    for ListPluginsSvc<T> {
                        type Response = super::ListPluginsResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::ListPluginsRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::list_plugins(&inner, request).await
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
                        let method = ListPluginsSvc(inner);
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
                "/sequor.v1.Admin/ShowPlugin" => {
                    #[allow(non_camel_case_types)]
                    struct ShowPluginSvc<T: Admin>(pub Arc<T>);
                    impl<T: Admin> tonic::server::UnaryService<super::PluginName>
                    for ShowPluginSvc<T> {
                        type Response = super::Plugin;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::PluginName>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::show_plugin(&inner, request).await
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
                        let method = ShowPluginSvc(inner);
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
                "/sequor.v1.Admin/LoadPlugin" => {
                    #[allow(non_camel_case_types)]
                    struct LoadPluginSvc<T: Admin>(pub Arc<T>);
                    impl<T: Admin> tonic::server::UnaryService<super::Component>
                    for LoadPluginSvc<T> {
                        type Response = super::Plugin;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::Component>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::load_plugin(&inner, request).await
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
                        let method = LoadPluginSvc(inner);
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
                "/sequor.v1.Admin/ReplacePlugin" => {
                    #[allow(non_camel_case_types)]
                    struct ReplacePluginSvc<T: Admin>(pub Arc<T>);
                    impl<T: Admin> tonic::server::UnaryService<super::Component>
                    for ReplacePluginSvc<T> {
                        type Response = super::Plugin;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::Component>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::replace_plugin(&inner, request).await
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
                        let method = ReplacePluginSvc(inner);
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
                "/sequor.v1.Admin/RollbackPlugin" => {
                    #[allow(non_camel_case_types)]
                    struct RollbackPluginSvc<T: Admin>(pub Arc<T>);
                    impl<T: Admin> tonic::server::UnaryService<super::PluginName>
                    for RollbackPluginSvc<T> {
                        type Response = super::Plugin;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::PluginName>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::rollback_plugin(&inner, request).await
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
                        let method = RollbackPluginSvc(inner);
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
                "/sequor.v1.Admin/AttachPlugin" => {
                    #[allow(non_camel_case_types)]
                    struct AttachPluginSvc<T: Admin>(pub Arc<T>);
                    impl<
                        T: Admin,
                    > tonic::server::UnaryService<super::AttachPluginRequest>
                    for AttachPluginSvc<T> {
                        type Response = super::Plugin;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::AttachPluginRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::attach_plugin(&inner, request).await
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
                        let method = AttachPluginSvc(inner);
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
                "/sequor.v1.Admin/DetachPlugin" => {
                    #[allow(non_camel_case_types)]
                    struct DetachPluginSvc<T: Admin>(pub Arc<T>);
                    impl<
                        T: Admin,
                    > tonic::server::UnaryService<super::DetachPluginRequest>
                    for DetachPluginSvc<T> {
                        type Response = super::Plugin;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::DetachPluginRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::detach_plugin(&inner, request).await
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
                        let method = DetachPluginSvc(inner);
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
                "/sequor.v1.Admin/ParkPlugin" => {
                    #[allow(non_camel_case_types)]
                    struct ParkPluginSvc<T: Admin>(pub Arc<T>);
                    impl<T: Admin> tonic::server::UnaryService<super::PluginName>
                    for ParkPluginSvc<T> {
                        type Response = super::Plugin;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::PluginName>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::park_plugin(&inner, request).await
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
                        let method = ParkPluginSvc(inner);
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
                "/sequor.v1.Admin/UnparkPlugin" => {
                    #[allow(non_camel_case_types)]
                    struct UnparkPluginSvc<T: Admin>(pub Arc<T>);
                    impl<T: Admin> tonic::server::UnaryService<super::PluginName>
                    for UnparkPluginSvc<T> {
                        type Response = super::Plugin;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::PluginName>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::unpark_plugin(&inner, request).await
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
                        let method = UnparkPluginSvc(inner);
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
                "/sequor.v1.Admin/UnloadPlugin" => {
                    #[allow(non_camel_case_types)]
                    struct UnloadPluginSvc<T: Admin>(pub Arc<T>);
                    impl<T: Admin> tonic::server::UnaryService<super::PluginName>
                    for UnloadPluginSvc<T> {
                        type Response = super::Done;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::PluginName>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::unload_plugin(&inner, request).await
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
                        let method = UnloadPluginSvc(inner);
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
                "/sequor.v1.Admin/PluginLogs" => {
                    #[allow(non_camel_case_types)]
                    struct PluginLogsSvc<T: Admin>(pub Arc<T>);
                    impl<
                        T: Admin,
                    > tonic::server::ServerStreamingService<super::PluginLogsRequest>
                    for PluginLogsSvc<T> {
                        type Response = super::PluginLogLine;
                        type ResponseStream = T::PluginLogsStream;
                        type Future = BoxFuture<
                            tonic::Response<Self::ResponseStream>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::PluginLogsRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::plugin_logs(&inner, request).await
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
                        let method = PluginLogsSvc(inner);
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
                        let res = grpc.server_streaming(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                "/sequor.v1.Admin/ListModels" => {
                    #[allow(non_camel_case_types)]
                    struct ListModelsSvc<T: Admin>(pub Arc<T>);
                    impl<T: Admin> tonic::server::UnaryService<super::ListModelsRequest>
                    for ListModelsSvc<T> {
                        type Response = super::ListModelsResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::ListModelsRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::list_models(&inner, request).await
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
                        let method = ListModelsSvc(inner);
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
                "/sequor.v1.Admin/LoadModel" => {
                    #[allow(non_camel_case_types)]
                    struct LoadModelSvc<T: Admin>(pub Arc<T>);
                    impl<T: Admin> tonic::server::UnaryService<super::ModelName>
                    for LoadModelSvc<T> {
                        type Response = super::Done;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::ModelName>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::load_model(&inner, request).await
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
                        let method = LoadModelSvc(inner);
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
                "/sequor.v1.Admin/UnloadModel" => {
                    #[allow(non_camel_case_types)]
                    struct UnloadModelSvc<T: Admin>(pub Arc<T>);
                    impl<T: Admin> tonic::server::UnaryService<super::ModelName>
                    for UnloadModelSvc<T> {
                        type Response = super::Done;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::ModelName>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::unload_model(&inner, request).await
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
                        let method = UnloadModelSvc(inner);
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
                "/sequor.v1.Admin/ListSequences" => {
                    #[allow(non_camel_case_types)]
                    struct ListSequencesSvc<T: Admin>(pub Arc<T>);
                    impl<
                        T: Admin,
                    > tonic::server::UnaryService<super::ListSequencesRequest>
                    for ListSequencesSvc<T> {
                        type Response = super::ListSequencesResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::ListSequencesRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::list_sequences(&inner, request).await
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
                        let method = ListSequencesSvc(inner);
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
                "/sequor.v1.Admin/ShowSequence" => {
                    #[allow(non_camel_case_types)]
                    struct ShowSequenceSvc<T: Admin>(pub Arc<T>);
                    impl<T: Admin> tonic::server::UnaryService<super::SequenceName>
                    for ShowSequenceSvc<T> {
                        type Response = super::Sequence;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::SequenceName>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::show_sequence(&inner, request).await
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
                        let method = ShowSequenceSvc(inner);
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
                "/sequor.v1.Admin/DropSequence" => {
                    #[allow(non_camel_case_types)]
                    struct DropSequenceSvc<T: Admin>(pub Arc<T>);
                    impl<
                        T: Admin,
                    > tonic::server::UnaryService<super::DropSequenceRequest>
                    for DropSequenceSvc<T> {
                        type Response = super::Done;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::DropSequenceRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::drop_sequence(&inner, request).await
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
                        let method = DropSequenceSvc(inner);
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
                "/sequor.v1.Admin/ExportSequence" => {
                    #[allow(non_camel_case_types)]
                    struct ExportSequenceSvc<T: Admin>(pub Arc<T>);
                    impl<T: Admin> tonic::server::UnaryService<super::SequenceName>
                    for ExportSequenceSvc<T> {
                        type Response = super::SequenceState;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::SequenceName>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::export_sequence(&inner, request).await
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
                        let method = ExportSequenceSvc(inner);
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
                "/sequor.v1.Admin/ImportSequence" => {
                    #[allow(non_camel_case_types)]
                    struct ImportSequenceSvc<T: Admin>(pub Arc<T>);
                    impl<
                        T: Admin,
                    > tonic::server::UnaryService<super::ImportSequenceRequest>
                    for ImportSequenceSvc<T> {
                        type Response = super::Done;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::ImportSequenceRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::import_sequence(&inner, request).await
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
                        let method = ImportSequenceSvc(inner);
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
                "/sequor.v1.Admin/Status" => {
                    #[allow(non_camel_case_types)]
                    struct StatusSvc<T: Admin>(pub Arc<T>);
                    impl<T: Admin> tonic::server::UnaryService<super::StatusRequest>
                    for StatusSvc<T> {
                        type Response = super::StatusResponse;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::StatusRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::status(&inner, request).await
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
                        let method = StatusSvc(inner);
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
                "/sequor.v1.Admin/Drain" => {
                    #[allow(non_camel_case_types)]
                    struct DrainSvc<T: Admin>(pub Arc<T>);
                    impl<T: Admin> tonic::server::UnaryService<super::DrainRequest>
                    for DrainSvc<T> {
                        type Response = super::Done;
                        type Future = BoxFuture<
                            tonic::Response<Self::Response>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<super::DrainRequest>,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Admin>::drain(&inner, request).await
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
                        let method = DrainSvc(inner);
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
    impl<T> Clone for AdminServer<T> {
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
    pub const SERVICE_NAME: &str = "sequor.v1.Admin";
    impl<T> tonic::server::NamedService for AdminServer<T> {
        const NAME: &'static str = SERVICE_NAME;
    }
}
