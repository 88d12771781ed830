//! Decodes the µ-law encoding of ITU-T G.711.

/// Decodes each byte to one 16-bit sample.
pub fn decode(codes: &[u8]) -> Vec<i16> {
    codes.iter().map(|code| sample(*code)).collect()
}

fn sample(code: u8) -> i16 {
    let code = !code;
    let (exponent, mantissa) = (code >> 4 & 7, i16::from(code & 15));
    let size = (((mantissa << 3) + 0x84) << exponent) - 0x84;
    if code & 0x80 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mu_law_codes_decode_to_the_values_of_the_standard() {
        let known = [(0x00, -32124), (0x7f, 0), (0x80, 32124), (0xff, 0), (0xf0, 120), (0x8f, 16764), (0x2a, -5372)];
        for (code, value) in known {
            assert_eq!(sample(code), value, "{code:#x}");
        }
    }
}
