//! Finds the protocol and the endpoint group of a path, over all surfaces of the clients' listeners.

use super::{kserve, tfs};
use crate::config::server::access::{ApiGroup, WireProtocol};

/// The protocol and the group of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    pub protocol: WireProtocol,
    /// `None` for reflection, and for paths that lead nowhere.
    pub group: Option<ApiGroup>,
}

/// Finds the endpoint of a path. The path alone decides the protocol: gRPC services are reached by their paths, with any headers.
pub fn endpoint(path: &str) -> Endpoint {
    let method = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    let group = match method {
        Some(("inference.GRPCInferenceService", method)) => kserve::group::grpc(method),
        Some(("tensorflow.serving.PredictionService", method)) => tfs::group::prediction(method),
        Some(("tensorflow.serving.ModelService", method)) => tfs::group::model(method),
        Some(("grpc.health.v1.Health", _)) => Some(ApiGroup::Health),
        Some((service, _)) if service.starts_with("grpc.reflection.") => None,
        _ => {
            let group = kserve::group::http(path).or_else(|| tfs::group::http(path));
            return Endpoint { protocol: WireProtocol::Http, group };
        }
    };
    Endpoint { protocol: WireProtocol::Grpc, group }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths that a surface's source file routes, with names in place of their parameters.
    fn routes(source: &str) -> Vec<String> {
        let quoted = source.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next());
        let named = |path: &str| {
            let part = |part: &str| match part {
                "{version}" => "1".to_owned(),
                part => part.trim_matches(['{', '}', '*']).to_owned(),
            };
            path.split('/').map(part).collect::<Vec<_>>().join("/")
        };
        quoted.map(named).collect()
    }

    fn methods(proto: &str) -> Vec<String> {
        let mut service = "";
        let mut found = Vec::new();
        for line in proto.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix("service ") {
                service = name.split_whitespace().next().unwrap();
            }
            if let Some(name) = line.strip_prefix("rpc ") {
                found.push(format!("{service}/{}", name.split('(').next().unwrap()));
            }
        }
        found
    }

    #[test]
    fn every_path_of_http_belongs_to_a_group() {
        let sources = [
            include_str!("kserve/http.rs"),
            include_str!("kserve/manage.rs"),
            include_str!("kserve/generate.rs"),
            include_str!("tfs/http.rs"),
        ];
        let paths: Vec<String> = sources.into_iter().flat_map(routes).filter(|path| path != "/v1/path").collect();
        assert!(paths.len() > 40, "{paths:?}");
        for path in &paths {
            let Endpoint { protocol, group } = endpoint(path);
            assert!(protocol == WireProtocol::Http && group.is_some(), "{path}");
        }
    }

    #[test]
    fn every_call_of_grpc_belongs_to_a_group() {
        let kserve = methods(include_str!("../../../../proto/grpc_service.proto"));
        let tfs = methods(include_str!("../../../../proto/tensorflow/serving.proto"));
        assert!(kserve.len() == 20 && tfs.len() == 7, "{kserve:?} {tfs:?}");
        let paths = kserve.iter().map(|path| format!("/inference.{path}"));
        for path in paths.chain(tfs.iter().map(|path| format!("/tensorflow.serving.{path}"))) {
            let Endpoint { protocol, group } = endpoint(&path);
            assert!(protocol == WireProtocol::Grpc && group.is_some(), "{path}");
        }
    }

    #[test]
    fn the_groups_are_those_of_triton() {
        let group = |path: &str| endpoint(path).group.map_or("", ApiGroup::name);
        let rows = [
            ("/v2", "metadata"),
            ("/v2/models/m", "metadata"),
            ("/v2/models/m/versions/3", "metadata"),
            ("/v2/models/stats", "statistics"),
            ("/v2/models/stats/infer", "inference"),
            ("/v2/models/m/versions/3/infer", "inference"),
            ("/v2/models/versions/versions/1/config", "model-config"),
            ("/v2/models/m/stream", "inference"),
            ("/v2/models/m/ready", "health"),
            ("/v2/models/m/trace/setting", "trace"),
            ("/v2/repository/other/models/m/load", "model-repository"),
            ("/v2/cudasharedmemory/status", "shared-memory"),
            ("/v2/nothing", ""),
            ("/v2x", ""),
            ("/readyz", "health"),
            ("/v1/models/m", "health"),
            ("/v1/models/m/versions/3/metadata", "metadata"),
            ("/v1/models/m:predict", "inference"),
            ("/v1/models/m/versions/3:classify", "inference"),
            ("/v1/config", "model-repository"),
            ("/v1/config/reload", "model-repository"),
            ("/grpc.health.v1.Health/Watch", "health"),
            ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", ""),
            ("/", ""),
        ];
        for (path, name) in rows {
            assert_eq!(group(path), name, "{path}");
        }
    }
}
