//! The time of day as RFC 3339, the form in stored objects.

use time::OffsetDateTime;

/// Returns the current time in UTC, in whole seconds: `1970-01-01T00:00:00Z`.
pub fn now() -> String {
    rfc3339(OffsetDateTime::now_utc())
}

fn rfc3339(time: OffsetDateTime) -> String {
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second) = time.to_hms();
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_match_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_000_000_000, "2001-09-09T01:46:40Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap();
            assert_eq!(rfc3339(time), text);
        }
    }
}
