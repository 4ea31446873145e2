//! A lower bound on the speed of a body: single bytes at long intervals do not count as progress.

use std::time::Duration;

/// Waiting time allowed in addition, for a busy store or a shared link.
const SLOW_AFTER: Duration = Duration::from_secs(30);
/// Bytes required per second of further waiting.
const BYTES_PER_SECOND_MIN: u64 = 4 << 10;

/// The time spent waiting for a body, and the bytes received. The reader's own time does not count.
#[derive(Default)]
pub(crate) struct Speed {
    waited: Duration,
    bytes: u64,
}

impl Speed {
    /// Records a wait that brought `bytes`; fails when the body is too slow overall.
    pub(crate) fn note(&mut self, waited: Duration, bytes: usize) -> Result<(), String> {
        self.waited += waited;
        self.bytes += bytes as u64;
        if self.waited <= SLOW_AFTER + Duration::from_secs(self.bytes / BYTES_PER_SECOND_MIN) {
            return Ok(());
        }
        let (bytes, seconds) = (self.bytes, self.waited.as_secs());
        Err(format!(
            "only {bytes} bytes of the body arrived in {seconds} s"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_per_second_is_too_slow_and_a_bad_link_is_not() {
        let second = Duration::from_secs(1);
        let mut drip = Speed::default();
        let error = (0..40).find_map(|_| drip.note(second, 1).err()).unwrap();
        assert_eq!(error, "only 31 bytes of the body arrived in 31 s");
        let mut slow = Speed::default();
        assert!((0..9999).all(|_| slow.note(second, 5 << 10).is_ok()));
        let mut late = Speed::default();
        assert!(late.note(9 * second, 1).is_ok() && late.note(9 * second, 1).is_ok());
    }
}
