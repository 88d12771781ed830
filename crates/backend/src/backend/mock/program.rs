//! The programs of mock graphs, and the lines of text that describe them.

use std::str::FromStr;
use std::time::Duration;

use sequor_core::{DataType, Dim, Dims};

/// The kind of graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// OUTPUT is INPUT.
    Identity,
    /// OUTPUT and OUTPUT_STATE are INPUT + INPUT_STATE. Rows with START set or READY not set leave out the state.
    Accumulate,
    /// OUTPUT and OUTPUT_STATE are INPUT_STATE followed by INPUT; rows have one dimension, which grows.
    Append,
}

/// One graph. Example of its text: `accumulate FP32 start ready dims=4 poison=13 cost=500`. Everything after the type is optional.
///
/// - `dims`: the dimensions of a row, −1 for an open one, separated by commas; `1` by default. There is a batch dimension in front.
/// - `start`, `ready`: control inputs START and READY of shape `[-1,1]`, of the graph's own type.
/// - `poison`: a run fails if an element of INPUT is this number.
/// - `plus`: adds this number to OUTPUT but not to OUTPUT_STATE; INT32 only.
/// - `cost`: duration of each run in microseconds, for any number of rows.
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
    /// A graph with rows of one element and without options.
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

    /// Rejects arithmetic on other types than INT32 and FP32. Moving bytes works for all types.
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
