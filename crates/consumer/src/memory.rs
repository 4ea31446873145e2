//! The arena's segments: made one by one, against what the machine and the cgroups still give.

use std::sync::Arc;

use batchweave_arena::{ArenaError, MemoryLimits, Segment};

use crate::config::ArenaTable;

/// Makes segments.
#[derive(Debug)]
pub(crate) struct Memory {
    limits: MemoryLimits,
    segment_bytes: u64,
}

impl Memory {
    /// Refuses an arena that could never be made. What is left right now is compared segment by
    /// segment: after a restart the last daemon's arena may still be charged.
    pub(crate) fn new(table: &ArenaTable) -> Result<Self, String> {
        Self::within(MemoryLimits::default(), table)
    }

    fn within(limits: MemoryLimits, table: &ArenaTable) -> Result<Self, String> {
        let bytes = table.bytes.bytes();
        if let Some(limit) = limits.smallest_limit().filter(|limit| bytes > *limit) {
            return Err(format!(
                "{bytes} bytes are more than the cgroup's memory.max of {limit}"
            ));
        }
        if let Some(total) = machine_bytes().filter(|total| bytes > *total) {
            return Err(format!(
                "{bytes} bytes are more than this machine's memory of {total}"
            ));
        }
        Ok(Self {
            limits,
            segment_bytes: table.segment_bytes.bytes(),
        })
    }

    /// One more segment; takes a while, since it is populated.
    pub(crate) fn segment(&self) -> Result<Arc<Segment>, ArenaError> {
        Segment::create("batchweave-arena", self.segment_bytes, &self.limits)
    }
}

/// The machine's memory; None where the kernel does not say.
fn machine_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use batchweave_daemon::config::ByteSize;

    use super::*;

    #[test]
    fn an_arena_beyond_the_machine_is_refused_with_the_sizes() {
        let table = ArenaTable {
            bytes: ByteSize(1 << 50),
            ..ArenaTable::default()
        };
        let why = Memory::new(&table).expect_err("a pebibyte");
        assert!(
            why.contains("1125899906842624 bytes are more than"),
            "{why}"
        );
        assert!(
            Memory::new(&ArenaTable {
                bytes: ByteSize::mib(1),
                ..table
            })
            .is_ok()
        );
    }
    #[test]
    fn an_arena_beyond_the_cgroup_is_refused_with_the_sizes() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        std::fs::create_dir(dir.path().join("self")).unwrap();
        write("self/cgroup", "0::/\n");
        write("memory.max", "5000000\n");
        write("memory.current", "0\n");
        let within = |bytes| {
            let table = ArenaTable {
                bytes: ByteSize(bytes),
                ..ArenaTable::default()
            };
            Memory::within(MemoryLimits::at(dir.path(), dir.path()), &table)
        };
        assert!(within(5_000_000).is_ok());
        assert_eq!(
            within(5_000_001).expect_err("one byte too many"),
            "5000001 bytes are more than the cgroup's memory.max of 5000000"
        );
    }
}
