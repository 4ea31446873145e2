//! Shared memory segments and the socket between daemon and ranks; the only crate with unsafe code.
//!
//! - [`Segment`], [`FrameBuf`]: the daemon makes, seals and fills segments.
//! - [`MappedSegment`], [`FrameView`]: a rank maps and reads them.
//! - [`Listener`], [`Connection`]: whole messages and descriptors over a SEQPACKET socket.
//! - [`give_large_blocks_back`], [`share_heaps`], [`trim_heaps`]: advice to the allocator.
//! - [`receive_low_water`]: fewer wake-ups per byte read from a store.
//!
//! The rules for memory that another process sees stand at the top of `mapping.rs`.
#![allow(unsafe_code)]

mod allocator;
mod closing;
mod error;
mod headroom;
mod listener;
mod low_water;
mod mapped;
mod mapping;
mod numa;
mod segment;
mod socket;

pub use allocator::{give_large_blocks_back, share_heaps, trim_heaps};
pub use closing::{CLOSING_MAX, closing};
pub use error::{ArenaError, SocketError};
pub use headroom::{Headroom, MemoryLimits};
pub use listener::{Listener, SocketPath, check_socket};
pub use low_water::receive_low_water;
pub use mapped::{Element, FrameView, MappedSegment};
pub use numa::memory_nodes;
pub use segment::{FrameBuf, Pages, Segment};
pub use socket::{
    Connection, Interest, OVERFLOW_UID, Packet, Peer, SOCKET_PATH_BYTES_MAX, own_uid,
};
