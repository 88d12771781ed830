//! The header `traceparent` of W3C Trace Context: the span of the caller, and whether the caller traces.

/// The span that a request continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    pub(super) trace: u128,
    pub(super) span: u64,
    /// Whether the caller records its part of the trace.
    pub(super) is_sampled: bool,
}

impl TraceParent {
    /// Parses the header's value. `None` if it is malformed: the request then begins a trace of its own.
    pub fn parse(text: &str) -> Option<TraceParent> {
        let mut parts = text.trim().splitn(5, '-');
        let version = hex::<2>(parts.next()?)?;
        let (trace, span) = (hex::<32>(parts.next()?)?, hex::<16>(parts.next()?)?);
        let flags = hex::<2>(parts.next()?)?;
        // Later versions may add parts. Version 255 is forbidden.
        let is_valid = version != 0xff && (version != 0 || parts.next().is_none()) && trace != 0 && span != 0;
        let span = u64::try_from(span).ok()?;
        is_valid.then_some(TraceParent { trace, span, is_sampled: flags & 1 == 1 })
    }
}

/// Parses exactly `N` hexadecimal digits in lower case.
fn hex<const N: usize>(text: &str) -> Option<u128> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (text.len() == N && text.bytes().all(is_digit)).then(|| u128::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_trace_parent_names_the_callers_span_and_its_decision() {
        let parent = |flags: &str| TraceParent::parse(&format!("00-{TRACE}-00f067aa0ba902b7-{flags}"));
        let expected = |is_sampled| {
            Some(TraceParent {
                trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
                span: 0x00f0_67aa_0ba9_02b7,
                is_sampled,
            })
        };
        assert_eq!((parent("01"), parent("00")), (expected(true), expected(false)));
        assert_eq!((parent("03"), parent("02")), (expected(true), expected(false)), "other flags have no meaning here");
        let later = format!("01-{TRACE}-00f067aa0ba902b7-01-more");
        assert_eq!(TraceParent::parse(&later), expected(true));
    }

    #[test]
    fn malformed_trace_parents_are_ignored() {
        let zeros = "0".repeat(32);
        let malformed = [
            String::new(),
            "x".to_owned(),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("00-{TRACE}-00f067aa0ba902b7"),
            format!("00-{TRACE}-00f067aa0ba902b7-1"),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-{zeros}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{TRACE}-+0f067aa0ba902b7-01"),
        ];
        for text in malformed {
            assert_eq!(TraceParent::parse(&text), None, "{text}");
        }
    }
}
