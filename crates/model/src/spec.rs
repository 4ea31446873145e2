//! The entries of the model in short, and the real ones that they stand for.

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{AttemptId, JobName, Nonce, ProducerName, RequestId, Version};
use batchweave_core::keys;
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::{
    AttemptOpened, Batch, Finished, HoldingJob, JobOpened, Opened, Parent, Sealed, Unsealed,
    Watermark,
};
use batchweave_core::tgb::{Digest, Part, TgbRecord};

/// Slices of every TGB in the model.
pub const SLICES: u32 = 4;

/// One object of data: all that its key says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object {
    /// Whose.
    pub producer: u8,
    /// Of which instance: its nonce.
    pub instance: u8,
    /// In which epoch.
    pub epoch: u8,
    /// First sequence number.
    pub first: u8,
    /// Last sequence number.
    pub last: u8,
}

/// An entry in short. Everything in it is small, so that it can be looked up quickly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // The names are those of the product's entries.
pub enum Spec {
    Opened {
        producer: u8,
        instance: u8,
        epoch: u8,
    },
    /// `start` is where the instance began: objects are cut from there on.
    Batch {
        producer: u8,
        instance: u8,
        epoch: u8,
        start: u8,
        first: u8,
        last: u8,
    },
    Finished {
        producer: u8,
        epoch: u8,
        final_seq: u8,
    },
    Sealed,
    Unsealed,
    JobOpened {
        keep: u8,
    },
    Attempt {
        trainer: u8,
        predecessor: Option<u8>,
        start: u8,
    },
    Watermark {
        step: u8,
        attempt: Option<u8>,
    },
}

/// How TGBs lie in objects.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// TGBs in one object.
    pub group: u8,
    /// TGBs of each producer.
    pub tgbs: u8,
}

impl Cut {
    /// First and last sequence number of the object that holds `seq`, for an instance that began
    /// at `start`.
    pub fn object(self, start: u8, seq: u8) -> (u8, u8) {
        let first = start + (seq - start) / self.group * self.group;
        (first, (first + self.group).min(self.tgbs) - 1)
    }
}

/// A producer's name.
pub fn producer(index: u8) -> Option<ProducerName> {
    format!("p{index}").parse().ok()
}

/// The index in a producer's name.
pub fn producer_index(name: &ProducerName) -> u8 {
    name.as_str()
        .strip_prefix('p')
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(u8::MAX)
}

/// An instance's nonce. Instances of one producer have different ones.
pub fn nonce(instance: u8) -> Nonce {
    Nonce([instance + 1; 8])
}

/// Where a producer stands after `rows` TGBs.
pub fn cursor(rows: u8) -> Cursor {
    match rows {
        0 => Cursor::default(),
        rows => Cursor(serde_json::json!({ "row": rows })),
    }
}

/// The digest says whose TGB this is: the same content packed again has the same digest.
pub fn digest(producer: u8, row: u8) -> Digest {
    let mut bytes = [0; 32];
    bytes[..2].copy_from_slice(&[producer, row]);
    Digest(bytes)
}

impl Object {
    /// Its key.
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
            parts: vec![Part {
                key: self.key()?,
                offset: u64::from(seq - self.first) * 1024,
                length: 1024,
                first_slice: 0,
                slices: SLICES,
                frame_bytes: Some(256),
                index: None,
            }],
            provenance: None,
        })
    }
}

impl Spec {
    /// The real entry. `job` is the version of the job's open record.
    pub fn entry(self, cut: Cut, job: Version) -> Option<Entry> {
        let name: JobName = "job".parse().ok()?;
        let reason = String::new();
        Some(match self {
            Self::Opened {
                producer: index,
                instance,
                epoch,
            } => Entry::Opened(Opened {
                producer: producer(index)?,
                instance: format!("i{instance}"),
                nonce: nonce(instance),
                epoch: epoch.into(),
            }),
            Self::Batch { .. } => Entry::Batch(self.batch(cut)?),
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
            Self::JobOpened { keep } => Entry::JobOpened(JobOpened {
                request: RequestId([3; 16]),
                job: name,
                start: 0,
                keep: keep.into(),
                holds: true,
                paces: false,
                lease_seconds: None,
            }),
            Self::Attempt {
                trainer,
                predecessor,
                start,
            } => Entry::AttemptOpened(AttemptOpened {
                job: name,
                opened: job,
                attempt: attempt_id(trainer),
                predecessor: predecessor.map(attempt_id),
                parent: None::<Parent>,
                start: start.into(),
                dp_size: 1,
                mesh: Vec::new(),
            }),
            Self::Watermark { step, attempt } => Entry::Watermark(Watermark {
                step: step.into(),
                jobs: vec![HoldingJob {
                    job: name,
                    opened: job,
                    attempt: attempt.map(u64::from),
                }],
                request: None,
            }),
        })
    }

    fn batch(self, cut: Cut) -> Option<Batch> {
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
            let (first, last) = cut.object(start, seq);
            let object = Object {
                producer: index,
                instance,
                epoch,
                first,
                last,
            };
            object.tgb(seq)
        };
        Some(Batch {
            producer: producer(index)?,
            epoch: epoch.into(),
            first_seq: first.into(),
            last_seq: last.into(),
            cursor_before: cursor(first).hash(),
            cursor: cursor(last + 1),
            mixture: 0,
            first_step: None,
            tgbs: (first..=last).map(object).collect::<Option<_>>()?,
        })
    }
}

/// The id of the attempt that trainer `index` opens.
pub fn attempt_id(index: u8) -> AttemptId {
    AttemptId([index + 1; 16])
}

impl std::fmt::Display for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Opened {
                producer,
                instance,
                epoch,
            } => write!(f, "opened p{producer} epoch {epoch} by instance {instance}"),
            Self::Batch {
                producer,
                epoch,
                first,
                last,
                ..
            } => write!(f, "batch p{producer} epoch {epoch} seq {first}..={last}"),
            Self::Finished {
                producer,
                final_seq,
                ..
            } => write!(f, "finished p{producer} at {final_seq}"),
            Self::Sealed => write!(f, "sealed"),
            Self::Unsealed => write!(f, "unsealed"),
            Self::JobOpened { keep } => write!(f, "job opened, keeps {keep}"),
            Self::Attempt { trainer, start, .. } => {
                write!(f, "attempt of trainer {trainer} from step {start}")
            }
            Self::Watermark { step, attempt } => {
                write!(f, "watermark {step}, newest attempt {attempt:?}")
            }
        }
    }
}
