//! The messages between consumer daemon and ranks: pure, bounded, little-endian (docs/socket.md).
//!
//! One SEQPACKET message is a header of 16 bytes and a body. A decoder reads untrusted bytes: it never
//! panics, allocates in proportion to the message's size, and refuses short bodies, trailing bytes,
//! nonzero reserved fields and values that a correct peer never sends.
//!
//! - [`ClientMessage`], [`DaemonMessage`]: the two directions; `hello`, `welcome`, `batch`, `layout`,
//!   `report`, `values`, `fault` and `cause` hold their parts.
//! - `limits`: sizes and counts; `bytes`: bounds-checked fields; [`WireError`]: refusals.
#![forbid(unsafe_code)]

mod batch;
mod bytes;
mod cause;
mod error;
mod fault;
mod hello;
mod layout;
mod limits;
mod message;
mod report;
mod stage;
mod stream_info;
#[cfg(test)]
mod tests;
mod values;
mod welcome;

pub use batch::{BatchMessage, Release, SliceRef};
pub use cause::WaitCause;
pub use error::WireError;
pub use fault::{ErrorName, Fault};
pub use hello::{BALANCED, Begin, Hello, Mode, Parent, Replaces};
pub use layout::{ArrayLayout, Dtype, Layout};
pub use limits::*;
pub use message::{
    Checkpoint, ClientMessage, DaemonMessage, LayoutMessage, Progress, SegmentMessage, Waiting,
};
pub use report::{Report, StepStates};
pub use stage::{STAGES, Stage};
pub use stream_info::{StreamInfo, Tokenizer};
pub use values::{
    DetailLoss, DetailOf, SourceLoss, StepValues, VALUE_DETAILS_MAX, VALUE_SOURCES_MAX, VALUES_MAX,
};
pub use welcome::Welcome;

const _: () = {
    assert!(
        HEADER_BYTES + batch::BATCH_HEAD_BYTES + FRAMES_MAX * batch::SLICE_BYTES
            <= MESSAGE_BYTES_MAX
    );
    assert!(HEADER_BYTES + 16 + FRAMES_MAX * 8 <= MESSAGE_BYTES_MAX);
    assert!(HEADER_BYTES + 16 + STATE_BYTES_MAX <= MESSAGE_BYTES_MAX);
};
