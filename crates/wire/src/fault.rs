//! Errors that the daemon reports to ranks: defined once, for daemon, Rust client and Python client.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::WireError;
use crate::bytes::Builder;

macro_rules! errors {
    ($($(#[$doc:meta])* $variant:ident = $code:literal $name:literal $remedy:literal,)+) => {
        /// The kind of an error. Messages carry both code and name, and neither changes its meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum ErrorName {
            $($(#[$doc])* $variant = $code,)+
        }

        impl ErrorName {
            /// All errors, in order of their codes.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the name in messages, metrics and class names of the clients.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Returns the general remedy, for errors without a more specific one.
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy,)+ }
            }
        }
    };
}

errors! {
    /// Client and daemon speak different protocols.
    ProtocolVersion = 1 "protocol_version" "install client and daemon of one release",
    /// A message breaks the protocol.
    BadMessage = 2 "bad_message" "report it: client or daemon has a fault",
    /// The hello contradicts itself, or the stream (expected slices, seq_len, rows).
    BadHello = 3 "bad_hello" "correct the arguments of connect()",
    /// The peer's user may not connect.
    NotAllowed = 4 "not_allowed" "add the user's uid to allow_uids in the daemon's config",
    /// This daemon does not serve the job.
    UnknownJob = 5 "unknown_job" "name a job of the daemon's config, or add this one",
    /// dp_size does not divide the stream's slices.
    BadMesh = 6 "bad_mesh" "choose a dp_size that divides the stream's slices",
    /// Another live session reads the same coordinate.
    DuplicateCoordinate = 7 "duplicate_coordinate" "give each data-parallel rank a dp_rank of its own",
    /// The state belongs to another stream.
    OtherStream = 8 "other_stream" "start from a state of this stream, or pass a start step",
    /// A newer attempt of the job has begun.
    AttemptSuperseded = 9 "attempt_superseded" "stop this rank: its job runs again elsewhere",
    /// Ranks of one attempt disagree on its start step or mesh.
    AttemptDisagrees = 10 "attempt_disagrees" "start all ranks of an attempt with one start step and mesh; another start or mesh is another attempt",
    /// Global rank 0 did not open the attempt in time.
    AttemptNotOpened = 11 "attempt_not_opened" "check that global rank 0 runs and reaches its daemon",
    /// The step is below the watermark; its data may be gone.
    StepReclaimed = 12 "step_reclaimed" "start from a newer checkpoint, at or above the watermark",
    /// The step was quarantined by a record.
    StepQuarantined = 13 "step_quarantined" "lift the quarantine, or start after it",
    /// The start lies beyond the stream's end.
    StreamEnded = 14 "stream_ended" "the stream has no such step; undo the seal to append",
    /// A slice fails its checksum or identity, even when fetched again.
    CorruptData = 15 "corrupt_data" "see the daemon's log; quarantine the step to go on without it",
    /// A committed object is not in the store.
    MissingData = 16 "missing_data" "restore the object, or quarantine the step",
    /// A record of the log cannot be read.
    LogUnreadable = 17 "log_unreadable" "see Repair in docs/format.md",
    /// The store did not answer within the daemon's deadline.
    StoreUnavailable = 18 "store_unavailable" "check the endpoint, the network and the credentials",
    /// One slice does not fit in the arena.
    ArenaTooSmall = 19 "arena_too_small" "raise arena.bytes in the daemon's config",
    /// More sessions than the daemon's limit.
    TooManySessions = 20 "too_many_sessions" "close readers that are not needed, or raise max_sessions",
    /// The daemon has a bug.
    Internal = 21 "internal" "report it with the daemon's log",
    /// A rank of a job did not state its attempt.
    NoAttempt = 22 "no_attempt" "draw 32 random hexadecimal digits on global rank 0, broadcast them, and pass them as attempt= on all ranks",
    /// The job was not opened in time.
    JobNotOpen = 23 "job_not_open" "open it with `batchweave job open NAME`, or set job.open in the daemon's config",
    /// The job was closed while the rank read.
    JobClosed = 24 "job_closed" "stop this rank, or open the job again and start a new attempt",
    /// A mark's state does not belong to this stream and step.
    MarkBadState = 25 "mark_bad_state" "pass what state_dict() returned, unchanged",
    /// A mark's state belongs to another attempt.
    MarkOtherAttempt = 26 "mark_other_attempt" "mark states of this attempt only: a restored one is a restart point already",
    /// A mark by a coordinate that the attempt does not have.
    MarkNoSuchRank = 27 "mark_no_such_rank" "mark from the attempt's own ranks",
    /// A mark above the stream's head.
    MarkInFuture = 28 "mark_in_future" "mark the state of a batch that was trained",
    /// A mark above the steps delivered to the rank.
    MarkNotDelivered = 29 "mark_not_delivered" "mark the state of a batch that this rank was handed",
    /// The mark could not be stored.
    MarkNotStored = 30 "mark_not_stored" "see the daemon's log; marking again may work",
    /// The rank has received steps that are no longer in the log.
    StreamRewound = 31 "stream_rewound" "restore the log from a backup or bucket version, or start all ranks from a checkpoint that the log still reaches",
    /// Ranks of another attempt of the job run on this node, and the client drew the new attempt's id itself.
    AttemptRunning = 32 "attempt_running" "to look at the data, use batchweave.open(url); to end the run and start here, stop its processes or pass takeover=True",
    /// The job has restart points, and the rank that would open an attempt below them did not state its start.
    ForgottenState = 33 "forgotten_state" "pass the state= of a checkpoint, or start=STEP, or resume=\"latest\" with the model saved at the newest restart point, or fresh=True to begin anew and give the checkpoints up",
}

impl ErrorName {
    /// Returns the number in a message.
    pub fn code(self) -> u16 {
        self as u16
    }

    /// Returns the error with this code.
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|e| e.code() == code)
    }
}

impl fmt::Display for ErrorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The body of an `error` message, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The number of the name.
    pub code: u16,
    /// The name; a client that does not know the code still shows it.
    pub name: String,
    /// The failure, its place and its cause, in one line.
    pub message: String,
    /// The step, where there is one.
    pub step: Option<u64>,
    /// The object's key, where there is one.
    pub key: Option<String>,
    pub remedy: String,
}

/// Most characters of a message, which may quote long text.
const MESSAGE_CHARS: usize = 1024;

/// Returns `text` as one line of bounded length, because a message may quote untrusted input.
fn shown(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let mut shown: String = text.chars().map(clean).take(MESSAGE_CHARS).collect();
    if text.chars().nth(MESSAGE_CHARS).is_some() {
        shown.push_str(" ...");
    }
    shown
}

impl Fault {
    /// Returns an error with its general remedy.
    pub fn new(name: ErrorName, message: impl Into<String>) -> Self {
        Self {
            code: name.code(),
            name: name.name().to_owned(),
            message: shown(&message.into()),
            step: None,
            key: None,
            remedy: name.remedy().to_owned(),
        }
    }

    /// Sets the step that the error concerns.
    #[must_use]
    pub fn at_step(self, step: u64) -> Self {
        Self {
            step: Some(step),
            ..self
        }
    }

    /// Sets the object's key.
    #[must_use]
    pub fn at_key(self, key: impl Into<String>) -> Self {
        Self {
            key: Some(key.into()),
            ..self
        }
    }

    /// Sets a more specific remedy.
    #[must_use]
    pub fn remedy(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: remedy.into(),
            ..self
        }
    }

    /// Returns the error's name, if this build knows it.
    pub fn known_name(&self) -> Option<ErrorName> {
        ErrorName::from_code(self.code)
    }

    pub(crate) fn encode(&self, kind: u16) -> Result<Vec<u8>, WireError> {
        let json = serde_json::to_vec(self).map_err(|e| WireError::body("error", e.to_string()))?;
        Builder::new("error", kind).raw(&json).finish()
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, WireError> {
        serde_json::from_slice(body).map_err(|e| WireError::body("error", e.to_string()))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.message)?;
        if let Some(step) = self.step {
            write!(f, " (step {step})")?;
        }
        if let Some(key) = &self.key {
            write!(f, " ({key})")?;
        }
        if self.remedy.is_empty() {
            Ok(())
        } else {
            write!(f, "; {}", self.remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_of_bounded_length() {
        let quoted = format!(
            "no step of {}\u{1b}[31m\nERROR all is lost",
            "s".repeat(20_000)
        );
        let fault = Fault::new(ErrorName::MarkBadState, quoted);
        assert_eq!(fault.message.chars().count(), MESSAGE_CHARS + 4);
        let short = Fault::new(ErrorName::BadHello, "a\u{1b}[31m\nb");
        assert_eq!(short.message, "a [31m b");
    }
}
