//! The position of consecutive data coordinates of one node. The key says which and where; the body proves the stream and
//! the attempt that it belongs to.

use serde::{Deserialize, Serialize};

use crate::error::FormatError;
use crate::ids::{AttemptId, AttemptNo, JobName, Step, StreamId, Version};
use crate::limits::PROGRESS_BYTES_MAX;
use crate::{json, keys};

/// The content of a progress object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Format of this object; 1.
    pub format: u32,
    /// The stream that it belongs to.
    pub stream: StreamId,
    pub job: JobName,
    pub opened: Version,
    pub attempt: AttemptNo,
    pub id: AttemptId,
    /// The run of the daemon.
    pub node: String,
    pub first: u32,
    /// Last data coordinate, included.
    pub last: u32,
    /// All of them have received every step below this.
    pub step: Step,
    /// The time, for people; no decision depends on it.
    pub at: String,
}

impl Progress {
    /// Returns the key of the progress object.
    pub fn key(&self) -> String {
        let range = (self.first, self.last);
        let (job, node) = (&self.job, &self.node);
        keys::progress(job, self.opened, self.attempt, self.step, range, node)
    }

    /// Returns the bytes to store.
    pub fn to_json(&self) -> Vec<u8> {
        json::compact(self)
    }

    /// Decodes the progress object at `key`; fails when it does not match the key.
    pub fn from_json(bytes: &[u8], key: &str, stream: StreamId) -> Result<Self, FormatError> {
        let progress: Self = json::parse(bytes, key, PROGRESS_BYTES_MAX)?;
        FormatError::check_stream(key, progress.stream, stream)?;
        if progress.key() != key {
            let other = "holds other progress than its key says";
            return Err(FormatError::rule(key, other));
        }
        Ok(progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_as_it_was_written_and_refused_elsewhere() {
        let good = Progress {
            format: 1,
            stream: StreamId::from_random([1; 16]),
            job: "llm".parse().unwrap(),
            opened: 4,
            attempt: 2,
            id: AttemptId([7; 16]),
            node: "a1".into(),
            first: 0,
            last: 3,
            step: 500,
            at: "2026-11-21T00:00:00Z".into(),
        };
        let (key, stream) = (good.key(), good.stream);
        assert!(keys::parse_progress(&key).is_some());
        let bytes = good.to_json();
        assert_eq!(Progress::from_json(&bytes, &key, stream), Ok(good.clone()));
        let other = StreamId::from_random([2; 16]);
        let refused = Progress::from_json(&bytes, &key, other).unwrap_err();
        assert!(refused.to_string().contains("belongs to stream"));
        let moved = Progress { step: 501, ..good };
        let refused = Progress::from_json(&moved.to_json(), &key, stream).unwrap_err();
        assert!(refused.to_string().contains("other progress"));
    }
}
