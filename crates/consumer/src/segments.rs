//! The segments of the arena: created one by one, checked against the memory that the machine and the
//! cgroups allow, and when the arena may grow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use batchweave_arena::{ArenaError, MemoryLimits, Pages, Segment, memory_nodes};

use crate::config::{ArenaTable, HugePages};

/// Share of the tightest cgroup limit: after a restart two arenas exist for a while, and the daemon needs
/// memory, too.
const PERCENT_OF_LIMIT: u64 = 45;
/// Share of the machine's memory, where no limit is tighter: the rest belongs to the trainer.
const PERCENT_OF_MACHINE: u64 = 25;

/// Creates the segments of the arena.
#[derive(Debug)]
pub(crate) struct SegmentMaker {
    limits: MemoryLimits,
    bytes: u64,
    segment_bytes: u64,
    pages: Pages,
    node: Option<u32>,
    reported_small_pages: AtomicBool,
}

/// The condition on growing beyond one segment after a restart: ranks may still have the arena of the last
/// daemon mapped, and both arenas together could get the trainer killed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growth {
    /// The arena may grow in any case once the daemon has run for this long.
    pub(crate) after: Duration,
    /// It may grow earlier once this many ranks are connected and none has an earlier arena mapped;
    /// 0: unknown.
    pub(crate) ranks: u32,
}

impl SegmentMaker {
    /// Fails when an arena of the configured size can never exist here. Memory in use is not counted: after
    /// a restart the last daemon's arena may still be charged, so it is checked segment by segment.
    pub(crate) fn new(table: &ArenaTable) -> Result<Self, String> {
        Self::within(MemoryLimits::default(), table)
    }

    pub(crate) fn within(limits: MemoryLimits, table: &ArenaTable) -> Result<Self, String> {
        let (bytes, segment_bytes) = (table.bytes.bytes(), table.segment().bytes());
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
            reported_small_pages: AtomicBool::new(false),
        })
    }

    /// The size of the fully grown arena, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Creates and populates one more segment. Blocks for a while.
    pub(crate) fn create(&self) -> Result<Arc<Segment>, ArenaError> {
        let (bytes, limits) = (self.segment_bytes, &self.limits);
        let (pages, node) = (self.pages, self.node);
        let segment = Segment::create_with("batchweave-arena", bytes, limits, pages, node)?;
        if let Some(why) = segment.not_huge()
            && !self.reported_small_pages.swap(true, Ordering::Relaxed)
        {
            tracing::info!(%why, "no huge pages for the arena: it has small ones");
        }
        Ok(segment)
    }

    /// Creates a segment on a thread of its own, and passes it to `done` there.
    pub(crate) fn create_in_background(
        self: &Arc<Self>,
        done: impl FnOnce(Result<Arc<Segment>, ArenaError>) + Send + 'static,
    ) {
        let maker = Arc::clone(self);
        tokio::task::spawn_blocking(move || done(maker.create()));
    }
}

/// Fails when the configured memory node does not exist on this machine.
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

/// Derives the size from the limits that are visible, in whole segments.
fn automatic(limits: &MemoryLimits, segment_bytes: u64) -> Result<u64, String> {
    let limit = limits.smallest_limit().map(|b| b / 100 * PERCENT_OF_LIMIT);
    let machine = limits.machine_bytes().map(|b| b / 100 * PERCENT_OF_MACHINE);
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
