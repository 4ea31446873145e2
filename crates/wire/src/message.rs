//! The two directions as enums, the type numbers, and the small messages.

use crate::bytes::{Builder, Fields, split};
use crate::{
    BatchMessage, DETAIL_BYTES_MAX, Fault, Hello, LAYOUTS_MAX, Layout, Release, Report,
    STATE_BYTES_MAX, Stage, StreamInfo, WaitCause, Welcome, WireError,
};

mod kind {
    pub(super) const HELLO: u16 = 1;
    pub(super) const RELEASE: u16 = 2;
    pub(super) const CHECKPOINT: u16 = 3;
    pub(super) const PROGRESS: u16 = 4;
    pub(super) const BYE: u16 = 5;
    pub(super) const DESCRIBE: u16 = 6;
    pub(super) const REPORT: u16 = 7;

    pub(super) const WELCOME: u16 = 64;
    pub(super) const SEGMENT: u16 = 65;
    pub(super) const LAYOUT: u16 = 66;
    pub(super) const BATCH: u16 = 67;
    pub(super) const END_OF_STREAM: u16 = 68;
    pub(super) const WAITING: u16 = 69;
    pub(super) const ERROR: u16 = 70;
    pub(super) const RETIRE_SEGMENT: u16 = 71;
    pub(super) const MARKED: u16 = 72;
    pub(super) const MARK_REFUSED: u16 = 73;
    pub(super) const STREAM_INFO: u16 = 74;
    pub(super) const REPORTED: u16 = 75;
    pub(super) const STAGE: u16 = 76;
}

/// "A checkpoint that restarts at `step` is durable."
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// First step not trained in the checkpoint.
    pub step: u64,
    /// The state that the trainer saved: the JSON text under `batchweave`.
    pub state: String,
}

/// The progress of a rank; sent at a low rate, and immediately when the rank begins to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// First step not returned to the trainer.
    pub next_step: u64,
    /// Time spent waiting in `next()` since the session began, in microseconds.
    pub waited_us: u64,
    /// Whether the rank is waiting.
    pub waiting: bool,
}

/// A segment to map; the message carries its descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentMessage {
    /// Number of the segment, never used twice by one daemon.
    pub id: u32,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A layout under an id; replaces an earlier one with this id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutMessage {
    /// The id, below 64.
    pub id: u32,
    pub layout: Layout,
}

/// The cause of the next step's delay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub step: u64,
    pub cause: WaitCause,
    /// Details for people: the store's message, the age of the head.
    pub detail: String,
}

/// A message from a rank.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "a session has one hello, which is moved once"
)]
pub enum ClientMessage {
    /// First message of a session.
    Hello(Hello),
    /// Frames that the daemon may reuse.
    Release(Release),
    /// A checkpoint is durable.
    Checkpoint(Checkpoint),
    Progress(Progress),
    /// Steps that the trainer trained or left out.
    Report(Report),
    /// Ends the delivery of batches; the socket stays until the last frame is released.
    Bye,
    /// Instead of a hello: asks for a description of the stream, which ends the connection.
    Describe,
}

/// A message from the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DaemonMessage {
    /// The hello was good.
    Welcome(Welcome),
    /// A segment, with its descriptor.
    Segment(SegmentMessage),
    Layout(LayoutMessage),
    /// Slices of a step.
    Batch(BatchMessage),
    /// The stream has no step at or above this one.
    EndOfStream(u64),
    /// The next step is late.
    Waiting(Waiting),
    /// The session is over, or a step is unreadable.
    Error(Fault),
    /// No later batch points into this segment.
    RetireSegment(u32),
    /// The mark of this step is stored.
    Marked(u64),
    /// The mark of the fault's step is not stored; the session continues.
    MarkRefused(Fault),
    /// The answer to `describe`, with the descriptor of the tokenizer's file where there is one.
    StreamInfo(StreamInfo),
    /// This number of the session's reports, from its first, is stored.
    Reported(u64),
    /// The stage of the batches that follow.
    Stage(Stage),
}

impl ClientMessage {
    /// Returns the bytes of one SEQPACKET message.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        match self {
            Self::Hello(m) => m.encode(kind::HELLO),
            Self::Release(m) => m.encode(kind::RELEASE),
            Self::Checkpoint(m) => {
                let state = bounded("checkpoint", &m.state, STATE_BYTES_MAX)?;
                let head = Builder::new("checkpoint", kind::CHECKPOINT).u64(m.step);
                head.u32(state.len() as u32).u32(0).raw(state).finish()
            }
            Self::Progress(m) => {
                let head = Builder::new("progress", kind::PROGRESS)
                    .u64(m.next_step)
                    .u64(m.waited_us);
                head.u32(m.waiting.into()).u32(0).finish()
            }
            Self::Report(m) => m.encode(kind::REPORT),
            Self::Bye => Builder::new("bye", kind::BYE).finish(),
            Self::Describe => Builder::new("describe", kind::DESCRIBE).finish(),
        }
    }

    /// Decodes a message that the daemon received.
    pub fn decode(message: &[u8]) -> Result<Self, WireError> {
        let (found, body) = split(message)?;
        match found {
            kind::HELLO => Hello::decode(body).map(Self::Hello),
            kind::RELEASE => Release::decode(body).map(Self::Release),
            kind::CHECKPOINT => checkpoint(body).map(Self::Checkpoint),
            kind::PROGRESS => progress(body).map(Self::Progress),
            kind::REPORT => Report::decode(body).map(Self::Report),
            kind::BYE => Fields::new("bye", body).end().map(|()| Self::Bye),
            kind::DESCRIBE => Fields::new("describe", body).end().map(|()| Self::Describe),
            _ => Err(WireError::Type {
                found,
                side: "the daemon",
            }),
        }
    }
}

impl DaemonMessage {
    /// Returns the bytes of one SEQPACKET message.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        let number = |name, kind, n| Builder::new(name, kind).u64(n).finish();
        match self {
            Self::Welcome(m) => m.encode(kind::WELCOME),
            Self::Segment(m) => Builder::new("segment", kind::SEGMENT)
                .u32(m.id)
                .u32(0)
                .u64(m.bytes)
                .finish(),
            Self::Layout(m) => encode_layout(m),
            Self::Batch(m) => m.encode(kind::BATCH),
            Self::EndOfStream(step) => number("end_of_stream", kind::END_OF_STREAM, *step),
            Self::Waiting(m) => {
                let detail = bounded("waiting", &m.detail, DETAIL_BYTES_MAX)?;
                let head = Builder::new("waiting", kind::WAITING)
                    .u64(m.step)
                    .u32(m.cause.number());
                head.u32(detail.len() as u32).raw(detail).finish()
            }
            Self::Error(m) => m.encode(kind::ERROR),
            Self::RetireSegment(id) => Builder::new("retire_segment", kind::RETIRE_SEGMENT)
                .u32(*id)
                .u32(0)
                .finish(),
            Self::Marked(step) => number("marked", kind::MARKED, *step),
            Self::MarkRefused(m) => require_step(m.clone())?.encode(kind::MARK_REFUSED),
            Self::StreamInfo(m) => m.encode(kind::STREAM_INFO),
            Self::Reported(count) => number("reported", kind::REPORTED, *count),
            Self::Stage(m) => m.encode(kind::STAGE),
        }
    }

    /// Decodes a message that a rank received.
    pub fn decode(message: &[u8]) -> Result<Self, WireError> {
        let (found, body) = split(message)?;
        match found {
            kind::WELCOME => Welcome::decode(body).map(Self::Welcome),
            kind::SEGMENT => segment(body).map(Self::Segment),
            kind::LAYOUT => layout(body).map(Self::Layout),
            kind::BATCH => BatchMessage::decode(body).map(Self::Batch),
            kind::END_OF_STREAM => number("end_of_stream", body).map(Self::EndOfStream),
            kind::WAITING => waiting(body).map(Self::Waiting),
            kind::ERROR => Fault::decode(body).map(Self::Error),
            kind::RETIRE_SEGMENT => retire_segment(body).map(Self::RetireSegment),
            kind::MARKED => number("marked", body).map(Self::Marked),
            kind::MARK_REFUSED => require_step(Fault::decode(body)?).map(Self::MarkRefused),
            kind::STREAM_INFO => StreamInfo::decode(body).map(Self::StreamInfo),
            kind::REPORTED => number("reported", body).map(Self::Reported),
            kind::STAGE => Stage::decode(body).map(Self::Stage),
            _ => Err(WireError::Type {
                found,
                side: "a client",
            }),
        }
    }
}

fn require_step(fault: Fault) -> Result<Fault, WireError> {
    match fault.step {
        Some(_) => Ok(fault),
        None => Err(WireError::body("mark_refused", "it names no step")),
    }
}

fn bounded<'a>(message: &'static str, text: &'a str, limit: usize) -> Result<&'a [u8], WireError> {
    if text.len() > limit {
        let reason = format!(
            "a text of {} bytes, at most {limit} are allowed",
            text.len()
        );
        return Err(WireError::body(message, reason));
    }
    Ok(text.as_bytes())
}

fn checkpoint(body: &[u8]) -> Result<Checkpoint, WireError> {
    let mut f = Fields::new("checkpoint", body);
    let step = f.u64()?;
    let count = f.count("bytes of state", STATE_BYTES_MAX)?;
    f.reserved()?;
    let state = f.text(count)?.to_owned();
    f.end()?;
    Ok(Checkpoint { step, state })
}

fn progress(body: &[u8]) -> Result<Progress, WireError> {
    let mut f = Fields::new("progress", body);
    let (next_step, waited_us) = (f.u64()?, f.u64()?);
    let waiting = match f.u32()? {
        0 => false,
        1 => true,
        n => return Err(f.error(format!("waiting is {n}; 0 and 1 are allowed"))),
    };
    f.reserved()?;
    f.end()?;
    Ok(Progress {
        next_step,
        waited_us,
        waiting,
    })
}

fn segment(body: &[u8]) -> Result<SegmentMessage, WireError> {
    let mut f = Fields::new("segment", body);
    let id = f.u32()?;
    f.reserved()?;
    let bytes = f.u64()?;
    f.end()?;
    Ok(SegmentMessage { id, bytes })
}

fn encode_layout(m: &LayoutMessage) -> Result<Vec<u8>, WireError> {
    check_layout(m)?;
    let json =
        serde_json::to_vec(&m.layout).map_err(|e| WireError::body("layout", e.to_string()))?;
    Builder::new("layout", kind::LAYOUT)
        .u32(m.id)
        .u32(0)
        .raw(&json)
        .finish()
}

fn layout(body: &[u8]) -> Result<LayoutMessage, WireError> {
    let mut f = Fields::new("layout", body);
    let id = f.u32()?;
    f.reserved()?;
    let layout = serde_json::from_slice(f.rest()).map_err(|e| f.error(e.to_string()))?;
    let message = LayoutMessage { id, layout };
    check_layout(&message).map(|()| message)
}

fn check_layout(m: &LayoutMessage) -> Result<(), WireError> {
    if m.id >= LAYOUTS_MAX {
        return Err(WireError::body(
            "layout",
            format!("id {}; ids are below {LAYOUTS_MAX}", m.id),
        ));
    }
    m.layout.check()
}

fn waiting(body: &[u8]) -> Result<Waiting, WireError> {
    let mut f = Fields::new("waiting", body);
    let step = f.u64()?;
    let number = f.u32()?;
    let cause =
        WaitCause::from_number(number).ok_or_else(|| f.error(format!("unknown cause {number}")))?;
    let count = f.count("bytes of detail", DETAIL_BYTES_MAX)?;
    let detail = f.text(count)?.to_owned();
    f.end()?;
    Ok(Waiting {
        step,
        cause,
        detail,
    })
}

fn retire_segment(body: &[u8]) -> Result<u32, WireError> {
    let mut f = Fields::new("retire_segment", body);
    let id = f.u32()?;
    f.reserved()?;
    f.end()?;
    Ok(id)
}

fn number(message: &'static str, body: &[u8]) -> Result<u64, WireError> {
    let mut f = Fields::new(message, body);
    let n = f.u64()?;
    f.end()?;
    Ok(n)
}
