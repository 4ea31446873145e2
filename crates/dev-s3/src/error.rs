//! What can go wrong when the server starts.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the server could not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken, or not ours.
    #[error(
        "cannot listen on {address}: {source}; choose another with --listen (port 0 takes a free one)"
    )]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The data folder cannot be used.
    #[error("{}: cannot {deed}: {source}; check the folder's owner and free space, or choose another with --dir", path.display())]
    Folder {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        deed: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// Two servers on one folder would overwrite each other's objects.
    #[error("{}: another dev-s3 server uses this folder; stop it or choose another with --dir", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// A stored object's file cannot be read back.
    #[error("{}: not an object written by dev-s3 ({reason}); remove the file or choose another folder with --dir", path.display())]
    BadObject {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A fault specification that does not parse.
    #[error("faults: `{item}`: {reason}; write for example `error=0.01,slow=0.02,put.lost=0.005`")]
    Faults {
        /// The item between two commas.
        item: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A bucket name that S3 would refuse.
    #[error(
        "bucket name `{name}`: S3 allows 3 to 63 characters of a-z, 0-9, `-` and `.`, beginning and ending with a letter or digit"
    )]
    BucketName {
        /// The name.
        name: String,
    },
    /// A policy that can't be read, or uses what is not understood.
    #[error("{}: not a policy that dev-s3 can enforce: {why}; deploy/iam shows what it understands", file.display())]
    Policy {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Signals cannot be received.
    #[error("cannot receive signals: {source}; run it from an ordinary shell or service")]
    Signals {
        /// The system's reason.
        source: io::Error,
    },
}
