//! The error of every store: the operation, the key, the cause, and whether it may have taken effect.

use std::fmt;

use crate::Location;

/// Whether a failed request may have taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It had no effect and will not have one.
    DidNot,
    /// Unknown: it may have taken effect, or may still do so.
    Unknown,
}

/// The operation that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    Create,
    Upload,
    Get,
    GetRange,
    Head,
    List,
    Delete,
    Open,
}

/// The cause of a failure, as far as callers distinguish causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No object under this key.
    NotFound,
    /// The bucket or root folder does not exist.
    NoBucket,
    /// Credentials lack a permission, or are missing or expired.
    Denied,
    /// The store does not know the access key, or the secret key does not match it.
    WrongKeys,
    /// The bucket lives in another region.
    WrongRegion,
    /// The clock of this machine is wrong, so signatures are refused.
    ClockSkew,
    /// No connection: refused, no route, name not found, TLS.
    Unreachable,
    /// This machine does not trust the store's certificate.
    Untrusted,
    /// No answer in time, or the connection broke after the request was sent.
    Timeout,
    /// The store asks for fewer requests (503 SlowDown, 429).
    Throttled,
    /// The store failed internally (other 5xx).
    Server,
    /// Two conditional requests collided (409): the outcome is unknown.
    Conflict,
    /// The range reaches beyond the object.
    Range,
    /// The object is larger than the caller's bound for its kind.
    TooLarge,
    /// The disk or quota is full.
    Full,
    /// A key or URL that the contract forbids.
    Invalid,
    /// The store breaks the contract, for example by creates that are not exclusive.
    Contract,
    Other,
}

/// A failed store request. It displays as one line: operation, location, cause and remedy.
#[derive(Debug, Clone, thiserror::Error)]
pub struct StoreError {
    pub op: Op,
    /// URL of the object or root, for example `s3://bucket/prefix/key`.
    pub location: String,
    pub kind: ErrorKind,
    /// Whether the request may have taken effect.
    pub effect: Effect,
    /// The message of the store or system in one line, with the request id where there is one.
    pub detail: String,
}

impl ErrorKind {
    /// Returns whether a retry after a pause may succeed.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Unreachable | Self::Timeout | Self::Throttled | Self::Server | Self::Conflict
        )
    }

    /// Returns a remedy for operators; empty where none applies in general.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::NoBucket => "create the bucket or folder, or correct the URL",
            Self::Denied => {
                "check the credentials and their permissions (a missing key answers 403 instead of 404 \
                 when s3:ListBucket is not granted)"
            }
            Self::WrongKeys => "check the access key and the secret key",
            Self::WrongRegion => "set the bucket's region in AWS_REGION or in the profile",
            Self::ClockSkew => "set this machine's clock (chrony or systemd-timesyncd)",
            Self::Unreachable => "check the endpoint, DNS, route and proxy",
            Self::Untrusted => {
                "name a file with the authority's certificates (PEM) in SSL_CERT_FILE, or correct the endpoint"
            }
            Self::Timeout => "check the network path to the store",
            Self::Throttled => "the request is retried more slowly",
            Self::TooLarge => {
                "BatchWeave never writes an object this large: restore it from a bucket version or a backup, or delete it if it is unknown"
            }
            Self::Full => "free space on the device or raise the quota",
            Self::Contract => {
                "use a store that honours If-None-Match: * atomically and answers reads exactly; `batchweave doctor` shows details"
            }
            _ => "",
        }
    }
}

impl Op {
    /// The operations of the contract, in an order in which the last deletes the objects of the first.
    pub const CONTRACT: [Op; 7] = [
        Op::Create,
        Op::Upload,
        Op::Get,
        Op::GetRange,
        Op::Head,
        Op::List,
        Op::Delete,
    ];

    /// Returns the verb for messages and metric labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Upload => "upload",
            Self::Get => "get",
            Self::GetRange => "get_range",
            Self::Head => "head",
            Self::List => "list",
            Self::Delete => "delete",
            Self::Open => "open",
        }
    }
}

impl StoreError {
    /// Returns an error; `location` is the root, or the root with the key appended.
    pub fn new(
        op: Op,
        location: impl Into<String>,
        kind: ErrorKind,
        effect: Effect,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            op,
            location: location.into(),
            kind,
            effect,
            detail: detail.into(),
        }
    }

    /// Returns the error of an object that has `size` bytes, if known, where at most `at_most` are read.
    pub fn too_large(location: impl Into<String>, size: Option<u64>, at_most: u64) -> Self {
        let size = size.map_or_else(|| "more".to_owned(), |size| format!("{size} bytes"));
        let detail = format!("the object has {size}, at most {at_most} are read");
        let (kind, effect) = (ErrorKind::TooLarge, Effect::DidNot);
        Self::new(Op::Get, location, kind, effect, detail)
    }

    /// Returns a remedy for operators; empty where none applies in general.
    pub fn remedy(&self) -> &'static str {
        match Location::parse(&self.location) {
            Ok(Location::Folder(_)) => self.remedy_in_folder(),
            Ok(location) => location
                .remedy(self.kind)
                .unwrap_or_else(|| self.kind.remedy()),
            Err(_) => self.kind.remedy(),
        }
    }

    fn remedy_in_folder(&self) -> &'static str {
        match self.kind {
            ErrorKind::NoBucket => "create the folder, or correct the URL",
            ErrorKind::Denied if self.detail.contains("ead-only") => {
                "mount it writable, or name a folder elsewhere"
            }
            ErrorKind::Denied => {
                "let this user read and write in this folder (chown, chmod), or name another one"
            }
            ErrorKind::TooLarge => {
                "BatchWeave never writes a file this large: restore it from a backup, or delete it if it is unknown"
            }
            ErrorKind::Contract => {
                "use a file system with hard links, such as ext4, XFS or NFS; `batchweave doctor` shows details"
            }
            ErrorKind::Timeout => "check the mount of this folder",
            kind => kind.remedy(),
        }
    }

    fn is_in_folder(&self) -> bool {
        matches!(Location::parse(&self.location), Ok(Location::Folder(_)))
    }

    /// Returns whether the folder of a `file://` store does not exist. A missing bucket is another case, because
    /// nothing creates one.
    pub fn is_no_folder(&self) -> bool {
        self.kind == ErrorKind::NoBucket && self.is_in_folder()
    }

    /// Returns whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.kind == ErrorKind::NotFound
    }
}

/// Turns the answer that an object does not exist into `None`.
pub fn found<T>(outcome: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match outcome {
        Err(error) if error.is_not_found() => Ok(None),
        outcome => outcome.map(Some),
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.op.name(), self.location, self.detail)?;
        if self.effect == Effect::Unknown && matches!(self.op, Op::Create | Op::Upload | Op::Delete)
        {
            f.write_str(" (it may have taken effect)")?;
        }
        match self.remedy() {
            "" => Ok(()),
            remedy => write!(f, "; {remedy}"),
        }
    }
}
