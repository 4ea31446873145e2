//! The first stage: units of all input files in order, pass after pass, in chunks that tokenizing
//! threads take. Runs in a blocking thread.

use std::sync::Arc;

use batchweave_core::inputs::LinkId;
use tokio_util::sync::CancellationToken;

use crate::packing::Point;
use crate::pipeline::new_files::NewFilePoller;
use crate::sources::{FileReader, Inputs, Place, ReadOptions, SourceError, Unit};

/// A chunk is full at this many bytes or units, whichever comes first.
const CHUNK_BYTES: usize = 256 << 10;
const CHUNK_UNITS: usize = 256;

/// Neighbouring units of one file in one pass.
#[derive(Debug)]
pub struct Chunk {
    /// Which pass.
    pub pass: u64,
    /// In order, never empty.
    pub units: Vec<Unit>,
}

/// What reading gives.
#[derive(Debug)]
pub enum ReadItem {
    /// Units.
    Chunk(Chunk),
    /// What follows is from a list of files that has grown; its name.
    Grown(LinkId),
    /// All files are read to their ends; `whole` when from their beginnings.
    PassEnd {
        /// Whether the pass began at the first unit.
        whole: bool,
    },
}

/// What to read.
#[derive(Debug, Clone)]
pub struct InputReader {
    /// The files.
    pub inputs: Arc<Inputs>,
    /// How to read them.
    pub options: ReadOptions,
    /// Where to begin.
    pub from: Point,
    /// Passes in all; 0 is without end.
    pub passes: u64,
    /// Where to ask for more files, when there may be.
    pub new_files: Option<Arc<NewFilePoller>>,
}

/// How reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadEnd {
    /// All passes are read.
    Complete,
    /// Nobody wants more.
    Stopped,
}

impl InputReader {
    /// The point after everything that will be read.
    pub fn end(&self) -> Point {
        Point::pass(self.passes.max(self.from.pass))
    }

    /// Gives everything to `sink` until it answers false or `stop` is cancelled.
    pub fn run(
        &self,
        stop: &CancellationToken,
        mut sink: impl FnMut(ReadItem) -> bool,
    ) -> Result<ReadEnd, SourceError> {
        let mut pass = self.from.pass;
        let mut start = self.from.place();
        while self.passes == 0 || pass < self.passes {
            if self.pass(pass, start, stop, &mut sink)? == ReadEnd::Stopped {
                return Ok(ReadEnd::Stopped);
            }
            let whole = start == Place::default();
            if !sink(ReadItem::PassEnd { whole }) {
                return Ok(ReadEnd::Stopped);
            }
            pass += 1;
            start = Place::default();
        }
        Ok(ReadEnd::Complete)
    }

    /// All files from `from` on, and those that join them.
    fn pass(
        &self,
        pass: u64,
        mut from: Place,
        stop: &CancellationToken,
        sink: &mut impl FnMut(ReadItem) -> bool,
    ) -> Result<ReadEnd, SourceError> {
        loop {
            let list = self.inputs.now();
            for input in list.files.iter().skip(from.file as usize) {
                let mut reader = FileReader::open(input, &self.options, from)?;
                while let Some(chunk) = next_chunk(&mut reader, pass)? {
                    if stop.is_cancelled() || !sink(ReadItem::Chunk(chunk)) {
                        return Ok(ReadEnd::Stopped);
                    }
                }
                if stop.is_cancelled() {
                    return Ok(ReadEnd::Stopped);
                }
                from = Place {
                    file: from.file + 1,
                    ..Place::default()
                };
            }
            let Some(new_files) = &self.new_files else {
                return Ok(ReadEnd::Complete);
            };
            match new_files.wait(stop) {
                Some(list) if sink(ReadItem::Grown(list)) => {}
                _ => return Ok(ReadEnd::Stopped),
            }
        }
    }
}

fn next_chunk(reader: &mut FileReader<'_>, pass: u64) -> Result<Option<Chunk>, SourceError> {
    let mut units = Vec::new();
    let mut bytes = 0;
    while bytes < CHUNK_BYTES && units.len() < CHUNK_UNITS {
        let Some(unit) = reader.next_unit()? else {
            break;
        };
        bytes += unit.bytes();
        units.push(unit);
    }
    Ok((!units.is_empty()).then_some(Chunk { pass, units }))
}
