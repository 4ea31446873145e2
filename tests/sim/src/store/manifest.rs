//! The time that the bytes of a version of the manifest take, where it is not a record of changes: other systems write the
//! whole manifest again, or a list of its chunks and the newest of them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use batchweave_core::keys;
use batchweave_store::Op;

/// Bytes of an entry, and of a reference to a chunk.
const ENTRY_BYTES: u64 = 120;
const REFERENCE_BYTES: u64 = 100;
/// Entries of a chunk.
const CHUNK: u64 = 1024;
/// Bytes per second of one request.
const BANDWIDTH: u64 = 100_000_000;

/// The content of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ManifestKind {
    /// The changes of one commit, as in this project.
    #[default]
    Delta,
    /// All entries of all commits.
    Rewrite,
    /// A reference to each full chunk of entries, and the newest ones.
    Chunked,
}

/// A kind of manifest that has some entries at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ManifestPlan {
    pub kind: ManifestKind,
    pub history: u64,
}

impl ManifestPlan {
    /// Returns the time in which the bytes of a version travel, when `entries` were added to it.
    pub(super) fn takes(self, op: Op, key: &str, entries: u64) -> Duration {
        let carries = matches!(op, Op::Create | Op::Get) && key.starts_with(keys::LOG);
        let all = self.history + entries;
        let bytes = match self.kind {
            _ if !carries => 0,
            ManifestKind::Delta => 0,
            ManifestKind::Rewrite => all * ENTRY_BYTES,
            ManifestKind::Chunked => all / CHUNK * REFERENCE_BYTES + all % CHUNK * ENTRY_BYTES,
        };
        Duration::from_nanos(bytes * 1_000_000_000 / BANDWIDTH)
    }
}

impl fmt::Display for ManifestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Delta => "delta",
            Self::Rewrite => "rewrite",
            Self::Chunked => "rewrite-chunked",
        })
    }
}

impl FromStr for ManifestKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        [Self::Delta, Self::Rewrite, Self::Chunked]
            .into_iter()
            .find(|kind| kind.to_string() == name)
            .ok_or_else(|| format!("unknown manifest {name:?}: delta, rewrite, rewrite-chunked"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_takes_the_time_of_its_bytes() {
        let takes = |kind, op, key, entries| {
            let plan = ManifestPlan {
                kind,
                history: 999_000,
            };
            plan.takes(op, key, entries)
        };
        let log = format!("{}0000", keys::LOG);
        let ms = Duration::from_millis;
        assert_eq!(
            takes(ManifestKind::Rewrite, Op::Create, &log, 1000),
            ms(1200)
        );
        assert_eq!(takes(ManifestKind::Delta, Op::Create, &log, 1000), ms(0));
        assert_eq!(takes(ManifestKind::Rewrite, Op::Get, "data/x", 1000), ms(0));
        let chunked = takes(ManifestKind::Chunked, Op::Get, &log, 1000);
        assert!((ms(1)..ms(3)).contains(&chunked), "{chunked:?}");
    }
}
