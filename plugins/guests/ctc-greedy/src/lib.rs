//! Turns the outputs of a CTC model into tokens and text: the most likely token of each frame, without repetitions and blanks. An answer
//! has the new tokens.
//!
//! It runs behind a model, or is a model of its own that takes the outputs of another one.

use sequor_plugin::processor::*;

#[derive(Debug, Default)]
pub struct CtcGreedy {
    logits: String,
    blank: i64,
    outputs: TokenOutputs,
}

/// The token of the last frame; `None` before the first.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Last(Option<i64>);

impl Scratch for Last {
    fn load(bytes: &[u8]) -> Result<Last, String> {
        Ok(Last(decode(bytes).first().copied()))
    }

    fn save(&self) -> Vec<u8> {
        self.0.map_or_else(Vec::new, |token| encode(&[token]))
    }
}

impl Processor for CtcGreedy {
    type Scratch = Last;

    fn configure(&mut self, config: &Config, _: &Model, inner: &Signature, files: &Files) -> Result<Signature, String> {
        (self.logits, self.blank) = (config.get("logits")?, config.get("blank")?);
        let table = TokenTable::of_file(files, &config.get::<String>("tokens")?)?;
        let is_own = inner.find_input(&self.logits).is_ok();
        let port = if is_own { inner.find_input(&self.logits)? } else { inner.find_output(&self.logits)? };
        if !port.dtype.is_float() || port.shape.len() < 2 {
            return Err(format!(
                "\"{}\" is {} {:?}; floats [.., frames, tokens] are wanted",
                port.name, port.dtype, port.shape
            ));
        }
        let outer = if is_own { inner.clone() } else { TokenOutputs::behind(inner, &self.logits) };
        self.outputs = TokenOutputs::of(table, &outer)?;
        Ok(outer)
    }

    /// Answers a request if the plug-in is a model of its own.
    fn pre(&mut self, _: &Call<'_>, inputs: Tensors, last: &mut Last) -> Result<Prepared, Refusal> {
        match inputs.find(&self.logits) {
            Some(logits) => {
                let tokens = self.tokens_of(logits, last)?;
                Ok(Prepared::reply(self.outputs.add(Tensors::new(), &tokens)))
            }
            None if inputs.is_empty() => Ok(Prepared::reply(Tensors::new())),
            None => Ok(Prepared::run(inputs)),
        }
    }

    fn post(&mut self, _: &Call<'_>, mut runs: Vec<Tensors>, last: &mut Last) -> Result<Tensors, Refusal> {
        let mut tokens = Vec::new();
        for run in &mut runs {
            let logits = run.take(&self.logits).ok_or_else(|| refuse(code::WRONG_STATE, "the model gave no logits"))?;
            tokens.extend(self.tokens_of(&logits, last)?);
        }
        Ok(self.outputs.add(join(runs), &tokens))
    }
}

impl CtcGreedy {
    fn tokens_of(&self, logits: &Tensor, last: &mut Last) -> Result<Vec<i64>, Refusal> {
        let ((_, width), mut tokens) = (frames_of(logits)?, Vec::new());
        for frame in logits.floats()?.chunks_exact(width.max(1)) {
            let token = argmax(frame) as i64;
            if token != self.blank && last.0 != Some(token) {
                tokens.push(token);
            }
            last.0 = Some(token);
        }
        Ok(tokens)
    }
}

sequor_plugin::export_processor!(CtcGreedy);

#[cfg(test)]
mod tests {
    use sequor_plugin::processor::testing::Bench;

    use super::*;

    const TOKENS: &str = "<blk> 0\n\u{2581}he 1\nllo 2\n\u{2581}you 3\n";
    const CONFIG: &str = r#"{"logits": "logits", "tokens": "tokens.txt", "blank": 0}"#;

    /// One-hot rows.
    fn logits(tokens: &[u64], dtype: Dtype) -> Tensor {
        let rows = tokens.iter().flat_map(|token| (0..4).map(move |n| if n == *token { 0.5 } else { -1.0 }));
        Tensor::of_floats(dtype, &[1, tokens.len() as u64, 4], &rows.collect::<Vec<f32>>())
    }

    fn read(answer: &Tensors) -> (Vec<i64>, String) {
        let text = answer.get("TEXT").unwrap().elements().unwrap();
        (answer.get("TOKENS").unwrap().values().unwrap(), String::from_utf8(text[0].clone()).unwrap())
    }

    #[test]
    fn ctc_decoding_carries_repetitions_and_blanks_across_steps() {
        let model = Signature::new().input("x", Dtype::INT32, &[1]).output("logits", Dtype::FP16, &[1, -1, 4]);
        let frames = [vec![0, 1, 1], vec![1, 2, 0, 2], vec![3]];
        let answers = move |run: &Tensors| {
            let step = run.get("x").unwrap().values::<i32>().unwrap()[0] as usize;
            Tensors::from([("logits", logits(&frames[step], Dtype::FP16))])
        };
        let mut bench =
            Bench::<CtcGreedy>::new(model, answers).config(CONFIG).file("tokens.txt", TOKENS).scratch_limit(16);
        let x = |step: i32| [("x", Tensor::new(&[1], &[step]))];
        assert_eq!(read(&bench.start(1, x(0)).unwrap()), (vec![1], " he".to_owned()));
        assert_eq!(read(&bench.step(1, x(1)).unwrap()), (vec![2, 2], "llollo".to_owned()));
        assert_eq!(read(&bench.end(1, x(2)).unwrap()), (vec![3], " you".to_owned()));
    }

    #[test]
    fn the_ctc_decoder_can_be_served_as_a_standalone_model() {
        let own = Signature::new().input("logits", Dtype::FP32, &[1, -1, 4]);
        let own = own.output("TOKENS", Dtype::INT64, &[-1]).output("TEXT", Dtype::BYTES, &[1]);
        let mut bench = Bench::<CtcGreedy>::new(own, |_| unreachable!())
            .config(CONFIG)
            .file("tokens.txt", TOKENS)
            .scratch_limit(16);
        let frames = |tokens: &[u64]| [("logits", logits(tokens, Dtype::FP32))];
        assert_eq!(read(&bench.start(1, frames(&[1, 2])).unwrap()), (vec![1, 2], " hello".to_owned()));
        assert_eq!(read(&bench.step(1, frames(&[2, 0])).unwrap()), (vec![], String::new()));
        assert!(bench.end(1, Tensors::new()).unwrap().is_empty());
    }
}
