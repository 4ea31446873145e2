//! Opens tar shards, for `read`.

use batchweave_daemon::panics::guard;

use super::columns::ReadFailure;
use super::read::{FileReader, Kind};
use super::rows::panicked;
use super::shards::ShardSamples;
use super::{SourceError, Unit};

impl FileReader<'_> {
    /// Opens a tar at the sample of `self.at`.
    pub(super) fn open_shard(&mut self) -> Result<(), SourceError> {
        let (stream, offset) = (self.open_stream()?, self.at.offset);
        let wanted = (&*self.options.members, self.options.max_document_bytes);
        self.kind = Kind::Shard(Box::new(ShardSamples::new(stream, offset, wanted)));
        Ok(())
    }

    /// Returns the next sample that belongs to this producer. A damaged tar ends with one bad document in place of the
    /// sample that it cuts.
    pub(super) fn sample(
        &mut self,
        mut samples: Box<ShardSamples>,
    ) -> Result<Option<Unit>, SourceError> {
        loop {
            let place = self.at;
            let ours = self.options.share.owns(place.file, place.unit);
            let sample = match guard(|| samples.next(ours)).unwrap_or_else(panicked) {
                Ok(None) => return Ok(None),
                Ok(Some(sample)) => sample,
                Err(ReadFailure::Content(reason)) => {
                    self.check_size()?;
                    return Ok(self.bad(reason));
                }
                Err(ReadFailure::Io(why)) => return self.failed(why),
            };
            self.at.unit += 1;
            self.at.offset = samples.offset();
            if !ours {
                continue;
            }
            self.kind = Kind::Shard(samples);
            let (raw, cells) = match sample.cells {
                Ok(cells) => (Ok(sample.key.into_bytes().into()), cells),
                Err(reason) => (Err(reason.in_sample(&sample.key)), Vec::new()),
            };
            return Ok(Some(Unit {
                place,
                kind: self.unit_kind,
                raw,
                cells,
            }));
        }
    }
}
