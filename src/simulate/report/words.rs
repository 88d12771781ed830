//! Formatting of numbers for people.

/// `412,118`.
pub(super) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Microseconds in the unit that fits: `0`, `85 us`, `6.1 ms`, `142 ms`, `2.5 s`.
pub(super) fn span(micros: f64) -> String {
    let (value, unit) = match micros {
        m if m < 0.05 => return "0".to_owned(),
        m if m < 999.5 => (m, "us"),
        m if m < 999_500.0 => (m / 1e3, "ms"),
        m => (m / 1e6, "s"),
    };
    let value = if value < 99.95 { short(&format!("{value:.1}")).to_owned() } else { format!("{value:.0}") };
    format!("{value} {unit}")
}

/// The same for a time that is not zero: `under 0.1 us` if it is too short for [`span`].
pub(super) fn short_span(micros: f64) -> String {
    if micros > 0.0 && micros < 0.05 { "under 0.1 us".to_owned() } else { span(micros) }
}

/// Removes `.0`: `10.0` becomes `10`.
fn short(number: &str) -> &str {
    number.strip_suffix(".0").unwrap_or(number)
}

/// At most three decimals, without trailing zeros.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `60 s`, `10 min`, `2.5 h`.
pub(super) fn long_span(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 120.0 => (s, "s"),
        s if s < 7200.0 => (s / 60.0, "min"),
        s => (s / 3600.0, "h"),
    };
    format!("{} {unit}", short(&format!("{value:.1}")))
}

/// `88 %`.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// `4.10 %`.
pub(super) fn fine_percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// `1 sequence`, `2 sequences`.
pub(super) fn some(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_grouped() {
        assert_eq!([short_span(0.0), short_span(0.004), short_span(85.0)], ["0", "under 0.1 us", "85 us"]);
        assert_eq!([count(7), count(1904), count(412_118), count(1_000_000)], ["7", "1,904", "412,118", "1,000,000"]);
        let spans: Vec<String> = [0.0, 0.5, 85.0, 999.4, 999.6, 6100.0, 6000.0, 142_400.0, 999_600.0, 2_489_000.0]
            .into_iter()
            .map(span)
            .collect();
        assert_eq!(spans, ["0", "0.5 us", "85 us", "999 us", "1 ms", "6.1 ms", "6 ms", "142 ms", "1 s", "2.5 s"]);
        assert_eq!([long_span(60.0), long_span(600.0), long_span(9000.0)], ["60 s", "10 min", "2.5 h"]);
        assert_eq!([number(0.1 * 3.0), number(20.0), number(0.0)], ["0.3", "20", "0"]);
        assert_eq!([percent(0.876), fine_percent(0.041)], ["88 %", "4.10 %"]);
    }
}
