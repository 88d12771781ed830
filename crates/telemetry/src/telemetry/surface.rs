//! The surfaces on which clients send requests, as labels of metrics.

/// The surface of a request, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Surface {
    KserveGrpc,
    KserveHttp,
    TfsGrpc,
    TfsHttp,
}

impl Surface {
    /// The number of surfaces.
    pub(super) const COUNT: usize = 4;

    pub const fn name(self) -> &'static str {
        match self {
            Surface::KserveGrpc => "kserve_grpc",
            Surface::KserveHttp => "kserve_http",
            Surface::TfsGrpc => "tfs_grpc",
            Surface::TfsHttp => "tfs_http",
        }
    }
}
