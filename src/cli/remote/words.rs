//! Numbers as people read them in tables.

/// `9 / 80 us`, `0.6 / 1.9 ms`: both in the unit of the larger.
pub(super) fn pair(first_us: f64, second_us: f64) -> String {
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

/// `9ms`, `1.4s`, `6m51s`, `2h08m`.
pub(super) fn span(seconds: f64) -> String {
    let whole = seconds as u64;
    match seconds {
        s if s < 1.0 => format!("{:.0}ms", s * 1000.0),
        s if s < 60.0 => format!("{s:.1}s"),
        s if s < 3600.0 => format!("{}m{:02}s", whole / 60, whole % 60),
        _ => format!("{}h{:02}m", whole / 3600, whole / 60 % 60),
    }
}

/// `0.4`, `180`, `12.1k`.
pub(super) fn rate(of: f64) -> String {
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
        assert_eq!([pair(9.0, 80.0), pair(600.0, 1900.0), pair(0.0, 0.0)], ["9 / 80 us", "0.6 / 1.9 ms", "0 / 0 us"]);
        assert_eq!([0.0, 0.44, 410.0, 12_100.0].map(rate), ["0", "0.4", "410", "12.1k"]);
        assert_eq!([0.009, 1.4, 411.0, 7685.0].map(span), ["9ms", "1.4s", "6m51s", "2h08m"]);
    }
}
