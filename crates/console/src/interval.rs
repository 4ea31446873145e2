//! The option for the interval between updates.

use batchweave_daemon::config::Period;

/// Parses the interval between updates; a number without a unit is seconds.
pub fn interval(text: &str) -> Result<Period, String> {
    let bare = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let period: Period = if bare {
        format!("{text}s").parse()?
    } else {
        text.parse()?
    };
    if period.0.is_zero() {
        return Err(format!(
            "invalid interval \"{text}\": expected at least 1ms, for example \"2s\""
        ));
    }
    Ok(period)
}
