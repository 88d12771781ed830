//! Scans the bytes of a `PredictRequest` before decoding: the numbers of inputs and outputs, and the memory that decoding needs.

use crate::api::ServerLimits;
use crate::api::wire::{Field, FieldValue, MessageFields};
use crate::error::ExceededLimit;

/// Memory of an input or an output, without its texts.
const ITEM: u64 = 480;
/// Memory of a dimension, and of an element of `string_val` without its bytes.
const DIM: u64 = 32;
const ELEMENT: u64 = 40;

/// Why a scan stopped.
#[derive(Debug, PartialEq)]
pub(super) enum ScanEnd {
    /// The scan reached its budget of bytes.
    Long,
    Refused(ExceededLimit),
}

/// The bytes of memory that decoding needs beyond the message itself. `tensor_content` needs none. The scan passes over at most `budget`
/// bytes. At malformed bytes it stops. Decoding stops there too, and reports the error.
pub(super) fn scan(message: &[u8], limits: &ServerLimits, budget: usize) -> Result<u64, ScanEnd> {
    let mut scan = PredictScan { left: budget, unpacked: 0 };
    let (mut inputs, mut outputs) = (0, 0);
    for field in MessageFields(message) {
        match field {
            Field { number: 2, value: FieldValue::Bytes(entry) } => {
                inputs += 1;
                check(inputs, limits.inputs, "inputs", "limits.inputs")?;
                scan.input(entry)?;
            }
            Field { number: 3, value: FieldValue::Bytes(name) } => {
                outputs += 1;
                check(outputs, limits.outputs, "outputs", "limits.outputs")?;
                scan.take(ITEM + name.len() as u64);
                scan.pass(name.len())?;
            }
            Field { number: 1, value: FieldValue::Bytes(spec) } => {
                scan.take(ITEM + spec.len() as u64);
                scan.pass(spec.len())?;
            }
            Field { value: FieldValue::Bytes(bytes), .. } => scan.pass(bytes.len())?,
            Field { .. } => scan.pass(1)?,
        }
    }
    Ok(scan.unpacked)
}

fn check(count: usize, limit: usize, what: &'static str, setting: &'static str) -> Result<(), ScanEnd> {
    if count > limit { Err(ScanEnd::Refused(ExceededLimit::Parts { what, limit, setting })) } else { Ok(()) }
}

struct PredictScan {
    /// The number of bytes left in the budget.
    left: usize,
    unpacked: u64,
}

impl PredictScan {
    fn take(&mut self, bytes: u64) {
        self.unpacked = self.unpacked.saturating_add(bytes);
    }

    /// Takes the bytes of a field and its head from the budget.
    fn pass(&mut self, bytes: usize) -> Result<(), ScanEnd> {
        self.left = self.left.checked_sub(bytes.saturating_add(2)).ok_or(ScanEnd::Long)?;
        Ok(())
    }

    /// Scans an entry of the map of inputs.
    fn input(&mut self, entry: &[u8]) -> Result<(), ScanEnd> {
        self.take(ITEM);
        for field in MessageFields(entry) {
            match field {
                Field { number: 1, value: FieldValue::Bytes(name) } => {
                    self.take(name.len() as u64);
                    self.pass(name.len())?;
                }
                Field { number: 2, value: FieldValue::Bytes(tensor) } => self.tensor(tensor)?,
                Field { .. } => self.pass(8)?,
            }
        }
        Ok(())
    }

    /// Counts a list twice: as the decoded list, and as the tensor made from it.
    fn tensor(&mut self, tensor: &[u8]) -> Result<(), ScanEnd> {
        for Field { number, value } in MessageFields(tensor) {
            let bytes = if let FieldValue::Bytes(bytes) = value { bytes.len() } else { 8 };
            self.pass(if number == 4 { 0 } else { bytes })?;
            let numbers = |each: u64| value.numbers().saturating_mul(each);
            let taken = match number {
                2 => self.shape(&value)?,
                5 | 6 => (bytes as u64).saturating_mul(2),
                7 | 13 | 16 => numbers(8),
                8 => ELEMENT + bytes as u64,
                10 | 17 => numbers(16),
                11 => numbers(2),
                _ => 0,
            };
            self.take(taken);
        }
        Ok(())
    }

    /// The memory of the dimensions of a shape.
    fn shape(&mut self, value: &FieldValue<'_>) -> Result<u64, ScanEnd> {
        let FieldValue::Bytes(shape) = value else { return Ok(0) };
        let mut taken = DIM;
        for field in MessageFields(shape) {
            let bytes = if let FieldValue::Bytes(bytes) = field.value { bytes.len() } else { 8 };
            self.pass(bytes)?;
            taken = taken.saturating_add(DIM * 2 + bytes as u64);
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use sequor_proto::tensorflow::TensorProto;
    use sequor_proto::tensorflow::serving::PredictRequest;

    use super::*;

    fn message(tensor: &TensorProto, inputs: usize) -> Vec<u8> {
        let inputs = (0..inputs).map(|n| (format!("x{n}"), tensor.clone())).collect();
        PredictRequest { inputs, ..PredictRequest::default() }.encode_to_vec()
    }

    fn unpacked(tensor: &TensorProto) -> u64 {
        scan(&message(tensor, 1), &ServerLimits::default(), usize::MAX).expect("within its limits")
    }

    #[test]
    fn a_scan_counts_memory_of_lists_but_not_of_tensor_content() {
        let plain = unpacked(&TensorProto::default());
        assert_eq!(unpacked(&TensorProto { tensor_content: vec![1; 100_000].into(), ..TensorProto::default() }), plain);
        assert_eq!(unpacked(&TensorProto { int_val: vec![1; 1000], ..TensorProto::default() }), plain + 8000);
        assert_eq!(unpacked(&TensorProto { float_val: vec![1.0; 1000], ..TensorProto::default() }), plain + 8000);
        assert_eq!(unpacked(&TensorProto { uint64_val: vec![1; 1000], ..TensorProto::default() }), plain + 16000);
        let texts = TensorProto { string_val: vec![bytes::Bytes::new(); 1000], ..TensorProto::default() };
        assert_eq!(unpacked(&texts), plain + 40_000);
    }

    #[test]
    fn a_scan_stops_at_its_limits() {
        let limits = ServerLimits { inputs: 3, ..ServerLimits::default() };
        let refused = ExceededLimit::Parts { what: "inputs", limit: 3, setting: "limits.inputs" };
        assert_eq!(scan(&message(&TensorProto::default(), 4), &limits, usize::MAX), Err(ScanEnd::Refused(refused)));
        let ints = TensorProto { int_val: vec![1; 1000], ..TensorProto::default() };
        assert_eq!(scan(&message(&ints, 1), &limits, 500), Err(ScanEnd::Long));
        let content = TensorProto { tensor_content: vec![1; 100_000].into(), ..TensorProto::default() };
        assert!(scan(&message(&content, 1), &limits, 500).is_ok());
        let cut = message(&TensorProto { float_val: vec![1.0; 1000], ..TensorProto::default() }, 1);
        assert!(scan(&cut[..cut.len() / 2], &limits, usize::MAX).is_ok(), "decoding says what is wrong");
    }
}
