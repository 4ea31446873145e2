//! Numbers that both sides of the socket agree on.

/// First bytes of every message.
pub const MAGIC: [u8; 4] = *b"BWSK";
/// Protocol version of this build.
pub const PROTOCOL: u16 = 1;
/// Bytes of a message's header.
pub const HEADER_BYTES: usize = 16;
/// Most bytes of a message, header included.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Most frames in one batch or release message.
pub const FRAMES_MAX: usize = 1024;
/// Most layouts that a session may have in use; layout ids are below this.
pub const LAYOUTS_MAX: u32 = 64;
/// Alignment in bytes of a frame's data in its segment.
pub const ALIGN: u64 = 64;
/// Most bytes of a wait's detail text.
pub const DETAIL_BYTES_MAX: usize = 4 << 10;
/// Most bytes of the state in a checkpoint mark.
pub const STATE_BYTES_MAX: usize = 16 << 10;
/// Most ranges of steps in one report.
pub const STATES_MAX: usize = 512;
/// Most bytes of the reason for leaving a step out.
pub const REASON_BYTES_MAX: usize = 64;
/// Fewest credits of a rank: a loop `for batch in reader` keeps the previous batch.
pub const CREDITS_MIN: u32 = 2;
/// Most credits that a rank may ask for.
pub const CREDITS_MAX: u32 = 1024;
