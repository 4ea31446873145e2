//! The kinds of store that a stream can be planned for, and how many requests each serves.

use serde::Serialize;

/// A kind of store that can be planned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Profile {
    #[serde(rename = "s3-standard")]
    S3Standard,
    #[serde(rename = "s3-express")]
    S3Express,
}

impl Profile {
    pub(super) const ALL: [Self; 2] = [Self::S3Standard, Self::S3Express];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::S3Standard => "s3-standard",
            Self::S3Express => "s3-express",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// Returns writes (PUT, POST, DELETE) per second, of a partitioned prefix or a directory bucket.
    pub(super) fn writes_per_second(self) -> f64 {
        match self {
            Self::S3Standard => 3500.0,
            Self::S3Express => 100_000.0,
        }
    }

    /// Returns reads (GET, HEAD, LIST) per second.
    pub(super) fn reads_per_second(self) -> f64 {
        match self {
            Self::S3Standard => 5500.0,
            Self::S3Express => 200_000.0,
        }
    }

    /// Returns the records per second that a leader writes when many producers commit.
    pub(super) fn records_per_second(self) -> f64 {
        match self {
            Self::S3Standard => 1.0 / 0.1,
            Self::S3Express => 1.0 / 0.018,
        }
    }
}
