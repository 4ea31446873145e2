//! Errors at the start of the server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The reason why the server could not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be bound.
    #[error(
        "cannot listen on {address}: {source}; choose another with --listen (port 0 takes a free one)"
    )]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    /// The data folder cannot be used.
    #[error("{}: cannot {action}: {source}; check the folder's owner and free space, or choose another with --dir", path.display())]
    Folder {
        path: PathBuf,
        action: &'static str,
        source: io::Error,
    },
    /// Another server uses the folder; both would overwrite each other's objects.
    #[error("{}: another dev-s3 server uses this folder; stop it or choose another with --dir", path.display())]
    InUse { path: PathBuf },
    /// A stored object's file cannot be read.
    #[error("{}: not an object written by dev-s3 ({reason}); remove the file or choose another folder with --dir", path.display())]
    BadObject { path: PathBuf, reason: String },
    /// A fault specification is invalid.
    #[error("faults: `{item}`: {reason}; write for example `error=0.01,slow=0.02,put.lost=0.005`")]
    Faults {
        /// The item between two commas.
        item: String,
        reason: String,
    },
    /// S3 would refuse the bucket name.
    #[error(
        "bucket name `{name}`: S3 allows 3 to 63 characters of a-z, 0-9, `-` and `.`, beginning and ending with a letter or digit"
    )]
    BucketName { name: String },
    /// A policy cannot be read, or uses an unknown feature.
    #[error("{}: not a policy that dev-s3 can enforce: {why}; deploy/iam shows what it understands", file.display())]
    Policy { file: PathBuf, why: String },
    /// Signals cannot be received.
    #[error("cannot receive signals: {source}; run it from an ordinary shell or service")]
    Signals { source: io::Error },
}
