//! A model that calls another one over wasi-nn, and replies with its outputs. Its bindings (`wasi_nn`) are generated from `wit/wasi-nn`.
//! The configuration names the inputs and outputs of the other model. They must have types that wasi-nn knows.

use sequor_plugin::processor::*;

#[cfg(target_arch = "wasm32")]
mod over_wasi_nn;
#[cfg(target_arch = "wasm32")]
mod wasi_nn;

/// Types of elements, with the codes of wasi-nn.
const TYPES: [Dtype; 7] =
    [Dtype::FP16, Dtype::FP32, Dtype::FP64, Dtype::BF16, Dtype::UINT8, Dtype::INT32, Dtype::INT64];

#[derive(Debug, Default)]
pub struct NnModel {
    model: String,
    outputs: Vec<String>,
}

impl Processor for NnModel {
    type Scratch = ();

    fn configure(&mut self, config: &Config, _: &Model, inner: &Signature, _: &Files) -> Result<Signature, String> {
        self.model = config.get("model")?;
        if let Some(port) = inner.inputs.iter().chain(&inner.outputs).find(|port| !TYPES.contains(&port.dtype)) {
            return Err(format!("\"{}\" is {}, a type that wasi-nn does not have", port.name, port.dtype));
        }
        self.outputs = inner.outputs.iter().map(|port| port.name.clone()).collect();
        Ok(inner.clone())
    }

    fn pre(&mut self, _: &Call<'_>, inputs: Tensors, _: &mut ()) -> Result<Prepared, Refusal> {
        let mut given = compute(&self.model, &inputs)?;
        let mut outputs = Tensors::new();
        for name in &self.outputs {
            let missing = || refuse(code::WRONG_STATE, format!("model \"{}\" gave no \"{name}\"", self.model));
            outputs.insert(name.clone(), given.take(name).ok_or_else(missing)?);
        }
        Ok(Prepared::reply(outputs))
    }
}

#[cfg(target_arch = "wasm32")]
use over_wasi_nn::compute;

/// Outside WebAssembly there is no wasi-nn.
#[cfg(not(target_arch = "wasm32"))]
fn compute(model: &str, inputs: &Tensors) -> Result<Tensors, Refusal> {
    let inputs = inputs.iter().map(|(name, tensor)| (name.to_owned(), tensor.cast(tensor.dtype(), &tensor.shape())));
    Ok(models::infer(model, inputs.collect::<Tensors>())?)
}

sequor_plugin::export_processor!(NnModel);

#[cfg(test)]
mod tests {
    use sequor_plugin::processor::testing::Bench;

    use super::*;

    fn bench(dtype: Dtype) -> Bench<NnModel> {
        let own = Signature::new().input("x", dtype, &[1]).output("y", dtype, &[1]);
        Bench::new(own, |_| unreachable!()).config(r#"{"model": "double"}"#)
    }

    #[test]
    fn the_outputs_of_the_model_are_the_reply() {
        models::serve("double", |inputs| {
            let x = inputs.get("x").unwrap().values::<i32>().unwrap();
            Ok(Tensors::from([("z", Tensor::new(&[1], &[0])), ("y", Tensor::new(&[1], &[2 * x[0]]))]))
        });
        let answer = bench(Dtype::INT32).start(1, [("x", Tensor::new(&[1], &[21]))]).unwrap();
        assert_eq!((answer.len(), answer.get("y").unwrap().values::<i32>().unwrap()), (1, vec![42]));
    }

    #[test]
    fn a_type_that_wasi_nn_does_not_have_is_refused() {
        let refused = bench(Dtype::BYTES).configure().unwrap_err();
        assert!(refused.contains("\"x\" is BYTES"), "{refused}");
    }
}
