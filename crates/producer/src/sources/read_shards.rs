//! Samples of tar shards as units.

use batchweave_daemon::panics::guard;

use super::rows::panicked;
use super::shards::ShardSamples;
use super::unit_reader::{Content, FoundUnit, Opened, Opening, ReadFailure, UnitReader};

/// The samples of a tar from one on.
struct SampleUnits {
    samples: ShardSamples,
    number: u64,
    offset: u64,
}

/// Opens a tar at a sample.
pub(super) fn open_shard<'a>(opening: Opening<'a, '_>) -> Opened<'a> {
    let (at, options) = (opening.at, opening.options);
    let stream = opening.stream.open_at(at.offset)?;
    let wanted = (&*options.members, options.max_document_bytes);
    Ok(Some(Box::new(SampleUnits {
        samples: ShardSamples::new(stream, at.offset, wanted),
        number: at.unit,
        offset: at.offset,
    })))
}

impl UnitReader for SampleUnits {
    fn next(&mut self, owned: &dyn Fn(u64) -> bool) -> Result<Option<FoundUnit>, ReadFailure> {
        loop {
            let (number, offset) = self.place();
            let ours = owned(number);
            let next = guard(|| self.samples.next(ours)).unwrap_or_else(panicked)?;
            let Some(sample) = next else { return Ok(None) };
            self.number += 1;
            self.offset = self.samples.offset();
            if !ours {
                continue;
            }
            let content = match sample.cells {
                Ok(cells) => Ok(Content {
                    raw: sample.key.into_bytes().into(),
                    cells,
                }),
                Err(reason) => Err(reason.in_sample(&sample.key)),
            };
            return Ok(Some(FoundUnit {
                number,
                offset,
                content,
            }));
        }
    }

    fn place(&self) -> (u64, u64) {
        (self.number, self.offset)
    }
}
