//! Looks for NaN and infinity in the bytes of a tensor.
//!
//! A number is neither if its bits, without the sign, are at most those of the largest finite number. The loops have no branches, so that the
//! compiler vectorises them.

use sequor_core::DataType;

/// Finds NaN and infinity in numbers of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FiniteCheck {
    bits: Bits,
    /// Bits of the largest number that counts as finite.
    last: u64,
    /// Bits of infinity. A NaN has larger ones.
    infinity: u64,
}

/// Bits of one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bits {
    B16,
    B32,
    B64,
}

/// A kind of value that is not a finite number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NonFinite {
    Infinity,
    Nan,
}

impl FiniteCheck {
    /// Creates the check for numbers of type `dtype` that are stored as `kept`. A number that becomes infinite in `kept` counts as
    /// infinite. `None` for a type without NaN.
    pub fn new(dtype: DataType, kept: DataType) -> Option<FiniteCheck> {
        let (bits, last, infinity) = match (dtype, kept) {
            (DataType::Fp16, _) => (Bits::B16, 0x7bff, 0x7c00),
            (DataType::Bf16, _) => (Bits::B16, 0x7f7f, 0x7f80),
            // The largest number that the conversion does not round to infinity.
            (DataType::Fp32, DataType::Fp16) => (Bits::B32, 0x477f_efff, 0x7f80_0000),
            (DataType::Fp32, DataType::Bf16) => (Bits::B32, 0x7f7f_7fff, 0x7f80_0000),
            (DataType::Fp32, _) => (Bits::B32, 0x7f7f_ffff, 0x7f80_0000),
            (DataType::Fp64, _) => (Bits::B64, 0x7fef_ffff_ffff_ffff, 0x7ff0_0000_0000_0000),
            _ => return None,
        };
        Some(FiniteCheck { bits, last, infinity })
    }

    /// Whether these bytes contain a NaN or an infinity. A NaN takes precedence.
    pub fn find(&self, bytes: &[u8]) -> Option<NonFinite> {
        if !self.has_above(bytes, self.last) {
            return None;
        }
        Some(if self.has_above(bytes, self.infinity) { NonFinite::Nan } else { NonFinite::Infinity })
    }

    fn has_above(&self, bytes: &[u8], bits: u64) -> bool {
        match self.bits {
            Bits::B16 => i16::try_from(bits).is_ok_and(|bits| has_above_16(bytes, bits)),
            Bits::B32 => i32::try_from(bits).is_ok_and(|bits| has_above_32(bytes, bits)),
            Bits::B64 => i64::try_from(bits).is_ok_and(|bits| has_above_64(bytes, bits)),
        }
    }
}

macro_rules! has_above {
    ($($name:ident: $int:ident),*) => { $(
        /// Whether some number, without its sign, has larger bits than `bits`. Then the difference is negative, and so is the OR of all
        /// differences.
        fn $name(bytes: &[u8], bits: $int) -> bool {
            let numbers = bytes.as_chunks::<{ size_of::<$int>() }>().0;
            numbers.iter().fold(0, |all, number| all | bits.wrapping_sub($int::from_le_bytes(*number) & $int::MAX)) < 0
        }
    )* };
}
has_above!(has_above_16: i16, has_above_32: i32, has_above_64: i64);

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    fn found(dtype: DataType, kept: DataType, bytes: &[u8]) -> Option<NonFinite> {
        FiniteCheck::new(dtype, kept).expect("a type with NaN").find(bytes)
    }

    fn fp32(kept: DataType, numbers: &[f32]) -> Option<NonFinite> {
        found(DataType::Fp32, kept, &numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>())
    }

    #[test]
    fn non_finite_values_are_found_in_every_float_type_and_position() {
        fn all<T: Copy, const N: usize>(
            dtype: DataType,
            bytes: fn(T) -> [u8; N],
            good: &[T],
            bad: [(T, NonFinite); 4],
        ) {
            let good: Vec<u8> = good.iter().cycle().take(37).flat_map(|n| bytes(*n)).collect();
            assert_eq!(found(dtype, dtype, &good), None, "{dtype}");
            for place in 0..37 {
                for (number, what) in bad {
                    let mut data = good.clone();
                    data[place * N..(place + 1) * N].copy_from_slice(&bytes(number));
                    assert_eq!(found(dtype, dtype, &data), Some(what), "{dtype} {place}");
                }
            }
        }
        let (inf, nan) = (NonFinite::Infinity, NonFinite::Nan);
        all(
            DataType::Fp32,
            f32::to_le_bytes,
            &[0.0, -0.0, f32::MAX, f32::MIN, f32::MIN_POSITIVE, -1.5],
            [(f32::INFINITY, inf), (f32::NEG_INFINITY, inf), (f32::NAN, nan), (-f32::NAN, nan)],
        );
        all(
            DataType::Fp64,
            f64::to_le_bytes,
            &[0.0, -0.0, f64::MAX, f64::MIN, f64::MIN_POSITIVE, -1.5],
            [(f64::INFINITY, inf), (f64::NEG_INFINITY, inf), (f64::NAN, nan), (-f64::NAN, nan)],
        );
        all(
            DataType::Fp16,
            f16::to_le_bytes,
            &[f16::ZERO, f16::NEG_ZERO, f16::MAX, f16::MIN, f16::NEG_ONE],
            [(f16::INFINITY, inf), (f16::NEG_INFINITY, inf), (f16::NAN, nan), (-f16::NAN, nan)],
        );
        all(
            DataType::Bf16,
            bf16::to_le_bytes,
            &[bf16::ZERO, bf16::NEG_ZERO, bf16::MAX, bf16::MIN, bf16::NEG_ONE],
            [(bf16::INFINITY, inf), (bf16::NEG_INFINITY, inf), (bf16::NAN, nan), (-bf16::NAN, nan)],
        );
        assert_eq!(FiniteCheck::new(DataType::Int32, DataType::Int32), None);
        assert_eq!(fp32(DataType::Fp32, &[f32::INFINITY, f32::NAN]), Some(nan), "a NaN says more");
    }

    /// The limits are those of the conversion: the last number that stays finite, and the next one.
    #[test]
    fn a_value_that_overflows_its_storage_type_counts_as_infinite() {
        for (kept, last) in [(DataType::Fp16, 0x477f_efff_u32), (DataType::Bf16, 0x7f7f_7fff)] {
            for sign in [0, 1 << 31] {
                let (inside, outside) = (f32::from_bits(sign | last), f32::from_bits(sign | (last + 1)));
                let is_finite = |n: f32| match kept {
                    DataType::Fp16 => f16::from_f32(n).is_finite(),
                    _ => bf16::from_f32(n).is_finite(),
                };
                assert!(is_finite(inside) && !is_finite(outside), "{kept}");
                assert_eq!((fp32(kept, &[inside]), fp32(kept, &[outside])), (None, Some(NonFinite::Infinity)));
            }
            assert_eq!(fp32(kept, &[f32::NAN]), Some(NonFinite::Nan));
        }
    }
}
