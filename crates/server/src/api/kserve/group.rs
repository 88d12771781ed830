//! Finds the endpoint group of each path of the protocol, as in Triton. Unknown paths have no group.

use crate::config::server::access::ApiGroup;

/// The group of a path over HTTP.
pub(crate) fn http(path: &str) -> Option<ApiGroup> {
    if matches!(path, "/livez" | "/readyz" | "/healthz") {
        return Some(ApiGroup::Health);
    }
    let rest = path.strip_prefix("/v2")?;
    if rest.is_empty() {
        return Some(ApiGroup::Metadata);
    }
    let rest = rest.strip_prefix('/')?;
    let (area, rest) = rest.split_once('/').unwrap_or((rest, ""));
    match area {
        "health" => Some(ApiGroup::Health),
        "models" => of_model(rest),
        "repository" => Some(ApiGroup::ModelRepository),
        "trace" => Some(ApiGroup::Trace),
        "logging" => Some(ApiGroup::Logging),
        "systemsharedmemory" | "cudasharedmemory" => Some(ApiGroup::SharedMemory),
        _ => None,
    }
}

/// The group of `MODEL[/versions/VERSION][/ACTION]`.
fn of_model(path: &str) -> Option<ApiGroup> {
    let Some((_, rest)) = path.split_once('/') else {
        return Some(if path == "stats" { ApiGroup::Statistics } else { ApiGroup::Metadata });
    };
    let action = match rest.strip_prefix("versions/") {
        Some(versioned) => versioned.split_once('/').map_or("", |(_, action)| action),
        None => rest,
    };
    match action {
        "" => Some(ApiGroup::Metadata),
        "ready" => Some(ApiGroup::Health),
        "config" => Some(ApiGroup::ModelConfig),
        "infer" | "generate" | "generate_stream" | "stream" => Some(ApiGroup::Inference),
        "stats" => Some(ApiGroup::Statistics),
        "trace/setting" => Some(ApiGroup::Trace),
        _ => None,
    }
}

/// The group of a method of the service over gRPC.
pub(crate) fn grpc(method: &str) -> Option<ApiGroup> {
    match method {
        "ServerLive" | "ServerReady" | "ModelReady" => Some(ApiGroup::Health),
        "ServerMetadata" | "ModelMetadata" => Some(ApiGroup::Metadata),
        "ModelInfer" | "ModelStreamInfer" => Some(ApiGroup::Inference),
        "ModelConfig" => Some(ApiGroup::ModelConfig),
        "ModelStatistics" => Some(ApiGroup::Statistics),
        "RepositoryIndex" | "RepositoryModelLoad" | "RepositoryModelUnload" => Some(ApiGroup::ModelRepository),
        "SystemSharedMemoryStatus"
        | "SystemSharedMemoryRegister"
        | "SystemSharedMemoryUnregister"
        | "CudaSharedMemoryStatus"
        | "CudaSharedMemoryRegister"
        | "CudaSharedMemoryUnregister" => Some(ApiGroup::SharedMemory),
        "TraceSetting" => Some(ApiGroup::Trace),
        "LogSettings" => Some(ApiGroup::Logging),
        _ => None,
    }
}
