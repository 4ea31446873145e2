//! The entries of the model as small values, and the names in them. `entries` builds the real ones.

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{AttemptId, JobName, Nonce, ProducerName};
use batchweave_core::tgb::Digest;

/// Jobs in a model at most.
pub const JOBS_MAX: usize = 2;
/// Slices of every TGB in the model.
pub const SLICES: u32 = 4;

/// A data object: the fields of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object {
    pub producer: u8,
    /// The instance, which stands for its nonce.
    pub instance: u8,
    pub epoch: u8,
    pub first: u8,
    pub last: u8,
}

/// An entry. All fields are small, so that comparing and hashing is fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // The names are those of the product's entries.
pub enum Spec {
    /// `began` is the length of the log when the instance started.
    Opened {
        producer: u8,
        instance: u8,
        epoch: u8,
        began: u8,
    },
    /// `start` is the sequence number at which the instance began: objects are split from there on.
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
    /// `change` counts the openings and closings of a job.
    JobOpened {
        job: u8,
        keep: u8,
        start: u8,
        change: u8,
    },
    JobClosed {
        job: u8,
        opened: u8,
        change: u8,
    },
    Attempt {
        job: u8,
        opened: u8,
        trainer: u8,
        predecessor: Option<u8>,
        start: u8,
        coordinates: u8,
    },
    /// `asked` numbers the commands of people.
    Watermark {
        step: u8,
        jobs: [Option<HeldJob>; JOBS_MAX],
        asked: Option<u8>,
    },
}

/// A job as a watermark lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldJob {
    /// The version that opened its incarnation.
    pub opened: u8,
    pub attempt: Option<u8>,
}

/// The split of TGBs into objects.
#[derive(Debug, Clone, Copy)]
pub struct ObjectSplit {
    pub group: u8,
    pub tgbs: u8,
}

impl ObjectSplit {
    /// Returns the first and last sequence number of the object that holds `seq`, for an instance
    /// that began at `start`.
    pub fn object(self, start: u8, seq: u8) -> (u8, u8) {
        let first = start + (seq - start) / self.group * self.group;
        (first, (first + self.group).min(self.tgbs) - 1)
    }
}

/// Returns a producer's name.
pub fn producer(index: u8) -> Option<ProducerName> {
    format!("p{index}").parse().ok()
}

/// Returns a job's name.
pub fn job(index: u8) -> Option<JobName> {
    format!("job{index}").parse().ok()
}

/// Returns the index in a producer's name.
pub fn producer_index(name: &ProducerName) -> u8 {
    name.as_str()
        .strip_prefix('p')
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(u8::MAX)
}

/// Returns an instance's nonce, which no other instance of the producer has.
pub fn nonce(instance: u8) -> Nonce {
    Nonce([instance + 1; 8])
}

/// Returns a producer's cursor after `rows` TGBs.
pub fn cursor(rows: u8) -> Cursor {
    match rows {
        0 => Cursor::default(),
        rows => Cursor(serde_json::json!({ "row": rows })),
    }
}

/// Returns the digest of a TGB: the same content packed again has the same digest.
pub fn digest(producer: u8, row: u8) -> Digest {
    let mut bytes = [0; 32];
    bytes[..2].copy_from_slice(&[producer, row]);
    Digest(bytes)
}

/// Returns the id of the attempt that trainer `index` opens.
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
                began,
            } => write!(
                f,
                "opened p{producer} term {epoch} by instance {instance}, which began at v{began}"
            ),
            Self::Batch {
                producer,
                epoch,
                first,
                last,
                ..
            } => write!(f, "batch p{producer} term {epoch} seq {first}..={last}"),
            Self::Finished {
                producer,
                final_seq,
                ..
            } => write!(f, "finished p{producer} at {final_seq}"),
            Self::Sealed => write!(f, "sealed"),
            Self::Unsealed => write!(f, "unsealed"),
            Self::JobOpened {
                job, keep, start, ..
            } => write!(f, "job {job} opened at {start}, keeps {keep}"),
            Self::JobClosed { job, opened, .. } => write!(f, "job {job}@{opened} closed"),
            Self::Attempt {
                job,
                trainer,
                start,
                ..
            } => write!(
                f,
                "attempt of job {job} by trainer {trainer} from step {start}"
            ),
            Self::Watermark { step, jobs, asked } => {
                let by = ["", "a person's "][usize::from(asked.is_some())];
                write!(f, "{by}watermark {step} for")?;
                for (index, held) in (0..).zip(jobs).filter_map(|(i, held)| Some((i, held?))) {
                    let (index, opened): (u8, u8) = (index, held.opened);
                    match held.attempt {
                        Some(attempt) => write!(f, " job {index}@{opened} attempt {attempt}")?,
                        None => write!(f, " job {index}@{opened} no attempt")?,
                    }
                }
                Ok(())
            }
        }
    }
}
