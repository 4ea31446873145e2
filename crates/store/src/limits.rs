//! Time-outs and tries of requests to every store behind a network.

use std::time::Duration;

use crate::Patience;

pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time-out of a conditional put, plus the transfer of its body ([`transfer`]). The outcome is then read.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(4);
/// Time-out until the first byte of an answer.
pub(crate) const DATA_TIMEOUT: Duration = Duration::from_secs(10);
pub(crate) const DATA_ATTEMPTS: u32 = 5;
/// Longest wait for the next chunk of a body, after which it is resumed over a new connection.
pub(crate) const CHUNK_TIMEOUT: Duration = Duration::from_secs(10);
pub(crate) const RESUMES_MAX: u32 = 4;
/// Time after which an idle connection is closed. Stores close them sooner than hyper's 90 s, and the outcome
/// of a put on a closed connection is unknown.
pub(crate) const POOL_IDLE: Duration = Duration::from_secs(8);
/// Slowest acceptable upload of a body, in bytes per second.
const BYTES_PER_SECOND_MIN: u64 = 1 << 20;
/// Time-out per try with [`Patience::Short`].
const SHORT_TIMEOUT: Duration = Duration::from_secs(5);
const SHORT_ATTEMPTS: u32 = 2;
/// Times by which all waits are longer with [`Patience::Loaded`].
const LOADED: u32 = 15;

/// Returns the tries of a data request, and the time-out of each until the first byte of its answer.
pub(crate) fn tries(patience: Patience) -> (u32, Duration) {
    match patience {
        Patience::Long => (DATA_ATTEMPTS, DATA_TIMEOUT),
        Patience::Short => (SHORT_ATTEMPTS, SHORT_TIMEOUT),
        Patience::Loaded => (DATA_ATTEMPTS, DATA_TIMEOUT * LOADED),
    }
}

/// Returns the time-out of a conditional put of this many bytes.
pub(crate) fn commit(patience: Patience, bytes: usize) -> Duration {
    let answer = match patience {
        Patience::Long | Patience::Short => COMMIT_TIMEOUT,
        Patience::Loaded => COMMIT_TIMEOUT * LOADED,
    };
    answer + transfer(bytes)
}

/// Returns the time that a body of this many bytes may take.
pub(crate) fn transfer(bytes: usize) -> Duration {
    Duration::from_millis((bytes as u64).saturating_mul(1000) / BYTES_PER_SECOND_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_waits_at_most_ten_seconds() {
        let (tries, each) = tries(Patience::Short);
        assert!(each * tries <= Duration::from_secs(10));
        assert!(COMMIT_TIMEOUT < DATA_TIMEOUT);
    }
}
