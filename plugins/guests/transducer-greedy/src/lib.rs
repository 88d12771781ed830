//! Turns the frames of a transducer's encoder into tokens and text by greedy search, which calls the models `decoder` and `joiner`. An
//! answer has the new tokens, or all tokens since the START.
//!
//! It runs behind an encoder, or is a model of its own that takes an encoder's frames. The grant `models` must name both models.

use sequor_plugin::processor::*;

#[derive(Debug, Default)]
pub struct TransducerGreedy {
    frames: String,
    /// The input with the number of frames.
    lens: String,
    blank: i64,
    /// A token that is left out like a blank; below 0 if there is none.
    unknown: i64,
    context: usize,
    /// Maximum number of tokens of a frame.
    symbols: usize,
    decoder: String,
    decoder_input: String,
    decoder_output: String,
    joiner: String,
    joiner_output: String,
    /// Whether an answer has the tokens since the START.
    whole: bool,
    outputs: TokenOutputs,
}

/// The state of a sequence.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Spoken {
    /// The last tokens, which the decoder sees.
    context: Vec<i64>,
    /// The decoder's answer to these tokens; empty before the first frame.
    decoded: Option<Tensor>,
    /// All tokens, if answers contain them.
    all: Vec<i64>,
}

impl Scratch for Spoken {
    fn load(bytes: &[u8]) -> Result<Spoken, String> {
        let wrong = || format!("{} bytes are no scratch of this plug-in", bytes.len());
        let (head, rest) = bytes.split_first_chunk::<16>().ok_or_else(wrong)?;
        let counts = decode::<u32>(head);
        let [tokens, dims, all] = [counts[0], counts[1], counts[3]].map(|count| count as usize * 8);
        let (context, rest) = rest.split_at_checked(tokens).ok_or_else(wrong)?;
        let (all, rest) = rest.split_at_checked(all).ok_or_else(wrong)?;
        let (shape, data) = rest.split_at_checked(dims).ok_or_else(wrong)?;
        let decoded = Tensor::from_bytes(Dtype(counts[2]), &decode::<u64>(shape), data.to_vec());
        Ok(Spoken { context: decode(context), decoded: Some(decoded), all: decode(all) })
    }

    fn save(&self) -> Vec<u8> {
        let Some(decoded) = &self.decoded else { return Vec::new() };
        let shape = decoded.shape();
        let counts = encode(&[self.context.len() as u32, shape.len() as u32, decoded.dtype().0, self.all.len() as u32]);
        [counts, encode(&self.context), encode(&self.all), encode(&shape), decoded.bytes().into_owned()].concat()
    }
}

impl Processor for TransducerGreedy {
    type Scratch = Spoken;

    fn configure(&mut self, config: &Config, _: &Model, inner: &Signature, files: &Files) -> Result<Signature, String> {
        (self.frames, self.blank, self.unknown) =
            (config.get("frames")?, config.get("blank_id")?, config.get("unk_id")?);
        (self.context, self.symbols) = (config.get("context_size")?, config.get("symbols")?);
        (self.decoder, self.joiner) = (config.get("decoder")?, config.get("joiner")?);
        (self.decoder_input, self.decoder_output) = (config.get("decoder_input")?, config.get("decoder_output")?);
        self.joiner_output = config.get("joiner_output")?;
        (self.lens, self.whole) = (config.get("lens")?, config.get("whole")?);
        let table = TokenTable::of_file(files, &config.get::<String>("tokens")?)?;
        if self.context == 0 || self.symbols == 0 {
            return Err("context_size and symbols must be at least 1".to_owned());
        }
        let is_own = inner.find_input(&self.frames).is_ok();
        let port = if is_own { inner.find_input(&self.frames)? } else { inner.find_output(&self.frames)? };
        if !port.dtype.is_float() || port.shape.len() < 2 {
            return Err(format!(
                "\"{}\" is {} {:?}; floats [.., frames, width] are wanted",
                port.name, port.dtype, port.shape
            ));
        }
        if is_own {
            self.outputs = TokenOutputs::with_text(table, inner, &config.get::<String>("text")?)?;
            return Ok(inner.clone());
        }
        let outer = TokenOutputs::behind(inner, &self.frames);
        self.outputs = TokenOutputs::of(table, &outer)?;
        Ok(outer)
    }

    /// Answers a request if the plug-in is a model of its own.
    fn pre(&mut self, _: &Call<'_>, inputs: Tensors, spoken: &mut Spoken) -> Result<Prepared, Refusal> {
        match inputs.find(&self.frames) {
            Some(frames) => {
                let most = inputs.find(&self.lens).map(count_of).transpose()?;
                let tokens = self.search(frames, most, spoken)?;
                Ok(Prepared::reply(self.answer(Tensors::new(), tokens, spoken)))
            }
            None if inputs.is_empty() => Ok(Prepared::reply(Tensors::new())),
            None => Ok(Prepared::run(inputs)),
        }
    }

    fn post(&mut self, _: &Call<'_>, mut runs: Vec<Tensors>, spoken: &mut Spoken) -> Result<Tensors, Refusal> {
        let mut tokens = Vec::new();
        for run in &mut runs {
            let frames =
                run.take(&self.frames).ok_or_else(|| refuse(code::WRONG_STATE, "the encoder gave no frames"))?;
            tokens.extend(self.search(&frames, None, spoken)?);
        }
        Ok(self.answer(join(runs), tokens, spoken))
    }
}

impl TransducerGreedy {
    /// An answer with these new tokens.
    fn answer(&self, outputs: Tensors, new: Vec<i64>, spoken: &mut Spoken) -> Tensors {
        if !self.whole {
            return self.outputs.add(outputs, &new);
        }
        spoken.all.extend(new);
        self.outputs.add(outputs, &spoken.all)
    }

    /// The tokens of these frames, or of at most the first `most` of them.
    fn search(&self, frames: &Tensor, most: Option<usize>, spoken: &mut Spoken) -> Result<Vec<i64>, Refusal> {
        let ((count, width), mut tokens) = (frames_of(frames)?, Vec::new());
        if count == 0 {
            return Ok(tokens);
        }
        if spoken.context.is_empty() {
            spoken.context = vec![self.blank; self.context];
        }
        let bytes = frames.size() / count as u64;
        for n in 0..most.unwrap_or(count).min(count) as u64 {
            let frame = frames.part(n * bytes, bytes, &[1, width as u64]);
            for _ in 0..self.symbols {
                let token = self.join(&frame, spoken)?;
                if token == self.blank || token == self.unknown {
                    break;
                }
                tokens.push(token);
                spoken.context.remove(0);
                spoken.context.push(token);
                spoken.decoded = None;
            }
        }
        // The next step begins with the decoder's answer to the last tokens.
        self.decode(spoken)?;
        Ok(tokens)
    }

    /// The most likely token after the previous ones.
    fn join(&self, frame: &Tensor, spoken: &mut Spoken) -> Result<i64, Refusal> {
        let decoded = self.decode(spoken)?;
        let inputs = [("encoder_out", frame.clone()), ("decoder_out", decoded)];
        let outputs = models::infer(&self.joiner, inputs)?;
        let logits =
            outputs.find(&self.joiner_output).ok_or_else(|| self.missing(&self.joiner, &self.joiner_output))?;
        Ok(argmax(&logits.floats()?) as i64)
    }

    /// The decoder's answer to the last tokens.
    fn decode(&self, spoken: &mut Spoken) -> Result<Tensor, Refusal> {
        if let Some(decoded) = &spoken.decoded {
            return Ok(decoded.clone());
        }
        let context = Tensor::new(&[1, self.context as u64], &spoken.context);
        let mut outputs = models::infer(&self.decoder, [(self.decoder_input.clone(), context)])?;
        let decoded =
            outputs.take(&self.decoder_output).ok_or_else(|| self.missing(&self.decoder, &self.decoder_output))?;
        let (width, dtype) = (decoded.shape().last().copied().unwrap_or_default(), decoded.dtype());
        let decoded = Tensor::from_bytes(dtype, &[1, width], decoded.bytes().into_owned());
        Ok(spoken.decoded.insert(decoded).clone())
    }

    fn missing(&self, model: &str, output: &str) -> Refusal {
        refuse(code::WRONG_STATE, format!("model \"{model}\" gave no \"{output}\""))
    }
}

/// The single number in a tensor, which is a count.
fn count_of(tensor: &Tensor) -> Result<usize, Refusal> {
    let numbers = tensor.values::<i64>()?;
    let count = numbers.first().filter(|_| numbers.len() == 1).and_then(|number| usize::try_from(*number).ok());
    count.ok_or_else(|| refuse(code::WRONG_REQUEST, format!("{numbers:?} is no number of frames")))
}

sequor_plugin::export_processor!(TransducerGreedy);

#[cfg(test)]
mod tests {
    use sequor_plugin::processor::testing::Bench;

    use super::*;

    const CONFIG: &str = r#"{"frames": "encoder_out", "lens": "encoder_out_lens", "text": "TEXT", "whole": false, "tokens": "tokens.txt", "blank_id": 0, "unk_id": 5, "context_size": 2, "symbols": 1,
        "decoder": "decoder", "decoder_input": "y", "decoder_output": "decoder_out", "joiner": "joiner", "joiner_output": "logit"}"#;
    const TOKENS: &str = "<blk> 0\n\u{2581}a 1\nb 2\n\u{2581}c 3\nd 4\n<unk> 5\n";

    fn floats(tensors: &Tensors, name: &str) -> Vec<f32> {
        tensors.get(name).unwrap().floats().unwrap()
    }

    /// A decoder that adds up the tokens, and a joiner that adds the frame: the token is the sum modulo 6.
    fn serve() {
        models::serve("decoder", |inputs| {
            let tokens = inputs.get("y").unwrap().values::<i64>().unwrap();
            let sum = (tokens[0] * 2 + tokens[1]) as f32;
            Ok(Tensors::from([("decoder_out", Tensor::new(&[1, 1, 1], &[sum]))]))
        });
        models::serve("joiner", |inputs| {
            assert_eq!(
                [inputs.get("encoder_out").unwrap().shape(), inputs.get("decoder_out").unwrap().shape()],
                [[1, 1], [1, 1]]
            );
            let sum = (floats(inputs, "encoder_out")[0] + floats(inputs, "decoder_out")[0]) as usize % 6;
            let logits: Vec<f32> = (0..6).map(|n| if n == sum { 1.0 } else { 0.0 }).collect();
            Ok(Tensors::from([("logit", Tensor::new(&[1, 6], &logits))]))
        });
    }

    /// The same, without a server.
    fn expected(frames: &[f32]) -> Vec<i64> {
        let (mut context, mut tokens) = ([0i64, 0], Vec::new());
        for frame in frames {
            let token = (*frame as i64 + context[0] * 2 + context[1]) % 6;
            if token != 0 && token != 5 {
                context = [context[1], token];
                tokens.push(token);
            }
        }
        tokens
    }

    fn own() -> Bench<TransducerGreedy> {
        serve();
        let own = Signature::new().input("encoder_out", Dtype::FP32, &[1, -1, 1]);
        let own = own.output("TOKENS", Dtype::INT64, &[-1]).output("TEXT", Dtype::BYTES, &[1]);
        Bench::new(own, |_| unreachable!()).config(CONFIG).file("tokens.txt", TOKENS).scratch_limit(64)
    }

    fn frames(frames: &[f32]) -> [(&'static str, Tensor); 1] {
        [("encoder_out", Tensor::new(&[1, frames.len() as u64, 1], frames))]
    }

    #[test]
    fn tokens_do_not_depend_on_packets() {
        let all: Vec<f32> = (0..60u32).map(|n| (n * n % 11) as f32).collect();
        let want = expected(&all);
        assert!(want.len() > 20, "{want:?}");
        for packet in [1, 4, 7, 60] {
            let (mut bench, mut tokens) = (own(), Vec::new());
            for (n, part) in all.chunks(packet).enumerate() {
                let answer = if n == 0 { bench.start(1, frames(part)) } else { bench.step(1, frames(part)) };
                tokens.extend(answer.unwrap().get("TOKENS").unwrap().values::<i64>().unwrap());
            }
            assert_eq!(tokens, want, "{packet}");
            // The decoder is called once for each token, and once for the beginning.
            assert_eq!((models::calls("decoder"), models::calls("joiner")), (want.len() as u64 + 1, 60), "{packet}");
        }
    }

    /// Like the scorer of a public repository: the number of frames is an input, and each answer is the whole text.
    #[test]
    fn a_standalone_scorer_reads_the_frame_count_and_returns_the_whole_text() {
        serve();
        let own = Signature::new().input("encoder_out", Dtype::FP16, &[-1, -1, 1]);
        let own = own.input("encoder_out_lens", Dtype::INT64, &[-1, 1]).output("OUTPUT0", Dtype::BYTES, &[-1, 1]);
        let config = CONFIG.replace("\"TEXT\"", "\"OUTPUT0\"").replace("false", "true");
        let mut bench = Bench::<TransducerGreedy>::new(own, |_| unreachable!())
            .config(&config)
            .file("tokens.txt", TOKENS)
            .scratch_limit(256);
        let inputs = |lens: i64| {
            let frames = Tensor::of_floats(Dtype::FP16, &[1, 3, 1], &[1.0, 1.0, 1.0]);
            [("encoder_out", frames), ("encoder_out_lens", Tensor::new(&[1, 1], &[lens]))]
        };
        let text = |tokens: &[i64]| Tensor::texts(&[1, 1], &[TokenTable::parse(TOKENS).unwrap().text(tokens)]);
        let first = bench.start(1, inputs(2)).unwrap();
        assert_eq!(first.get("OUTPUT0").unwrap(), &text(&expected(&[1.0, 1.0])));
        let second = bench.step(1, inputs(3)).unwrap();
        assert_eq!(second.get("OUTPUT0").unwrap(), &text(&expected(&[1.0; 5])));
        assert_eq!(bench.step(1, inputs(-1)).unwrap_err().text, "[-1] is no number of frames");
    }

    #[test]
    fn the_decoder_answers_with_tokens_instead_of_the_encoders_frames() {
        serve();
        let encoder = Signature::new().input("x", Dtype::INT32, &[1]).output("encoder_out", Dtype::FP16, &[-1, 2, 1]);
        let answers =
            |_: &Tensors| Tensors::from([("encoder_out", Tensor::of_floats(Dtype::FP16, &[1, 2, 1], &[1.0, 1.0]))]);
        let mut bench = Bench::<TransducerGreedy>::new(encoder, answers)
            .config(CONFIG)
            .file("tokens.txt", TOKENS)
            .scratch_limit(64);
        let outer = bench.configure().unwrap();
        assert_eq!(outer.outputs.iter().map(|port| port.name.as_str()).collect::<Vec<_>>(), ["TOKENS", "TEXT"]);
        let answer = bench.start(1, [("x", Tensor::new(&[1], &[1]))]).unwrap();
        assert_eq!(answer.get("TOKENS").unwrap().values::<i64>().unwrap(), expected(&[1.0, 1.0]));
        assert_eq!(answer.get("TEXT").unwrap(), &Tensor::texts(&[1], &[" ab"]));
    }

    #[test]
    fn a_failed_model_call_refuses_the_step_with_the_models_text() {
        let mut bench = own();
        let fault = models::Failure { code: 2, text: "the queue is full".to_owned(), retry_us: Some(1000) };
        models::serve("joiner", move |_| Err(fault.clone()));
        let refusal = bench.start(1, frames(&[1.0])).unwrap_err();
        assert_eq!((refusal.code, refusal.text.as_str(), refusal.retry_us), (2, "the queue is full", Some(1000)));
    }
}
