//! Reads one source of several in its order. Runs in a blocking thread.

use std::sync::Arc;

use batchweave_core::order::{Position, SourceOrder, Walk};
use tokio_util::sync::CancellationToken;

use super::new_files::{NewFilePoller, Waited};
use super::read::{CHUNK_BYTES, CHUNK_UNITS, Chunk, ReadEnd, ReadItem};
use crate::config::Selection;
use crate::sources::{Inputs, SourceError, SourceFiles, SourcePlan, Unit};

/// The source and the place at which it begins.
#[derive(Debug)]
pub(super) struct SourceReader {
    pub(super) inputs: Arc<Inputs>,
    pub(super) plan: Arc<SourcePlan>,
    /// Index of the source.
    pub(super) source: usize,
    pub(super) from: Position,
    /// The documents that are taken; all without it.
    pub(super) selection: Option<Selection>,
    /// Polls for more files, for a source that is followed.
    pub(super) new_files: Option<NewFilePoller>,
}

impl SourceReader {
    /// Reads to the end of all passes, until `sink` returns false or `stop` is cancelled.
    pub(super) fn run(
        &self,
        stop: &CancellationToken,
        mut sink: impl FnMut(ReadItem) -> bool,
    ) -> Result<ReadEnd, SourceError> {
        let Some(new_files) = &self.new_files else {
            return match self.plan.order(0) {
                Some(order) => self.walk(&order, (self.from, self.plan.passes), stop, &mut sink),
                None => Ok(ReadEnd::Complete),
            };
        };
        let mut from = self.from;
        loop {
            // A growth counts as a pass.
            while let Some(order) = self.plan.order(from.pass) {
                let passes = (from, from.pass + 1);
                if self.walk(&order, passes, stop, &mut sink)? == ReadEnd::Stopped {
                    return Ok(ReadEnd::Stopped);
                }
                from = Position::pass(from.pass + 1);
            }
            tracing::debug!(
                source = self.plan.name(),
                "all files are read; waits for new ones"
            );
            match new_files.wait(stop)? {
                Waited::Grown(list) if sink(ReadItem::Grown(list)) => {}
                Waited::Ended => return Ok(ReadEnd::Complete),
                _ => return Ok(ReadEnd::Stopped),
            }
        }
    }

    /// Reads from a position on, up to this number of passes; 0 reads for ever.
    fn walk(
        &self,
        order: &SourceOrder,
        (from, passes): (Position, u64),
        stop: &CancellationToken,
        sink: &mut impl FnMut(ReadItem) -> bool,
    ) -> Result<ReadEnd, SourceError> {
        let list = self.inputs.now();
        let files = SourceFiles {
            list: &list,
            options: &self.plan.options,
        };
        let mut walk = Walk::new(order, files, passes, from);
        let mut selection = self.selection.clone();
        let mut chunk = Chunk::new(self.source);
        let mut bytes = 0;
        loop {
            if stop.is_cancelled() {
                return Ok(ReadEnd::Stopped);
            }
            let next = walk.next_document()?;
            let mut takes = |unit: &Unit| match &mut selection {
                Some(selection) => selection.takes(&list, unit.place),
                None => true,
            };
            if next.as_ref().is_some_and(|(_, unit)| !takes(unit)) {
                continue;
            }
            let new_pass = next.as_ref().is_none_or(|(at, _)| at.pass != chunk.pass);
            let full = bytes >= CHUNK_BYTES || chunk.units.len() >= CHUNK_UNITS;
            if !chunk.units.is_empty() && (new_pass || full) {
                let full = std::mem::replace(&mut chunk, Chunk::new(self.source));
                bytes = 0;
                if !sink(ReadItem::Chunk(full)) {
                    return Ok(ReadEnd::Stopped);
                }
            }
            let Some((at, unit)) = next else {
                return Ok(ReadEnd::Complete);
            };
            bytes += unit.bytes();
            chunk.pass = at.pass;
            chunk.units.push(unit);
            chunk.positions.push(at);
        }
    }
}
