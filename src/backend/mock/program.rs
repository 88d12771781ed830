//! What a mock graph does, and the line of text that says so.

use std::str::FromStr;
use std::time::Duration;

use sequor_core::{DataType, Dim, Dims};

/// Which graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// OUTPUT is INPUT.
    Identity,
    /// OUTPUT and OUTPUT_STATE are INPUT + INPUT_STATE, without the state where START is set or READY is not.
    Accumulate,
    /// OUTPUT and OUTPUT_STATE are INPUT_STATE followed by INPUT; rows have one dimension, which grows.
    Append,
}

/// One graph. As text: `accumulate FP32 start ready dims=4 poison=13 cost=500`, where everything after the type may be left out.
///
/// - `dims`: the dimensions of a row, −1 for an open one, separated by commas; by default `1`. There is a batch dimension in front.
/// - `start`, `ready`: control inputs START and READY of shape `[-1,1]`, of the graph's own type.
/// - `poison`: a run fails if an element of INPUT is this number.
/// - `plus`: OUTPUT, and not OUTPUT_STATE, is so much more; INT32 only.
/// - `cost`: microseconds that each run takes, however many rows it has.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    pub what: What,
    pub dtype: DataType,
    pub dims: Dims,
    pub start: bool,
    pub ready: bool,
    pub poison: Option<f64>,
    pub plus: i32,
    pub cost: Duration,
}

impl Program {
    /// The graph with rows of one element and nothing else.
    pub fn new(what: What, dtype: DataType) -> Program {
        let dims = Dims(vec![Dim::Fixed(1)]);
        Program { what, dtype, dims, start: false, ready: false, poison: None, plus: 0, cost: Duration::ZERO }
    }

    fn set(&mut self, word: &str) -> Result<(), String> {
        let bad = || format!("the mock graph does not know {word:?}");
        match word.split_once('=') {
            None if word == "start" => self.start = true,
            None if word == "ready" => self.ready = true,
            Some(("poison", number)) => self.poison = Some(number.parse().map_err(|_| bad())?),
            Some(("plus", number)) => self.plus = number.parse().map_err(|_| bad())?,
            Some(("cost", micros)) => self.cost = Duration::from_micros(micros.parse().map_err(|_| bad())?),
            Some(("dims", dims)) => {
                let dims = dims.split(',').map(str::parse).collect::<Result<Vec<i64>, _>>().map_err(|_| bad())?;
                self.dims = Dims::from_wire(&dims);
            }
            _ => return Err(bad()),
        }
        Ok(())
    }

    /// Arithmetic is there for two types; moving bytes for all.
    fn check(self) -> Result<Program, String> {
        let numbers = matches!(self.dtype, DataType::Int32 | DataType::Fp32);
        if !numbers && (self.what == What::Accumulate || self.poison.is_some()) {
            return Err(format!("the mock graph computes with INT32 and FP32, not with {}", self.dtype));
        }
        if self.plus != 0 && self.dtype != DataType::Int32 {
            return Err("only INT32 can be more".to_owned());
        }
        if self.what != What::Accumulate && (self.start || self.ready) {
            return Err("only the accumulator has controls".to_owned());
        }
        Ok(self)
    }
}

impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Program, String> {
        let mut words = text.split_whitespace();
        let what = match words.next() {
            Some("identity") => What::Identity,
            Some("accumulate") => What::Accumulate,
            Some("append") => What::Append,
            other => return Err(format!("there is no mock graph {:?}", other.unwrap_or_default())),
        };
        let dtype = words.next().unwrap_or_default();
        let dtype = DataType::from_name(dtype).ok_or_else(|| format!("{dtype:?} is not a data type"))?;
        let mut program = Program::new(what, dtype);
        words.try_for_each(|word| program.set(word))?;
        program.check()
    }
}
