//! How a run ends when nothing fails.

use batchweave_core::ids::Seq;

/// The result of a run, when nothing failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The input is over and the producer has finished, now or in an earlier run.
    Finished {
        /// Number of its batches in the stream.
        batches: Seq,
    },
    /// Stopped on request; a restart continues here.
    Stopped {
        /// Number of its batches in the stream; unknown when it was still starting.
        batches: Option<Seq>,
    },
    /// The stream was sealed by an operator, or has ended.
    Sealed,
}

impl Outcome {
    /// Returns the number of the producer's batches in the stream, where it is known.
    pub(crate) fn batches(self) -> Option<Seq> {
        match self {
            Self::Finished { batches } => Some(batches),
            Self::Stopped { batches } => batches,
            Self::Sealed => None,
        }
    }
}
