//! `hello`: the identity of a connecting rank and the position from which it reads.

use serde::{Deserialize, Serialize};

use crate::bytes::Builder;
use crate::{CREDITS_MAX, CREDITS_MIN, PROTOCOL, WireError};

/// How a rank enters its attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// At the attempt's beginning; `next_step` is the attempt's start step.
    Join,
    /// A single rank restarted or reconnected; `next_step` is its own position.
    Resume,
}

/// The caller's statement of the first step of an attempt that its rank may open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Begin {
    /// It is `next_step`: by a state, by a step, or because the job is to begin anew.
    #[default]
    Stated,
    /// Nothing: `next_step` is 0, which is refused where the job has restart points above it.
    Unstated,
    /// The newest restart point of the job, whatever `next_step` is.
    Latest,
}

impl Begin {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes the field by reference"
    )]
    fn is_stated(&self) -> bool {
        *self == Self::Stated
    }
}

/// Most bytes of the client's name, which logs quote.
const CLIENT_BYTES_MAX: usize = 256;

/// An earlier session of the same rank that this one follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replaces {
    /// The daemon's instance id, as in its welcome, in hexadecimal.
    pub instance: String,
    pub session: u64,
}

/// The state that a rank starts from: its attempt and step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parent {
    /// The attempt's number within its job.
    pub attempt: u64,
    /// The attempt's id, 32 hexadecimal digits.
    pub id: String,
    pub step: u64,
}

/// The form of slices that are bins, in `forms`.
pub const BALANCED: &str = "balanced";

/// The body of a `hello` message, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The protocol version; equal to the header's.
    pub protocol: u16,
    /// Name and version of the client, for logs.
    pub client: String,
    /// The job; without one the reader neither retains data nor holds producers back.
    pub job: Option<String>,
    /// The attempt's id, 32 hexadecimal digits.
    pub attempt: Option<String>,
    /// The state that the rank starts from.
    #[serde(default)]
    pub parent: Option<Parent>,
    /// Index on the flattened data-parallel axis.
    pub dp_rank: u32,
    /// Size of that axis.
    pub dp_size: u32,
    /// The rank in the whole job, where known; only rank 0's daemon opens the attempt.
    pub global_rank: Option<u32>,
    /// Whether other ranks of the attempt read the same coordinate by the mesh, each with its own
    /// `global_rank`. Omitted when false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// Whether the attempt that this rank may open gives way to a running one: the client drew its id, and
    /// nobody asked to take over. Omitted when false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub yields: bool,
    /// The caller's statement of the attempt's start. Omitted when it is stated.
    #[serde(default, skip_serializing_if = "Begin::is_stated")]
    pub begin: Begin,
    pub mode: Mode,
    /// First step to deliver.
    pub next_step: u64,
    /// Stream id of the state that the rank starts from, as UUID.
    pub stream: Option<String>,
    /// Steps that the rank may hold or have queued at once.
    pub credits: u32,
    /// Slices per TGB that the trainer counts on.
    pub slices: Option<u32>,
    /// Tokens per row that the trainer counts on.
    pub seq_len: Option<u32>,
    /// Rows per slice that the trainer counts on.
    pub rows_per_slice: Option<u32>,
    /// The forms of slices that the client reads beside rows and samples. Omitted when there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forms: Vec<String>,
    /// The session that this one replaces; that one only releases frames from now on.
    pub replaces: Option<Replaces>,
    /// Bytes of segments of earlier daemons that the client still has mapped.
    pub mapped_bytes: u64,
}

impl Hello {
    /// Returns the hello of a single rank that joins at `next_step` without a job.
    pub fn new(client: impl Into<String>, next_step: u64) -> Self {
        Self {
            protocol: PROTOCOL,
            client: client.into(),
            job: None,
            attempt: None,
            parent: None,
            dp_rank: 0,
            dp_size: 1,
            global_rank: None,
            shared: false,
            yields: false,
            begin: Begin::Stated,
            mode: Mode::Join,
            next_step,
            stream: None,
            credits: CREDITS_MIN,
            slices: None,
            seq_len: None,
            rows_per_slice: None,
            forms: Vec::new(),
            replaces: None,
            mapped_bytes: 0,
        }
    }

    /// Checks for contradictions without knowledge of the stream; the error is the text of a `bad_hello`.
    pub fn check(&self) -> Result<(), String> {
        if self.dp_rank >= self.dp_size {
            return Err(format!(
                "dp_rank {} must be below dp_size {}",
                self.dp_rank, self.dp_size
            ));
        }
        if !(CREDITS_MIN..=CREDITS_MAX).contains(&self.credits) {
            return Err(format!(
                "credits is {}; {CREDITS_MIN} to {CREDITS_MAX} are allowed",
                self.credits
            ));
        }
        if self.shared && self.global_rank.is_none() {
            return Err(
                "a shared coordinate needs a global_rank, which tells its ranks apart".to_owned(),
            );
        }
        if self.client.len() > CLIENT_BYTES_MAX || self.client.chars().any(char::is_control) {
            return Err(format!(
                "client must be one line of at most {CLIENT_BYTES_MAX} bytes"
            ));
        }
        if self.next_step >= 1 << 53 {
            return Err(format!("next_step {} is not a step", self.next_step));
        }
        let placed = self.mode == Mode::Resume || self.parent.is_some() || self.next_step > 0;
        if self.begin != Begin::Stated && placed {
            return Err(
                "begin is given beside a position: it belongs to a join at step 0 without a state"
                    .to_owned(),
            );
        }
        let parent = self.parent.as_ref().map(|parent| &parent.id);
        match self.attempt.iter().chain(parent).find(|id| !is_hex_id(id)) {
            Some(id) => Err(format!("attempt {id:?} is not 32 hexadecimal digits")),
            None => Ok(()),
        }
    }

    /// Returns whether this rank's daemon opens the attempt.
    pub fn leads(&self) -> bool {
        self.global_rank.map_or(self.dp_size == 1, |rank| rank == 0)
    }

    pub(crate) fn encode(&self, kind: u16) -> Result<Vec<u8>, WireError> {
        let json = serde_json::to_vec(self).map_err(|e| WireError::body("hello", e.to_string()))?;
        Builder::new("hello", kind).raw(&json).finish()
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, WireError> {
        serde_json::from_slice(body).map_err(|e| WireError::body("hello", e.to_string()))
    }
}

fn is_hex_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}
