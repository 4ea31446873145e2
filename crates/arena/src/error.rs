//! Errors of segments and sockets.

use std::io;
use std::path::PathBuf;

/// A segment that cannot be created or mapped, or a range outside it.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// There is not enough memory: populating would end in SIGKILL.
    #[error(
        "no room for {wanted} bytes of arena: {place} leaves {left} bytes ({detail}); lower arena.bytes or \
         raise the limit (a pod's limit is not visible inside a container: exit code 137 means the same)"
    )]
    NoMemory {
        wanted: u64,
        left: u64,
        /// The cgroup's folder, or `/proc/meminfo`.
        place: String,
        /// The numbers read there.
        detail: String,
    },
    /// Too few reserved huge pages.
    #[error(
        "no {bytes} bytes of reserved huge pages: reserve more (vm.nr_hugepages, or the container's \
         hugepages limit), or set arena.huge_pages to \"auto\""
    )]
    NoHugePages { bytes: u64 },
    /// A system call failed.
    #[error("segment {name:?} of {bytes} bytes: {call}: {source}")]
    Segment {
        name: String,
        bytes: u64,
        call: &'static str,
        source: io::Error,
    },
    /// The daemon sent a descriptor that is not a sealed segment.
    #[error("refused a segment of the daemon: {reason}; install client and daemon of one release")]
    Untrusted { reason: String },
    /// A range outside the segment, or not aligned.
    #[error("{length} bytes at {offset} are not a range of a segment of {bytes} bytes")]
    Range {
        offset: u64,
        length: u64,
        bytes: u64,
    },
    /// Two frames share bytes of the segment.
    #[error(
        "{length} bytes at {offset} overlap the frame of {other_length} bytes at {other}, which is in use"
    )]
    Overlap {
        offset: u64,
        length: u64,
        /// First byte of the other frame.
        other: u64,
        other_length: u64,
    },
}

/// A socket that cannot be bound or connected.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Unix socket paths are short.
    #[error("socket path {} has {bytes} bytes, at most {limit} are allowed: choose a shorter one, \
             for example below /run", path.display())]
    PathTooLong {
        path: PathBuf,
        bytes: usize,
        limit: usize,
    },
    /// Another daemon listens there.
    #[error("socket {}: a second daemon on the same socket: another process serves it; stop that one, \
             or give this one another socket.path", path.display())]
    InUse { path: PathBuf },
    /// Another file has the name.
    #[error("socket {}: a file that is not a socket has this name; remove it or choose another socket.path", path.display())]
    NotASocket { path: PathBuf },
    /// The socket's folder is missing or not usable.
    #[error("socket {}: its folder can't be used: {source}; create it with `mkdir -p` and give it to this user", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("socket {}: no daemon: {source}; start batchweave-consumer, or correct the socket's path", path.display())]
    NoDaemon { path: PathBuf, source: io::Error },
    /// A system call failed.
    #[error("socket {}: {call}: {source}", path.display())]
    System {
        path: PathBuf,
        call: &'static str,
        source: io::Error,
    },
}
