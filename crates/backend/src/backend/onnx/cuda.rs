//! ONNX Runtime's provider for NVIDIA GPUs: whether it was installed, whether it loads, and how a session gets it.

use std::path::Path;

#[cfg(feature = "cuda")]
pub(super) use provider::{on, try_load};
#[cfg(not(feature = "cuda"))]
pub(super) use without::{on, try_load};

use crate::backend::BackendError;

/// The provider's file. ONNX Runtime looks for it in its own folder.
pub(super) const FILE: &str = "libonnxruntime_providers_cuda.so";

/// Checks that the provider is in the library's folder. Does not load it: it has hundreds of megabytes.
pub(super) fn is_beside(library: &Path) -> Result<(), BackendError> {
    let folder = library.parent().unwrap_or_else(|| Path::new(""));
    if folder.join(FILE).is_file() {
        return Ok(());
    }
    let what = format!(
        "ONNX Runtime {} has no provider for NVIDIA GPUs ({FILE} is not beside it); to get one: sequor runtime install --gpu",
        library.display()
    );
    Err(BackendError(what))
}

#[cfg(feature = "cuda")]
mod provider {
    use std::sync::Arc;

    use ort::ep::cuda::ConvAlgorithmSearch;
    use ort::ep::{ArenaExtendStrategy, CUDA};
    use ort::session::builder::SessionBuilder;

    use crate::backend::BackendError;
    use crate::backend::onnx::status::describe;
    use crate::device::{Device, DeviceId};

    /// Loads the provider for this GPU without creating a session.
    pub(in crate::backend::onnx) fn try_load(builder: SessionBuilder, ordinal: u16) -> Result<(), BackendError> {
        register(builder, CUDA::default().with_device_id(i32::from(ordinal))).map(|_| ())
    }

    /// Options of a session that runs on this device, in the device's order of work.
    pub(in crate::backend::onnx) fn on(
        builder: SessionBuilder,
        device: &Arc<dyn Device>,
    ) -> Result<SessionBuilder, BackendError> {
        let (DeviceId::Cuda(ordinal), Some(stream)) = (device.place(), device.stream()) else {
            return Err(BackendError(format!("ONNX Runtime has no provider for {}", device.place())));
        };
        // The arena grows by the requested size instead of doubling, because sessions share a GPU with states and with each other. TF32 is
        // off, because answers must not depend on the device. Convolution algorithms are chosen by rule and not by trial, because batches
        // change their size all the time.
        let provider = CUDA::default()
            .with_device_id(i32::from(ordinal))
            .with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested)
            .with_conv_algorithm_search(ConvAlgorithmSearch::Heuristic)
            .with_tf32(false);
        // SAFETY: the stream lives as long as the device, which the session keeps.
        register(builder, unsafe { provider.with_compute_stream(stream as *mut ()) })
    }

    fn register(builder: SessionBuilder, provider: CUDA) -> Result<SessionBuilder, BackendError> {
        let provider = provider.build().error_on_failure();
        builder.with_execution_providers([provider]).map_err(|error| {
            let BackendError(why) = describe(&error);
            BackendError(format!(
                "ONNX Runtime's provider for NVIDIA GPUs does not load: {why}; the libraries of CUDA 13 and cuDNN 9 must be on LD_LIBRARY_PATH"
            ))
        })
    }
}

#[cfg(not(feature = "cuda"))]
mod without {
    use std::sync::Arc;

    use ort::session::builder::SessionBuilder;

    use crate::backend::BackendError;
    use crate::device::Device;

    const WHY: &str = "this build of sequor has no support for NVIDIA GPUs (feature `cuda`)";

    pub(in crate::backend::onnx) fn try_load(_: SessionBuilder, _: u16) -> Result<(), BackendError> {
        Err(BackendError(WHY.to_owned()))
    }

    pub(in crate::backend::onnx) fn on(_: SessionBuilder, _: &Arc<dyn Device>) -> Result<SessionBuilder, BackendError> {
        Err(BackendError(WHY.to_owned()))
    }
}
