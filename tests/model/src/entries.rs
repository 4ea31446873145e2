//! The real entries that the model's specs stand for.

use batchweave_core::ids::RequestId;
use batchweave_core::keys;
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::{
    AttemptOpened, BatchEntry, Finished, HoldingJob, JobClosed, JobOpened, Opened, Parent, Sealed,
    Unsealed, Watermark,
};
use batchweave_core::tgb::{ObjectPart, TgbRecord};

use crate::spec::JOBS_MAX;
use crate::spec::{
    HeldJob, Object, ObjectSplit, SLICES, Spec, attempt_id, cursor, digest, job, nonce, producer,
};

fn request(tags: [u8; 3]) -> RequestId {
    let mut id = [0; 16];
    id[..3].copy_from_slice(&tags);
    RequestId(id)
}

/// Returns the request id of a person's command.
pub fn command(number: u8) -> RequestId {
    request([4, number, 0])
}

fn holding(jobs: [Option<HeldJob>; JOBS_MAX]) -> Option<Vec<HoldingJob>> {
    let held = (0..)
        .zip(jobs)
        .filter_map(|(index, held)| Some((index, held?)));
    held.map(|(index, held)| {
        Some(HoldingJob {
            job: job(index)?,
            opened: held.opened.into(),
            attempt: held.attempt.map(u64::from),
        })
    })
    .collect()
}

impl Object {
    /// Returns the object's key.
    pub fn key(self) -> Option<String> {
        let seqs = (u64::from(self.first), u64::from(self.last));
        let name = producer(self.producer)?;
        let nonce = nonce(self.instance);
        Some(keys::data(&name, self.epoch.into(), nonce, seqs, 0, 0))
    }

    fn tgb(self, seq: u8) -> Option<TgbRecord> {
        Some(TgbRecord {
            rows: u64::from(SLICES),
            tokens: u64::from(SLICES) * 8,
            digest: digest(self.producer, seq),
            parts: vec![ObjectPart {
                key: self.key()?,
                offset: u64::from(seq - self.first) * 1024,
                length: 1024,
                first_slice: 0,
                slices: SLICES,
                frame_bytes: Some(256),
                index: None,
            }],
            provenance: None,
            cost: None,
        })
    }
}

impl Spec {
    /// Returns the real entry.
    pub fn entry(self, split: ObjectSplit) -> Option<Entry> {
        let reason = String::new();
        Some(match self {
            Self::Opened {
                producer: index,
                instance,
                epoch,
                began,
            } => Entry::Opened(Opened {
                producer: producer(index)?,
                instance: format!("i{instance}"),
                nonce: nonce(instance),
                epoch: epoch.into(),
                began: began.into(),
            }),
            Self::Batch { .. } => Entry::Batch(self.batch(split)?),
            Self::Finished {
                producer: index,
                epoch,
                final_seq,
            } => Entry::Finished(Finished {
                producer: producer(index)?,
                epoch: epoch.into(),
                final_seq: final_seq.into(),
            }),
            Self::Sealed => Entry::Sealed(Sealed {
                request: RequestId([1; 16]),
                reason,
            }),
            Self::Unsealed => Entry::Unsealed(Unsealed {
                request: RequestId([2; 16]),
                reason,
            }),
            _ => return self.of_jobs(),
        })
    }

    fn of_jobs(self) -> Option<Entry> {
        Some(match self {
            Self::JobOpened {
                job: index,
                keep,
                start,
                change,
            } => Entry::JobOpened(JobOpened {
                request: request([3, index, change]),
                job: job(index)?,
                start: start.into(),
                keep: keep.into(),
                holds: true,
                paces: false,
                lease_seconds: None,
            }),
            Self::JobClosed {
                job: index,
                opened,
                change,
            } => Entry::JobClosed(JobClosed {
                request: request([3, index, change]),
                job: job(index)?,
                opened: opened.into(),
                reason: String::new(),
            }),
            Self::Attempt {
                job: index,
                opened,
                trainer,
                predecessor,
                start,
                coordinates,
            } => Entry::AttemptOpened(AttemptOpened {
                job: job(index)?,
                opened: opened.into(),
                attempt: attempt_id(trainer),
                predecessor: predecessor.map(attempt_id),
                parent: None::<Parent>,
                inherited: None,
                start: start.into(),
                dp_size: coordinates.into(),
                mesh: Vec::new(),
            }),
            Self::Watermark { step, jobs, asked } => Entry::Watermark(Watermark {
                step: step.into(),
                jobs: holding(jobs)?,
                request: asked.map(command),
            }),
            _ => return None,
        })
    }

    fn batch(self, split: ObjectSplit) -> Option<BatchEntry> {
        let Self::Batch {
            producer: index,
            instance,
            epoch,
            start,
            first,
            last,
        } = self
        else {
            return None;
        };
        let object = |seq| {
            let (first, last) = split.object(start, seq);
            let object = Object {
                producer: index,
                instance,
                epoch,
                first,
                last,
            };
            object.tgb(seq)
        };
        Some(BatchEntry {
            producer: producer(index)?,
            epoch: epoch.into(),
            first_seq: first.into(),
            last_seq: last.into(),
            cursor_before: cursor(first).hash(),
            cursor: cursor(last + 1),
            mixture: 0,
            stage: 0,
            first_step: None,
            tgbs: (first..=last).map(object).collect::<Option<_>>()?,
        })
    }
}
