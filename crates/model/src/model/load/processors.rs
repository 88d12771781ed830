//! The processors in front of a load's graph, and the settings that clients then see.

use std::sync::Arc;

use sequor_core::{DataType, Dim, Dims};
use sequor_proto as proto;

use crate::config::model::settings::{Input, ModelSettings, Output};
use crate::processing::{Chain, ProcessorPool, TensorPort, TensorSignature};

/// The processors of a load, and their threads.
#[derive(Debug)]
pub(in crate::model) struct Processors {
    pub(in crate::model) chain: Chain,
    pub(in crate::model) pool: Arc<ProcessorPool>,
}

impl Processors {
    /// Names of the processors, in order.
    pub(in crate::model) fn names(&self) -> String {
        self.chain.names().collect::<Vec<_>>().join(",")
    }

    /// The signature of the model without processors. The last processor of the chain must fit it.
    pub(in crate::model) fn signature_of(settings: &ModelSettings) -> TensorSignature {
        let batching = settings.max_batch_size > 0;
        let whole = |dims: &Dims| if batching { dims.with(0, Dim::Any) } else { dims.clone() };
        let port = |name: &str, dtype: DataType, dims: &Dims, optional: bool| TensorPort {
            name: name.to_owned(),
            dtype,
            dims: whole(dims),
            optional,
        };
        TensorSignature {
            inputs: settings.inputs.iter().map(|i| port(&i.name, i.dtype, &i.dims, i.optional)).collect(),
            outputs: settings.outputs.iter().map(|o| port(&o.name, o.dtype, &o.dims, false)).collect(),
        }
    }

    /// The settings as clients see them. Shapes include the batch dimension, so none is added in front.
    pub(super) fn client_settings(&self, settings: &ModelSettings) -> ModelSettings {
        let TensorSignature { inputs, outputs } = self.chain.signature();
        let labels = |name: &str| settings.outputs.iter().find(|o| o.name == name).and_then(|o| o.labels.clone());
        let mut proto = (*settings.proto).clone();
        proto.max_batch_size = 0;
        proto.input = inputs
            .iter()
            .map(|port| proto::ModelInput {
                name: port.name.clone(),
                data_type: proto_type(port.dtype),
                dims: port.dims.to_wire(),
                optional: port.optional,
                ..proto::ModelInput::default()
            })
            .collect();
        proto.output = outputs
            .iter()
            .map(|port| proto::ModelOutput {
                name: port.name.clone(),
                data_type: proto_type(port.dtype),
                dims: port.dims.to_wire(),
                ..proto::ModelOutput::default()
            })
            .collect();
        let input = |TensorPort { name, dtype, dims, optional }| Input {
            name,
            dtype,
            dims,
            reshape: None,
            optional,
            batch_dim: None,
            ragged: None,
        };
        let output = |TensorPort { name, dtype, dims, .. }: TensorPort| Output {
            labels: labels(&name),
            name,
            dtype,
            dims,
            reshape: None,
            batch_dim: None,
            cut_like: None,
            crop: None,
        };
        ModelSettings {
            max_batch_size: 0,
            inputs: inputs.into_iter().map(input).collect(),
            outputs: outputs.into_iter().map(output).collect(),
            proto: Arc::new(proto),
            ..settings.clone()
        }
    }
}

fn proto_type(dtype: DataType) -> i32 {
    proto::DataType::from_str_name(dtype.config_name()).map_or(0, |dtype| dtype as i32)
}
