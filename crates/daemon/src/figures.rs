//! Numbers as people read them: counts, rates and times, alike in all programs.

/// Formats 1234567 as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with two or three digits and a unit of thousands: `12.3`, `950`, `3.15M`, `67.1B`.
pub fn short(number: f64) -> String {
    let units = ["", "k", "M", "B", "T"];
    let (mut value, mut unit) = (number, 0);
    // From 999.5 on, three digits would round to 1000.
    while value.abs() >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = match value.abs() {
        v if v >= 99.95 || v.fract() == 0.0 && unit == 0 => 0,
        v if v >= 9.995 || unit == 0 && v >= 0.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}{}", units[unit])
}

/// Formats seconds by their two largest units: `0.4 s`, `41 s`, `12 min 5 s`, `3 h 20 min`, `2 d 4 h`.
pub fn period(seconds: f64) -> String {
    if !seconds.is_finite() {
        return "unknown".to_owned();
    }
    if seconds < 9.95 {
        return format!("{:.1} s", seconds.max(0.0));
    }
    let whole = seconds.round() as u64;
    let two = |large: u64, small: u64, names: (&str, &str)| match small {
        0 => format!("{large} {}", names.0),
        _ => format!("{large} {} {small} {}", names.0, names.1),
    };
    let (minutes, hours, days) = (whole / 60, whole / 3600, whole / 86_400);
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => two(minutes, whole % 60, ("min", "s")),
        3600..86_400 => two(hours, minutes % 60, ("h", "min")),
        _ => two(days, hours % 24, ("d", "h")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        let cases = [
            (0.0, "0"),
            (0.05, "0.05"),
            (7.0, "7"),
            (7.26, "7.3"),
            (12.34, "12.3"),
            (950.0, "950"),
            (999.6, "1.00k"),
            (1_048_576.0, "1.05M"),
            (67_100_000_000.0, "67.1B"),
            (5.8e12, "5.80T"),
            (5.8e15, "5800T"),
        ];
        for (number, text) in cases {
            assert_eq!(short(number), text, "{number}");
        }
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "1,234,567"]
        );
    }

    #[test]
    fn times_have_their_two_largest_units() {
        let cases = [
            (0.04, "0.0 s"),
            (9.94, "9.9 s"),
            (9.96, "10 s"),
            (59.4, "59 s"),
            (59.6, "1 min"),
            (725.0, "12 min 5 s"),
            (3600.0, "1 h"),
            (12_000.0, "3 h 20 min"),
            (187_200.0, "2 d 4 h"),
            (f64::INFINITY, "unknown"),
        ];
        for (seconds, text) in cases {
            assert_eq!(period(seconds), text, "{seconds}");
        }
    }
}
