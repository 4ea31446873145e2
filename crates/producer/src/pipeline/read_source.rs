//! Reads one source in its order. Runs in a blocking thread.

use std::sync::Arc;

use batchweave_core::order::{Position, SourceOrder, Walk};
use tokio_util::sync::CancellationToken;

use super::new_files::{NewFilePoller, Waited};
use super::read::{Chunk, ChunkSize, ReadEnd, ReadItem};
use crate::config::Selection;
use crate::sources::{
    FileReader, InputList, Inputs, Place, SourceError, SourceFiles, SourcePlan, Unit,
};

/// The source and the place at which it begins.
#[derive(Debug)]
pub struct SourceReader {
    pub inputs: Arc<Inputs>,
    pub plan: Arc<SourcePlan>,
    /// Index of the source.
    pub source: usize,
    pub from: Position,
    /// The documents that are taken; all without it.
    pub selection: Option<Selection>,
    /// Polls for more files, for a source that is followed.
    pub new_files: Option<NewFilePoller>,
    /// The size at which a chunk is full.
    pub full: ChunkSize,
}

impl SourceReader {
    /// Reads to the end of all passes, and gives each item to `sink`, until `sink` returns false or `stop` is cancelled.
    pub fn run(
        &self,
        stop: &CancellationToken,
        mut sink: impl FnMut(ReadItem) -> bool,
    ) -> Result<ReadEnd, SourceError> {
        if self.plan.is_in_file_order() {
            return self.files(stop, &mut sink);
        }
        let Some(new_files) = &self.new_files else {
            return match self.plan.blocks(0) {
                Some(order) => self.walk(&order, self.from, self.plan.passes, stop, &mut sink),
                None => Ok(ReadEnd::Complete),
            };
        };
        let mut from = self.from;
        loop {
            // A growth counts as a pass.
            while let Some(order) = self.plan.blocks(from.pass) {
                if self.walk(&order, from, from.pass + 1, stop, &mut sink)? == ReadEnd::Stopped {
                    return Ok(ReadEnd::Stopped);
                }
                from = Position::pass(from.pass + 1);
            }
            if let Some(end) = self.wait(new_files, stop, &mut sink)? {
                return Ok(end);
            }
        }
    }

    /// Waits for more files; returns how reading ends when none come.
    fn wait(
        &self,
        new_files: &NewFilePoller,
        stop: &CancellationToken,
        sink: &mut impl FnMut(ReadItem) -> bool,
    ) -> Result<Option<ReadEnd>, SourceError> {
        tracing::debug!(
            source = self.plan.name(),
            "all files are read; waits for new ones"
        );
        Ok(match new_files.wait(stop)? {
            Waited::Grown(list) if sink(ReadItem::Grown(list)) => None,
            Waited::Ended => Some(ReadEnd::Complete),
            _ => Some(ReadEnd::Stopped),
        })
    }

    /// Reads all passes in the order of the files.
    fn files(
        &self,
        stop: &CancellationToken,
        sink: &mut impl FnMut(ReadItem) -> bool,
    ) -> Result<ReadEnd, SourceError> {
        let mut pass = self.from.pass;
        let mut from = Place::at(self.from);
        let passes = self.plan.passes;
        while passes == 0 || pass < passes {
            let begin = from.take().unwrap_or_default();
            let end = self.pass(pass, begin, stop, sink)?;
            if end == ReadEnd::Stopped || !sink(ReadItem::PassEnd { pass }) {
                return Ok(ReadEnd::Stopped);
            }
            pass += 1;
        }
        Ok(ReadEnd::Complete)
    }

    /// Reads one pass from `from` on; of input that grows, the only one, with all files that join.
    fn pass(
        &self,
        pass: u64,
        mut from: Place,
        stop: &CancellationToken,
        sink: &mut impl FnMut(ReadItem) -> bool,
    ) -> Result<ReadEnd, SourceError> {
        let mut selection = self.selection.clone();
        loop {
            let list = self.inputs.now();
            while let Some(mut reader) = FileReader::open_next(&self.plan, &list, from)? {
                let file = reader.file();
                while let Some(chunk) =
                    self.next_chunk(&mut reader, pass, &list, selection.as_mut())?
                {
                    if stop.is_cancelled() || !sink(ReadItem::Chunk(chunk)) {
                        return Ok(ReadEnd::Stopped);
                    }
                }
                if stop.is_cancelled() {
                    return Ok(ReadEnd::Stopped);
                }
                from = Place::of_file(file + 1);
            }
            let Some(new_files) = &self.new_files else {
                return Ok(ReadEnd::Complete);
            };
            // Files that join are behind all others.
            from = Place::of_file(list.files.len() as u32);
            if let Some(end) = self.wait(new_files, stop, sink)? {
                return Ok(end);
            }
        }
    }

    /// Returns the next units of a file; `None` at its end.
    fn next_chunk(
        &self,
        reader: &mut FileReader<'_>,
        pass: u64,
        list: &InputList,
        mut selection: Option<&mut Selection>,
    ) -> Result<Option<Chunk>, SourceError> {
        let mut chunk = Chunk::new(self.source);
        let mut bytes = 0;
        let file = reader.file();
        while !self.full.is_reached(bytes, chunk.units.len()) {
            let Some(unit) = reader.next_unit()? else {
                break;
            };
            if let Some(selection) = &mut selection
                && !selection.takes(list, unit.place)
            {
                continue;
            }
            bytes += unit.bytes();
            chunk.units.push(unit);
            chunk.after.push(reader.after(file).position(pass));
        }
        chunk.pass = pass;
        chunk.read = reader.consumed();
        Ok((!chunk.units.is_empty()).then_some(chunk))
    }

    /// Reads blocks from a position on, up to this number of passes; 0 reads for ever.
    fn walk(
        &self,
        order: &SourceOrder,
        from: Position,
        passes: u64,
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
            let full = self.full.is_reached(bytes, chunk.units.len());
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
            chunk.after.push(at.after());
        }
    }
}
