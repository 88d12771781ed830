//! Formats numbers and times for tables, as short as possible.

/// Formats a time as `3 d 04:12` or `04:12:07`.
pub fn uptime(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    if days > 0 {
        return format!("{days} d {hours:02}:{minutes:02}");
    }
    format!("{hours:02}:{minutes:02}:{:02}", seconds % 60)
}

/// Formats a time as `9 us`, `41 ms`, `1.2 s`, `6m51s` or `2h08m`.
pub fn span(seconds: f64) -> String {
    let digits = |value: f64| usize::from(value < 10.0 && value.fract() > 0.049);
    let whole = seconds as u64;
    match seconds {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.*} ms", digits(s * 1e3), s * 1e3),
        s if s < 60.0 => format!("{:.*} s", digits(s), s),
        s if s < 3600.0 => format!("{}m{:02}s", whole / 60, whole % 60),
        _ => format!("{}h{:02}m", whole / 3600, whole / 60 % 60),
    }
}

/// Formats two times as `9 / 80 us` or `0.6 / 1.9 ms`, both in the unit of the larger.
pub fn pair(first_us: f64, second_us: f64) -> String {
    let (unit, name) = match first_us.max(second_us) {
        us if us < 1e3 => (1.0, "us"),
        us if us < 1e6 => (1e3, "ms"),
        _ => (1e6, "s"),
    };
    let in_unit = |us: f64| {
        let value = us / unit;
        if value >= 10.0 || value.fract() < 0.05 { format!("{value:.0}") } else { format!("{value:.1}") }
    };
    format!("{} / {} {name}", in_unit(first_us), in_unit(second_us))
}

/// Formats a rate as `0.4`, `180` or `12.8k`.
pub fn rate(of: f64) -> String {
    match of {
        n if n < 0.05 => "0".to_owned(),
        n if n < 10.0 => format!("{n:.1}"),
        n if n < 10_000.0 => format!("{n:.0}"),
        n => format!("{:.1}k", n / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([3.0 * 86_400.0 + 4.0 * 3600.0 + 725.0, 15_127.9].map(uptime), ["3 d 04:12", "04:12:07"]);
        assert_eq!(
            [0.0, 9e-6, 0.0006, 0.001, 0.0019, 0.041, 1.2, 12.0, 411.0, 7685.0].map(span),
            ["0 us", "9 us", "600 us", "1 ms", "1.9 ms", "41 ms", "1.2 s", "12 s", "6m51s", "2h08m"]
        );
        assert_eq!([pair(9.0, 80.0), pair(600.0, 1900.0), pair(0.0, 0.0)], ["9 / 80 us", "0.6 / 1.9 ms", "0 / 0 us"]);
        assert_eq!([0.0, 0.4, 180.2, 12_800.0].map(rate), ["0", "0.4", "180", "12.8k"]);
    }
}
