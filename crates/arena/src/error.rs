//! What can go wrong with segments and sockets.

use std::io;
use std::path::PathBuf;

/// A segment that can't be made or mapped, or a range that is not in it.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The memory is not there: populating would end in SIGKILL.
    #[error(
        "no room for {wanted} bytes of arena: {place} leaves {left} bytes ({detail}); lower arena.bytes or \
         raise the limit (a pod's limit is not visible inside a container: exit code 137 means the same)"
    )]
    NoMemory {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes left.
        left: u64,
        /// The cgroup's folder, or `/proc/meminfo`.
        place: String,
        /// The numbers read there.
        detail: String,
    },
    /// Reserved huge pages were asked for, and there are too few.
    #[error(
        "no {bytes} bytes of reserved huge pages: reserve more (vm.nr_hugepages, or the container's \
         hugepages limit), or set arena.huge_pages to \"auto\""
    )]
    NoHugePages {
        /// Bytes asked for.
        bytes: u64,
    },
    /// A system call failed.
    #[error("segment {name:?} of {bytes} bytes: {call}: {source}")]
    Segment {
        /// The segment's name.
        name: String,
        /// Its size.
        bytes: u64,
        /// The call.
        call: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A descriptor from the peer that can't be trusted.
    #[error("refused a segment of the daemon: {reason}; install client and daemon of one release")]
    Untrusted {
        /// What is wrong with it.
        reason: String,
    },
    /// A range outside the segment or not aligned.
    #[error("{length} bytes at {offset} are not a range of a segment of {bytes} bytes")]
    Range {
        /// First byte.
        offset: u64,
        /// How many.
        length: u64,
        /// The segment's size.
        bytes: u64,
    },
    /// Two frames over the same bytes.
    #[error(
        "{length} bytes at {offset} overlap the frame of {other_length} bytes at {other}, which is in use"
    )]
    Overlap {
        /// First byte.
        offset: u64,
        /// How many.
        length: u64,
        /// First byte of the frame that is there.
        other: u64,
        /// Its length.
        other_length: u64,
    },
}

/// A socket that can't be bound or connected.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Unix socket paths are short.
    #[error("socket path {} has {bytes} bytes, at most {limit} are allowed: choose a shorter one, \
             for example below /run", path.display())]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
        /// The system's limit.
        limit: usize,
    },
    /// Another daemon listens there.
    #[error("socket {}: a second daemon on the same socket: another process serves it; stop that one, \
             or give this one another socket.path", path.display())]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// Something else has the name.
    #[error("socket {}: a file that is no socket has this name; remove it or choose another socket.path", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The folder is not there or not usable.
    #[error("socket {}: its folder can't be used: {source}; create it with `mkdir -p` and give it to this user", path.display())]
    Folder {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Nobody listens.
    #[error("socket {}: no daemon: {source}; start batchweave-consumer, or correct the socket's path", path.display())]
    NoDaemon {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A system call failed.
    #[error("socket {}: {call}: {source}", path.display())]
    System {
        /// The path.
        path: PathBuf,
        /// The call.
        call: &'static str,
        /// Why.
        source: io::Error,
    },
}
