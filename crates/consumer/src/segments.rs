//! The arena's segments: made one by one, against what the machine and the cgroups still give.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use batchweave_arena::{ArenaError, MemoryLimits, Pages, Segment, memory_nodes};

use crate::config::{ArenaTable, HugePages};

/// Of the tightest limit: after a restart there are two arenas for a while, and the daemon's own memory.
const PERCENT_OF_LIMIT: u64 = 45;
/// Of the machine, where no limit is tighter: the rest is the trainer's.
const PERCENT_OF_MACHINE: u64 = 25;

/// Makes segments.
#[derive(Debug)]
pub(crate) struct Memory {
    limits: MemoryLimits,
    bytes: u64,
    segment_bytes: u64,
    pages: Pages,
    node: Option<u32>,
    told_not_huge: AtomicBool,
}

impl Memory {
    /// Refuses an arena that could never be made. What is left right now is compared segment by
    /// segment: after a restart the last daemon's arena may still be charged.
    pub(crate) fn new(table: &ArenaTable) -> Result<Self, String> {
        Self::within(MemoryLimits::default(), table)
    }

    pub(crate) fn within(limits: MemoryLimits, table: &ArenaTable) -> Result<Self, String> {
        let (bytes, segment_bytes) = (table.bytes.bytes(), table.segment_bytes.bytes());
        let bytes = match bytes {
            0 => automatic(&limits, segment_bytes)?,
            bytes => given(&limits, bytes)?,
        };
        Ok(Self {
            limits,
            bytes,
            segment_bytes,
            pages: match table.huge_pages {
                HugePages::Auto => Pages::HugeIfAny,
                HugePages::Off => Pages::Small,
                HugePages::Reserved => Pages::HugeReserved,
            },
            node: table.node(),
            told_not_huge: AtomicBool::new(false),
        })
    }

    /// Of the arena when it is fully grown.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// One more segment; takes a while, since it is populated.
    pub(crate) fn segment(&self) -> Result<Arc<Segment>, ArenaError> {
        let (bytes, limits) = (self.segment_bytes, &self.limits);
        let (pages, node) = (self.pages, self.node);
        let segment = Segment::create_with("batchweave-arena", bytes, limits, pages, node)?;
        if let Some(why) = segment.not_huge()
            && !self.told_not_huge.swap(true, Ordering::Relaxed)
        {
            tracing::info!(%why, "no huge pages for the arena: it has small ones");
        }
        Ok(segment)
    }
}

/// Refuses a memory node that the machine does not have.
pub(crate) fn check_node(table: &ArenaTable) -> Result<(), String> {
    let nodes = memory_nodes();
    let Some(node) = table.node().filter(|node| !nodes.contains(node)) else {
        return Ok(());
    };
    let nodes: Vec<String> = nodes.iter().map(u32::to_string).collect();
    Err(format!(
        "{node}: this machine has memory on node {}; take one of them, or -1 for any",
        nodes.join(", ")
    ))
}

fn given(limits: &MemoryLimits, bytes: u64) -> Result<u64, String> {
    if let Some(limit) = limits.smallest_limit().filter(|limit| bytes > *limit) {
        return Err(format!(
            "{bytes} bytes are more than the cgroup's memory limit of {limit}"
        ));
    }
    if let Some(total) = limits.machine_bytes().filter(|total| bytes > *total) {
        return Err(format!(
            "{bytes} bytes are more than this machine's memory of {total}"
        ));
    }
    Ok(bytes)
}

/// From the limits that can be seen; whole segments.
fn automatic(limits: &MemoryLimits, segment_bytes: u64) -> Result<u64, String> {
    let limit = limits.smallest_limit().map(|b| b / 100 * PERCENT_OF_LIMIT);
    let machine = limits.machine_bytes();
    let machine = machine.map(|b| b / 100 * PERCENT_OF_MACHINE);
    let Some(share) = limit.into_iter().chain(machine).min() else {
        return Err("no limit and no size of the machine can be read: give a size".to_owned());
    };
    let bytes = share - share % segment_bytes;
    if bytes == 0 {
        return Err(format!(
            "0B makes it {share} bytes here ({PERCENT_OF_LIMIT} % of the cgroup's memory limit, at most \
             {PERCENT_OF_MACHINE} % of the machine), less than one segment of {segment_bytes}: lower \
             arena.segment_bytes, or give a size"
        ));
    }
    tracing::info!(
        bytes,
        share,
        "the arena's size, from the memory that there is"
    );
    Ok(bytes)
}

#[cfg(test)]
mod tests;
