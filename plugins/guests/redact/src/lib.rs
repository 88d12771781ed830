//! Removes fields from a model's JSON by their keys, at any depth. An answer that is not JSON is refused, because it might contain such a
//! field.

use std::collections::BTreeSet;

use sequor_plugin::processor::*;
use serde_json::Value;

#[derive(Debug, Default)]
pub struct Redact {
    fields: BTreeSet<String>,
    outputs: Vec<String>,
}

impl Processor for Redact {
    type Scratch = ();

    fn configure(&mut self, config: &Config, _: &Model, inner: &Signature, _: &Files) -> Result<Signature, String> {
        self.fields = config.get("fields")?;
        self.outputs = config.get_or("outputs", Vec::new())?;
        if self.outputs.is_empty() {
            let texts = inner.outputs.iter().filter(|port| port.dtype == Dtype::BYTES);
            self.outputs = texts.map(|port| port.name.clone()).collect();
        }
        for name in &self.outputs {
            let port = inner.find_output(name)?;
            if port.dtype != Dtype::BYTES {
                return Err(format!("output \"{name}\" is {}; JSON is BYTES", port.dtype));
            }
        }
        Ok(inner.clone())
    }

    fn post(&mut self, _: &Call<'_>, runs: Vec<Tensors>, _: &mut ()) -> Result<Tensors, Refusal> {
        let mut outputs = join(runs);
        for name in &self.outputs {
            let Some(tensor) = outputs.find(name) else { continue };
            let mut texts = tensor.elements()?;
            for text in &mut texts {
                *text = self.without_fields(name, text)?;
            }
            let redacted = Tensor::texts(&tensor.shape(), &texts);
            outputs.insert(name.clone(), redacted);
        }
        Ok(outputs)
    }
}

impl Redact {
    fn without_fields(&self, output: &str, text: &[u8]) -> Result<Vec<u8>, Refusal> {
        let wrong = |_| refuse(code::WRONG_STATE, format!("output \"{output}\" of the model is no JSON"));
        let mut value: Value = serde_json::from_slice(text).map_err(wrong)?;
        self.drop_from(&mut value);
        serde_json::to_vec(&value).map_err(wrong)
    }

    fn drop_from(&self, value: &mut Value) {
        match value {
            Value::Object(table) => {
                table.retain(|key, _| !self.fields.contains(key));
                table.values_mut().for_each(|value| self.drop_from(value));
            }
            Value::Array(list) => list.iter_mut().for_each(|value| self.drop_from(value)),
            _ => {}
        }
    }
}

sequor_plugin::export_processor!(Redact);

#[cfg(test)]
mod tests {
    use sequor_plugin::processor::testing::Bench;

    use super::*;

    fn bench(answer: &'static str) -> Bench<Redact> {
        let model = Signature::new().input("x", Dtype::INT32, &[1]).output("JSON", Dtype::BYTES, &[1]);
        let model = model.output("y", Dtype::INT32, &[1]);
        let answers = move |_: &Tensors| {
            Tensors::from([("JSON", Tensor::texts(&[1], &[answer])), ("y", Tensor::new(&[1], &[7]))])
        };
        Bench::new(model, answers).config(r#"{"fields": ["email", "phone"]}"#)
    }

    fn x() -> [(&'static str, Tensor); 1] {
        [("x", Tensor::new(&[1], &[1]))]
    }

    #[test]
    fn fields_are_dropped_at_any_depth() {
        let answer = bench(r#"{"name": "a", "email": 1, "all": [{"phone": 2, "x": 3}, 4]}"#).once(x()).unwrap();
        let json = answer.get("JSON").unwrap().elements().unwrap();
        assert_eq!(json, [br#"{"all":[{"x":3},4],"name":"a"}"#.to_vec()]);
        assert_eq!(answer.get("y").unwrap(), &Tensor::new(&[1], &[7]));
    }

    #[test]
    fn an_output_that_is_not_json_is_refused() {
        let refused = bench("email: 1").once(x()).unwrap_err();
        assert_eq!((refused.code, refused.text.as_str()), (6, "output \"JSON\" of the model is no JSON"));
    }
}
