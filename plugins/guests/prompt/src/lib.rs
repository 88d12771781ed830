//! Begins a sequence with the state that a prompt produces. The first START that names a prompt runs it through the model in steps, and the
//! server keeps the state. Later STARTs of that prompt begin with a copy. A prompt is a list of token ids, or of numbers, in a file of
//! sequor.toml.

use std::collections::BTreeMap;

use sequor_plugin::initializer::*;
use serde_json::Number;

#[derive(Debug, Default)]
pub struct Prompt {
    prompts: BTreeMap<String, Vec<Number>>,
    feature: String,
    input: Option<Port>,
    width: usize,
}

impl Initializer for Prompt {
    fn configure(&mut self, config: &Config, model: &Model, ports: &Ports, files: &Files) -> Result<(), String> {
        self.feature = config.get("feature")?;
        if !model.keys.contains(&self.feature) {
            return Err(format!("no [[feature]] of type \"key\" is named \"{}\"", self.feature));
        }
        let input = ports.find_step(&config.get::<String>("input")?)?.clone();
        if let Some(other) = ports.step.iter().find(|port| port.name != input.name && !port.optional) {
            return Err(format!(
                "a step needs \"{}\" too, and this plug-in gives \"{}\" alone",
                other.name, input.name
            ));
        }
        let fixed: i64 = input.shape.iter().map(|dim| (*dim).max(1)).product();
        let open = input.shape.iter().filter(|dim| **dim < 0).count();
        let asked: usize = config.get("width")?;
        self.width = if asked == 0 { fixed.unsigned_abs() as usize } else { asked };
        // The elements of a step fill the last open dimension.
        if !self.width.is_multiple_of(fixed.unsigned_abs() as usize)
            || (open == 0 && self.width as u64 != fixed.unsigned_abs())
        {
            return Err(format!("{} elements do not fill \"{}\" {:?}", self.width, input.name, input.shape));
        }
        self.prompts = files.json(&config.get::<String>("prompts")?)?;
        for (name, values) in &self.prompts {
            if values.is_empty() || !values.len().is_multiple_of(self.width) {
                let of = values.len();
                return Err(format!("prompt \"{name}\" has {of} elements; steps take {} each", self.width));
            }
            tensor(&input, self.width, values).map_err(|what| format!("prompt \"{name}\": {what}"))?;
        }
        self.input = Some(input);
        Ok(())
    }

    fn initialize(&mut self, call: &Call<'_>, _: Tensors) -> Result<FirstState, Refusal> {
        if call.key(&self.feature) == 0 {
            return Ok(FirstState::Default);
        }
        let name = call
            .text(&self.feature)
            .ok_or_else(|| refuse(code::NOT_NOW, "the server has forgotten the prompt's name"))?;
        if !self.prompts.contains_key(&name) {
            return Err(refuse(code::NOT_FOUND, format!("there is no prompt \"{name}\"")));
        }
        Ok(FirstState::kept(name))
    }

    fn steps(&mut self, name: &str, _: &Call<'_>, _: Tensors) -> Result<Vec<Tensors>, Refusal> {
        let gone = || refuse(code::NOT_FOUND, format!("there is no prompt \"{name}\""));
        let (prompt, input) = self.prompts.get(name).zip(self.input.as_ref()).ok_or_else(gone)?;
        let step = |values: &[Number]| {
            let tensor = tensor(input, self.width, values).map_err(|what| refuse(code::WRONG_STATE, what))?;
            Ok(Tensors::new().with(input.name.clone(), tensor))
        };
        prompt.chunks(self.width).map(step).collect()
    }
}

/// The values as a tensor of steps of this width.
fn tensor(input: &Port, width: usize, values: &[Number]) -> Result<Tensor, String> {
    let shape = shape(input, width);
    let integers = || values.iter().map(|value| value.as_i64().ok_or_else(|| format!("{value} is no integer")));
    let floats = || values.iter().map(|value| value.as_f64().ok_or_else(|| format!("{value} is no number")));
    let bytes = match input.dtype {
        Dtype::INT64 => encode(&integers().collect::<Result<Vec<i64>, _>>()?),
        Dtype::INT32 => {
            let narrow = |value: i64| i32::try_from(value).map_err(|_| format!("{value} is no INT32"));
            encode(&integers().map(|value| narrow(value?)).collect::<Result<Vec<i32>, _>>()?)
        }
        Dtype::FP32 => encode(&floats().map(|value| Ok(value? as f32)).collect::<Result<Vec<f32>, String>>()?),
        Dtype::FP64 => encode(&floats().collect::<Result<Vec<f64>, _>>()?),
        other => return Err(format!("\"{}\" is {other}; prompts are INT32, INT64, FP32 or FP64", input.name)),
    };
    Ok(Tensor::from_bytes(input.dtype, &shape, bytes))
}

/// The shape of a step: the elements fill the last open dimension; other open dimensions are 1.
fn shape(input: &Port, width: usize) -> Vec<u64> {
    let fixed: u64 = input.shape.iter().map(|dim| (*dim).max(1).unsigned_abs()).product();
    let last = input.shape.iter().rposition(|dim| *dim < 0);
    let dim =
        |(at, dim): (usize, &i64)| if Some(at) == last { width as u64 / fixed } else { (*dim).max(1).unsigned_abs() };
    input.shape.iter().enumerate().map(dim).collect()
}

sequor_plugin::export_initializer!(Prompt);

#[cfg(test)]
mod tests {
    use sequor_plugin::initializer::testing::Bench;

    use super::*;

    const PROMPTS: &str = r#"{"greeting": [5, 6, 7, 8], "one": [9, 9]}"#;

    fn bench(prompt: &str, shape: &[i64], width: u32) -> Bench<Prompt> {
        let ports = Ports::new().state("h", Dtype::FP32, &[2]).step("token", Dtype::INT64, shape);
        let bench = Bench::new(ports).key("prompt", prompt).file("prompts.json", PROMPTS);
        bench.config(&format!(r#"{{"width": {width}}}"#))
    }

    fn token(shape: &[u64], values: &[i64]) -> Tensors {
        Tensors::from([("token", Tensor::new(shape, values))])
    }

    #[test]
    fn a_prompt_is_run_in_steps() {
        let mut by_two = bench("greeting", &[1, -1], 2);
        assert_eq!(by_two.start(Tensors::new()).unwrap(), FirstState::kept("greeting"));
        assert_eq!(
            by_two.steps("greeting", Tensors::new()).unwrap(),
            [token(&[1, 2], &[5, 6]), token(&[1, 2], &[7, 8])]
        );
        assert_eq!(bench("one", &[1], 0).steps("one", Tensors::new()).unwrap(), [token(&[1], &[9]), token(&[1], &[9])]);
        assert_eq!(bench("one", &[-1, 2], 0).steps("one", Tensors::new()).unwrap(), [token(&[1, 2], &[9, 9])]);
    }

    #[test]
    fn a_start_without_a_prompt_gets_the_default_state() {
        assert_eq!(bench("", &[1], 0).start(Tensors::new()).unwrap(), FirstState::Default);
        let refused = bench("none", &[1], 0).start(Tensors::new()).unwrap_err();
        assert_eq!((refused.code, refused.text.as_str()), (4, "there is no prompt \"none\""));
    }

    #[test]
    fn a_prompt_that_does_not_fit_refuses_the_model() {
        let refused = |mut bench: Bench<Prompt>| bench.configure().unwrap_err();
        assert_eq!(refused(bench("", &[1, 4], 2)), "2 elements do not fill \"token\" [1, 4]");
        assert_eq!(refused(bench("", &[1, -1], 4)), "prompt \"one\" has 2 elements; steps take 4 each");
        let half = bench("", &[1], 0).file("half.json", r#"{"a": [0.5]}"#).config(r#"{"prompts": "half.json"}"#);
        assert_eq!(refused(half), "prompt \"a\": 0.5 is no integer");
        let ports = Ports::new().step("token", Dtype::INT64, &[1]).step("mask", Dtype::INT64, &[1]);
        let two = Bench::<Prompt>::new(ports).key("prompt", "").file("prompts.json", PROMPTS);
        assert_eq!(refused(two), "a step needs \"mask\" too, and this plug-in gives \"token\" alone");
    }
}
