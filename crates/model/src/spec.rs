//! The entries of the model in short, and the names of what they are about. `entries` has the real
//! ones that they stand for.

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{AttemptId, JobName, Nonce, ProducerName};
use batchweave_core::tgb::Digest;

use crate::config::JOBS_MAX;

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
    /// `began` is the length of the log when the instance started.
    Opened {
        producer: u8,
        instance: u8,
        epoch: u8,
        began: u8,
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
    /// `change` counts a job's openings and closings.
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
        jobs: [Option<Held>; JOBS_MAX],
        asked: Option<u8>,
    },
}

/// A job as a watermark lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Held {
    /// Its incarnation.
    pub opened: u8,
    /// Its newest attempt.
    pub attempt: Option<u8>,
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

/// A job's name.
pub fn job(index: u8) -> Option<JobName> {
    format!("job{index}").parse().ok()
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
                began,
            } => write!(
                f,
                "opened p{producer} epoch {epoch} by instance {instance}, which began at v{began}"
            ),
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
