//! A checkpoint mark: the job can restart from this step. Create-only. Its key holds all that reclamation
//! needs; its body is for restores and for people.

use serde::{Deserialize, Serialize};

use crate::error::FormatError;
use crate::ids::{AttemptId, AttemptNo, JobName, Step, StreamId, Version};
use crate::limits::MARK_BYTES_MAX;
use crate::{json, keys};

/// The content of a mark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// Format of this object; 1.
    pub format: u32,
    /// The stream that it belongs to.
    pub stream: StreamId,
    pub job: JobName,
    pub opened: Version,
    pub attempt: AttemptNo,
    pub id: AttemptId,
    /// The data coordinate; `None` when this marks for all.
    pub dp_rank: Option<u32>,
    /// Number of coordinates of the attempt.
    pub dp_size: u32,
    /// First step not yet trained.
    pub step: Step,
    /// The trainer's state as it was captured.
    pub state: String,
}

impl Mark {
    /// Returns the key of the mark.
    pub fn key(&self) -> String {
        keys::mark(
            &self.job,
            self.opened,
            self.attempt,
            self.step,
            self.dp_rank,
        )
    }

    /// Returns the bytes to store.
    pub fn to_json(&self) -> Vec<u8> {
        json::compact(self)
    }

    /// Decodes the mark at `key`; fails when it does not match the key.
    pub fn from_json(bytes: &[u8], key: &str, stream: StreamId) -> Result<Self, FormatError> {
        let mark: Self = json::parse(bytes, key, MARK_BYTES_MAX)?;
        FormatError::check_stream(key, mark.stream, stream)?;
        if mark.key() != key {
            let other = "holds another mark than its key says";
            return Err(FormatError::rule(key, other));
        }
        if mark.dp_rank.is_some_and(|rank| rank >= mark.dp_size) {
            let outside = "speaks for a data coordinate outside its own mesh";
            return Err(FormatError::rule(key, outside));
        }
        Ok(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Mark {
        Mark {
            format: 1,
            stream: StreamId::from_random([1; 16]),
            job: "llm".parse().unwrap(),
            opened: 4,
            attempt: 2,
            id: AttemptId([7; 16]),
            dp_rank: Some(3),
            dp_size: 4,
            step: 500,
            state: "{}".into(),
        }
    }

    #[test]
    fn a_mark_is_read_as_it_was_written_and_each_broken_rule_is_named() {
        let good = mark();
        let (key, stream) = (good.key(), good.stream);
        let read = |mark: &Mark| Mark::from_json(&mark.to_json(), &key, stream);
        assert_eq!(read(&good), Ok(good.clone()));
        let other = StreamId::from_random([2; 16]);
        let broken: [(Mark, &str); 5] = [
            (
                Mark {
                    stream: other,
                    ..mark()
                },
                "belongs to stream",
            ),
            (
                Mark {
                    step: 501,
                    ..mark()
                },
                "another mark",
            ),
            (
                Mark {
                    dp_rank: None,
                    ..mark()
                },
                "another mark",
            ),
            (
                Mark {
                    dp_size: 3,
                    ..mark()
                },
                "outside its own mesh",
            ),
            (
                Mark {
                    format: 2,
                    ..mark()
                },
                "upgrade",
            ),
        ];
        for (mark, reason) in broken {
            let refused = read(&mark).unwrap_err().to_string();
            assert!(
                refused.contains(reason) && refused.contains(&key),
                "{refused}"
            );
        }
        let state = "x".repeat(MARK_BYTES_MAX);
        let refused = read(&Mark { state, ..mark() }).unwrap_err();
        assert!(matches!(refused, FormatError::TooLarge { .. }));
        let unknown = String::from_utf8(good.to_json())
            .unwrap()
            .replace("\"opened\"", "\"opens\"");
        assert!(Mark::from_json(unknown.as_bytes(), &key, stream).is_err());
    }
}
