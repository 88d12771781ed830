//! The kinds of outcomes, with each protocol's codes for them.

/// The kind of a failure, as far as the protocols distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    Unknown,
    Internal,
    NotFound,
    InvalidArgument,
    Unavailable,
    Unimplemented,
    AlreadyExists,
    Cancelled,
    FailedPrecondition,
    DeadlineExceeded,
    /// The request conflicts with the present state. A later attempt may succeed.
    Conflict,
    /// The caller has no right to this.
    Denied,
    /// The endpoint is restricted to callers with a header. Codes and sentence are Triton's.
    Restricted,
    /// The caller is unknown.
    Unauthenticated,
    /// The request is too large.
    TooLarge,
    /// The client has used up a quota.
    Exhausted,
}

impl Code {
    pub const ALL: [Code; 16] = [
        Code::Unknown,
        Code::Internal,
        Code::NotFound,
        Code::InvalidArgument,
        Code::Unavailable,
        Code::Unimplemented,
        Code::AlreadyExists,
        Code::Cancelled,
        Code::FailedPrecondition,
        Code::DeadlineExceeded,
        Code::Conflict,
        Code::Denied,
        Code::Restricted,
        Code::Unauthenticated,
        Code::TooLarge,
        Code::Exhausted,
    ];

    /// gRPC's name, which metrics use too.
    pub const fn name(self) -> &'static str {
        match self {
            Code::Unknown => "UNKNOWN",
            Code::Internal => "INTERNAL",
            Code::NotFound => "NOT_FOUND",
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::Unavailable | Code::Restricted => "UNAVAILABLE",
            Code::Unimplemented => "UNIMPLEMENTED",
            Code::AlreadyExists => "ALREADY_EXISTS",
            Code::Cancelled => "CANCELLED",
            Code::FailedPrecondition => "FAILED_PRECONDITION",
            Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Code::Conflict => "ABORTED",
            Code::Denied => "PERMISSION_DENIED",
            Code::Unauthenticated => "UNAUTHENTICATED",
            Code::TooLarge | Code::Exhausted => "RESOURCE_EXHAUSTED",
        }
    }

    pub const fn grpc(self) -> tonic::Code {
        match self {
            Code::Unknown => tonic::Code::Unknown,
            Code::Internal => tonic::Code::Internal,
            Code::NotFound => tonic::Code::NotFound,
            Code::InvalidArgument => tonic::Code::InvalidArgument,
            Code::Unavailable | Code::Restricted => tonic::Code::Unavailable,
            Code::Unimplemented => tonic::Code::Unimplemented,
            Code::AlreadyExists => tonic::Code::AlreadyExists,
            Code::Cancelled => tonic::Code::Cancelled,
            Code::FailedPrecondition => tonic::Code::FailedPrecondition,
            Code::DeadlineExceeded => tonic::Code::DeadlineExceeded,
            Code::Conflict => tonic::Code::Aborted,
            Code::Denied => tonic::Code::PermissionDenied,
            Code::Unauthenticated => tonic::Code::Unauthenticated,
            Code::TooLarge | Code::Exhausted => tonic::Code::ResourceExhausted,
        }
    }

    /// KServe's HTTP status. If Triton has no code, gRPC's own mapping applies. The exception is a sequence in another state than the
    /// request assumes: 412, as in OpenVINO Model Server.
    pub const fn http(self) -> u16 {
        match self {
            Code::Unknown | Code::InvalidArgument | Code::AlreadyExists | Code::Cancelled => 400,
            Code::Unauthenticated => 401,
            Code::Denied | Code::Restricted => 403,
            Code::NotFound => 404,
            Code::Conflict => 409,
            Code::FailedPrecondition => 412,
            Code::TooLarge => 413,
            Code::Exhausted => 429,
            Code::Internal => 500,
            Code::Unimplemented => 501,
            Code::Unavailable => 503,
            Code::DeadlineExceeded => 504,
        }
    }

    /// The HTTP status of a code. OVMS differs from KServe in one.
    pub const fn tfs_http(self) -> u16 {
        match self {
            Code::AlreadyExists => 409,
            code => code.http(),
        }
    }
}
