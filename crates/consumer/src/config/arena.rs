//! `[arena]`: the shared memory.

use batchweave_daemon::config::{ByteSize, Period};
use serde::{Deserialize, Serialize};

/// `[arena]`: the shared memory of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArenaTable {
    /// Upper bound of the shared memory; 0: derived from the machine's memory and limits.
    pub bytes: ByteSize,
    /// The arena grows by segments of this size; no slice may be larger.
    pub segment_bytes: ByteSize,
    /// Longest wait, after a restart, for ranks to unmap the last daemon's arena before this one grows.
    pub grow_after: Period,
    /// Ranks of this node. Once all are connected and none has an earlier daemon's arena mapped, it grows
    /// without that wait; 0: unknown.
    pub ranks: u32,
    /// The kind of pages of segments.
    pub huge_pages: HugePages,
    /// The NUMA node of the pages; -1: chosen by the kernel.
    pub numa_node: i64,
}

/// `arena.huge_pages`: the kind of pages of segments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HugePages {
    /// Huge pages if the kernel provides them.
    #[default]
    Auto,
    Off,
    /// Huge pages that an administrator has reserved.
    Reserved,
}

/// The size of a segment, unless the arena is smaller.
const SEGMENT: ByteSize = ByteSize::mib(64);

impl Default for ArenaTable {
    fn default() -> Self {
        Self {
            bytes: ByteSize(0),
            segment_bytes: SEGMENT,
            grow_after: Period::millis(30_000),
            ranks: 0,
            huge_pages: HugePages::Auto,
            numa_node: -1,
        }
    }
}

impl ArenaTable {
    /// Returns the configured NUMA node, if any.
    pub(crate) fn node(&self) -> Option<u32> {
        u32::try_from(self.numa_node).ok()
    }

    /// Returns the size of a segment: at the default no larger than the arena.
    pub(crate) fn segment(&self) -> ByteSize {
        let whole = ByteSize::mib(self.bytes.bytes() >> 20);
        if self.segment_bytes == SEGMENT && (ByteSize::mib(1)..SEGMENT).contains(&whole) {
            return whole;
        }
        self.segment_bytes
    }

    pub(super) fn check(&self, problem: &mut impl FnMut(&str, String)) {
        let (bytes, segment_bytes) = (&self.bytes, &self.segment());
        if segment_bytes.bytes() < 1 << 20 || !segment_bytes.bytes().is_multiple_of(1 << 20) {
            problem(
                "arena.segment_bytes",
                format!("{segment_bytes} must be a whole number of MiB"),
            );
        }
        if self.numa_node < -1 || self.numa_node > 1023 {
            let message = format!("{} is not -1 (any) or a node's number", self.numa_node);
            problem("arena.numa_node", message);
        }
        if segment_bytes > bytes && bytes.bytes() > 0 {
            let message = format!(
                "{segment_bytes} is more than arena.bytes ({bytes}): not one segment fits; lower it to that, or raise arena.bytes"
            );
            problem("arena.segment_bytes", message);
        }
    }
}
