//! Made from `proto/` by `UPDATE_GENERATED=1 cargo test -p sequor-proto`. Not to be edited.
// @generated

#[derive(Clone, PartialEq, ::prost::Message)]
pub struct TensorShapeProto {
    #[prost(message, repeated, tag = "2")]
    pub dim: ::prost::alloc::vec::Vec<tensor_shape_proto::Dim>,
    #[prost(bool, tag = "3")]
    pub unknown_rank: bool,
}
/// Nested message and enum types in `TensorShapeProto`.
pub mod tensor_shape_proto {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct Dim {
        /// -1 is any size.
        #[prost(int64, tag = "1")]
        pub size: i64,
        #[prost(string, tag = "2")]
        pub name: ::prost::alloc::string::String,
    }
}
/// The elements are in tensor_content, row-major and little-endian, or in the list of the type.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct TensorProto {
    #[prost(enumeration = "DataType", tag = "1")]
    pub dtype: i32,
    #[prost(message, optional, tag = "2")]
    pub tensor_shape: ::core::option::Option<TensorShapeProto>,
    #[prost(int32, tag = "3")]
    pub version_number: i32,
    #[prost(bytes = "bytes", tag = "4")]
    pub tensor_content: ::prost::bytes::Bytes,
    #[prost(float, repeated, tag = "5")]
    pub float_val: ::prost::alloc::vec::Vec<f32>,
    #[prost(double, repeated, tag = "6")]
    pub double_val: ::prost::alloc::vec::Vec<f64>,
    /// INT8, UINT8, INT16, UINT16 and INT32.
    #[prost(int32, repeated, tag = "7")]
    pub int_val: ::prost::alloc::vec::Vec<i32>,
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub string_val: ::prost::alloc::vec::Vec<::prost::bytes::Bytes>,
    #[prost(int64, repeated, tag = "10")]
    pub int64_val: ::prost::alloc::vec::Vec<i64>,
    #[prost(bool, repeated, tag = "11")]
    pub bool_val: ::prost::alloc::vec::Vec<bool>,
    /// HALF and BFLOAT16, as the bits of each element.
    #[prost(int32, repeated, tag = "13")]
    pub half_val: ::prost::alloc::vec::Vec<i32>,
    #[prost(uint32, repeated, tag = "16")]
    pub uint32_val: ::prost::alloc::vec::Vec<u32>,
    #[prost(uint64, repeated, tag = "17")]
    pub uint64_val: ::prost::alloc::vec::Vec<u64>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct TensorInfo {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(enumeration = "DataType", tag = "2")]
    pub dtype: i32,
    #[prost(message, optional, tag = "3")]
    pub tensor_shape: ::core::option::Option<TensorShapeProto>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct SignatureDef {
    #[prost(btree_map = "string, message", tag = "1")]
    pub inputs: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        TensorInfo,
    >,
    #[prost(btree_map = "string, message", tag = "2")]
    pub outputs: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        TensorInfo,
    >,
    #[prost(string, tag = "3")]
    pub method_name: ::prost::alloc::string::String,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum DataType {
    DtInvalid = 0,
    DtFloat = 1,
    DtDouble = 2,
    DtInt32 = 3,
    DtUint8 = 4,
    DtInt16 = 5,
    DtInt8 = 6,
    DtString = 7,
    DtComplex64 = 8,
    DtInt64 = 9,
    DtBool = 10,
    DtQint8 = 11,
    DtQuint8 = 12,
    DtQint32 = 13,
    DtBfloat16 = 14,
    DtQint16 = 15,
    DtQuint16 = 16,
    DtUint16 = 17,
    DtComplex128 = 18,
    DtHalf = 19,
    DtResource = 20,
    DtVariant = 21,
    DtUint32 = 22,
    DtUint64 = 23,
}
impl DataType {
    /// String value of the enum field names used in the ProtoBuf definition.
    ///
    /// The values are not transformed in any way and thus are considered stable
    /// (if the ProtoBuf definition does not change) and safe for programmatic use.
    pub fn as_str_name(&self) -> &'static str {
        match self {
            Self::DtInvalid => "DT_INVALID",
            Self::DtFloat => "DT_FLOAT",
            Self::DtDouble => "DT_DOUBLE",
            Self::DtInt32 => "DT_INT32",
            Self::DtUint8 => "DT_UINT8",
            Self::DtInt16 => "DT_INT16",
            Self::DtInt8 => "DT_INT8",
            Self::DtString => "DT_STRING",
            Self::DtComplex64 => "DT_COMPLEX64",
            Self::DtInt64 => "DT_INT64",
            Self::DtBool => "DT_BOOL",
            Self::DtQint8 => "DT_QINT8",
            Self::DtQuint8 => "DT_QUINT8",
            Self::DtQint32 => "DT_QINT32",
            Self::DtBfloat16 => "DT_BFLOAT16",
            Self::DtQint16 => "DT_QINT16",
            Self::DtQuint16 => "DT_QUINT16",
            Self::DtUint16 => "DT_UINT16",
            Self::DtComplex128 => "DT_COMPLEX128",
            Self::DtHalf => "DT_HALF",
            Self::DtResource => "DT_RESOURCE",
            Self::DtVariant => "DT_VARIANT",
            Self::DtUint32 => "DT_UINT32",
            Self::DtUint64 => "DT_UINT64",
        }
    }
    /// Creates an enum from field names used in the ProtoBuf definition.
    pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
        match value {
            "DT_INVALID" => Some(Self::DtInvalid),
            "DT_FLOAT" => Some(Self::DtFloat),
            "DT_DOUBLE" => Some(Self::DtDouble),
            "DT_INT32" => Some(Self::DtInt32),
            "DT_UINT8" => Some(Self::DtUint8),
            "DT_INT16" => Some(Self::DtInt16),
            "DT_INT8" => Some(Self::DtInt8),
            "DT_STRING" => Some(Self::DtString),
            "DT_COMPLEX64" => Some(Self::DtComplex64),
            "DT_INT64" => Some(Self::DtInt64),
            "DT_BOOL" => Some(Self::DtBool),
            "DT_QINT8" => Some(Self::DtQint8),
            "DT_QUINT8" => Some(Self::DtQuint8),
            "DT_QINT32" => Some(Self::DtQint32),
            "DT_BFLOAT16" => Some(Self::DtBfloat16),
            "DT_QINT16" => Some(Self::DtQint16),
            "DT_QUINT16" => Some(Self::DtQuint16),
            "DT_UINT16" => Some(Self::DtUint16),
            "DT_COMPLEX128" => Some(Self::DtComplex128),
            "DT_HALF" => Some(Self::DtHalf),
            "DT_RESOURCE" => Some(Self::DtResource),
            "DT_VARIANT" => Some(Self::DtVariant),
            "DT_UINT32" => Some(Self::DtUint32),
            "DT_UINT64" => Some(Self::DtUint64),
            _ => None,
        }
    }
}

pub mod error {
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum Code {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}
impl Code {
    /// String value of the enum field names used in the ProtoBuf definition.
    ///
    /// The values are not transformed in any way and thus are considered stable
    /// (if the ProtoBuf definition does not change) and safe for programmatic use.
    pub fn as_str_name(&self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Cancelled => "CANCELLED",
            Self::Unknown => "UNKNOWN",
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::Aborted => "ABORTED",
            Self::OutOfRange => "OUT_OF_RANGE",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
            Self::DataLoss => "DATA_LOSS",
            Self::Unauthenticated => "UNAUTHENTICATED",
        }
    }
    /// Creates an enum from field names used in the ProtoBuf definition.
    pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
        match value {
            "OK" => Some(Self::Ok),
            "CANCELLED" => Some(Self::Cancelled),
            "UNKNOWN" => Some(Self::Unknown),
            "INVALID_ARGUMENT" => Some(Self::InvalidArgument),
            "DEADLINE_EXCEEDED" => Some(Self::DeadlineExceeded),
            "NOT_FOUND" => Some(Self::NotFound),
            "ALREADY_EXISTS" => Some(Self::AlreadyExists),
            "PERMISSION_DENIED" => Some(Self::PermissionDenied),
            "RESOURCE_EXHAUSTED" => Some(Self::ResourceExhausted),
            "FAILED_PRECONDITION" => Some(Self::FailedPrecondition),
            "ABORTED" => Some(Self::Aborted),
            "OUT_OF_RANGE" => Some(Self::OutOfRange),
            "UNIMPLEMENTED" => Some(Self::Unimplemented),
            "INTERNAL" => Some(Self::Internal),
            "UNAVAILABLE" => Some(Self::Unavailable),
            "DATA_LOSS" => Some(Self::DataLoss),
            "UNAUTHENTICATED" => Some(Self::Unauthenticated),
            _ => None,
        }
    }
}
}

pub mod serving {
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelSpec {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "3")]
    pub signature_name: ::prost::alloc::string::String,
    #[prost(oneof = "model_spec::VersionChoice", tags = "2, 4")]
    pub version_choice: ::core::option::Option<model_spec::VersionChoice>,
}
/// Nested message and enum types in `ModelSpec`.
pub mod model_spec {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Oneof)]
    pub enum VersionChoice {
        #[prost(message, tag = "2")]
        Version(i64),
        #[prost(string, tag = "4")]
        VersionLabel(::prost::alloc::string::String),
    }
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct PredictRequest {
    #[prost(message, optional, tag = "1")]
    pub model_spec: ::core::option::Option<ModelSpec>,
    #[prost(btree_map = "string, message", tag = "2")]
    pub inputs: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        super::TensorProto,
    >,
    /// The outputs that the client wants; none is all of them.
    #[prost(string, repeated, tag = "3")]
    pub output_filter: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct PredictResponse {
    #[prost(btree_map = "string, message", tag = "1")]
    pub outputs: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        super::TensorProto,
    >,
    #[prost(message, optional, tag = "2")]
    pub model_spec: ::core::option::Option<ModelSpec>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct SignatureDefMap {
    #[prost(btree_map = "string, message", tag = "1")]
    pub signature_def: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        super::SignatureDef,
    >,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct GetModelMetadataRequest {
    #[prost(message, optional, tag = "1")]
    pub model_spec: ::core::option::Option<ModelSpec>,
    /// "signature_def" and nothing else.
    #[prost(string, repeated, tag = "2")]
    pub metadata_field: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct GetModelMetadataResponse {
    #[prost(message, optional, tag = "1")]
    pub model_spec: ::core::option::Option<ModelSpec>,
    #[prost(btree_map = "string, message", tag = "2")]
    pub metadata: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        ::prost_types::Any,
    >,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct StatusProto {
    #[prost(enumeration = "super::error::Code", tag = "1")]
    pub error_code: i32,
    #[prost(string, tag = "2")]
    pub error_message: ::prost::alloc::string::String,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct GetModelStatusRequest {
    #[prost(message, optional, tag = "1")]
    pub model_spec: ::core::option::Option<ModelSpec>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelVersionStatus {
    #[prost(int64, tag = "1")]
    pub version: i64,
    #[prost(enumeration = "model_version_status::State", tag = "2")]
    pub state: i32,
    #[prost(message, optional, tag = "3")]
    pub status: ::core::option::Option<StatusProto>,
}
/// Nested message and enum types in `ModelVersionStatus`.
pub mod model_version_status {
    #[derive(
        Clone,
        Copy,
        Debug,
        PartialEq,
        Eq,
        Hash,
        PartialOrd,
        Ord,
        ::prost::Enumeration
    )]
    #[repr(i32)]
    pub enum State {
        Unknown = 0,
        Start = 10,
        Loading = 20,
        Available = 30,
        Unloading = 40,
        End = 50,
    }
    impl State {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::Unknown => "UNKNOWN",
                Self::Start => "START",
                Self::Loading => "LOADING",
                Self::Available => "AVAILABLE",
                Self::Unloading => "UNLOADING",
                Self::End => "END",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "UNKNOWN" => Some(Self::Unknown),
                "START" => Some(Self::Start),
                "LOADING" => Some(Self::Loading),
                "AVAILABLE" => Some(Self::Available),
                "UNLOADING" => Some(Self::Unloading),
                "END" => Some(Self::End),
                _ => None,
            }
        }
    }
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct GetModelStatusResponse {
    #[prost(message, repeated, tag = "1")]
    pub model_version_status: ::prost::alloc::vec::Vec<ModelVersionStatus>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ClassificationRequest {}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ClassificationResponse {}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RegressionRequest {}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RegressionResponse {}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct MultiInferenceRequest {}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct MultiInferenceResponse {}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ReloadConfigRequest {}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ReloadConfigResponse {
    #[prost(message, optional, tag = "1")]
    pub status: ::core::option::Option<StatusProto>,
}
}
