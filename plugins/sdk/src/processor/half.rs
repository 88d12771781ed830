//! Conversions to and from 16-bit floating point.

/// The nearest `FP16` number; of two that are equally near, the even one.
pub(super) fn to_fp16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let size = bits & 0x7fff_ffff;
    if size > 0x7f80_0000 {
        return sign | 0x7e00;
    }
    // From 65520 on, infinity is nearer.
    if size >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    if size < 0x3880_0000 {
        // Below 2^-14 the numbers are multiples of 2^-24.
        return sign | (f32::from_bits(size) * 16_777_216.0).round_ties_even() as u16;
    }
    let even = size >> 13 & 1;
    sign | ((size + 0xfff + even - 0x3800_0000) >> 13) as u16
}

pub(super) fn from_fp16(half: u16) -> f32 {
    let (sign, exponent, fraction) = (u32::from(half & 0x8000) << 16, half >> 10 & 31, u32::from(half & 0x3ff));
    let size = match exponent {
        0 => return f32::from_bits(sign | (fraction as f32 / 16_777_216.0).to_bits()),
        31 => 0x7f80_0000 | fraction << 13,
        _ => (u32::from(exponent) + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | size)
}

/// The nearest `BF16` number; of two that are equally near, the even one.
pub(super) fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((u64::from(bits) + 0x7fff + u64::from(bits >> 16 & 1)) >> 16) as u16
}

pub(super) fn from_bf16(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_a_round_trip_through_f32() {
        for half in 0..=u16::MAX {
            let (float, brain) = (from_fp16(half), from_bf16(half));
            assert!(float.is_nan() || to_fp16(float) == half, "{half:#x}");
            assert!(brain.is_nan() || to_bf16(brain) == half, "{half:#x}");
        }
        assert!(from_fp16(to_fp16(f32::NAN)).is_nan() && from_bf16(to_bf16(f32::NAN)).is_nan());
    }

    #[test]
    fn numbers_between_two_halves_go_to_the_nearest() {
        let known = [(1.0, 0x3c00), (-2.0, 0xc000), (65504.0, 0x7bff), (65519.9, 0x7bff), (65520.0, 0x7c00), (1e-8, 0)];
        for (value, half) in known {
            assert_eq!(to_fp16(value), half, "{value}");
        }
        assert_eq!([1.0f32 + 1.0 / 2048.0, 1.0 + 3.0 / 2048.0].map(to_fp16), [0x3c00, 0x3c02], "ties go to even");
        assert_eq!([3e-8f32, 6e-5, -6.1e-5].map(to_fp16), [0x0001, 0x03ef, 0x83ff]);
        assert_eq!([1.0f32, 3.0, 1.003_906_3, f32::MAX].map(to_bf16), [0x3f80, 0x4040, 0x3f80, 0x7f80]);
    }
}
