//! One error type: what failed, on which key, why, and whether it may have happened all the same.

use std::fmt;

/// What is known of the deed after a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It did not happen and will not.
    DidNot,
    /// Nobody told us: it may have happened, or may still happen.
    Unknown,
}

/// The operation that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// Create-only put.
    Create,
    /// Upload of a data object.
    Upload,
    /// Whole-object read.
    Get,
    /// Ranged read.
    GetRange,
    /// Metadata read.
    Head,
    /// Listing.
    List,
    /// Deletion.
    Delete,
    /// Opening the store.
    Open,
}

/// Why it failed, in the terms on which callers decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No object under this key.
    NotFound,
    /// The bucket or root folder does not exist.
    NoBucket,
    /// Credentials lack a permission, or are missing or out of date.
    Denied,
    /// The store does not know the access key, or the secret key is not the one that belongs to it.
    WrongKeys,
    /// The bucket lives in another region.
    WrongRegion,
    /// The clock of this machine is off, so signatures are refused.
    ClockSkew,
    /// No connection: refused, no route, name not found, TLS.
    Unreachable,
    /// The store's certificate is not one that this machine trusts.
    Untrusted,
    /// No answer in time, or the connection broke after the request was sent.
    Timeout,
    /// The store asks for fewer requests (503 SlowDown, 429).
    Throttled,
    /// The store failed inside (other 5xx).
    Server,
    /// A conditional request met another (409): neither yes nor no.
    Conflict,
    /// The range lies beyond the object.
    Range,
    /// The object is larger than the caller reads of one of its kind.
    TooLarge,
    /// Disk or quota full.
    Full,
    /// A key or URL that the contract forbids.
    Invalid,
    /// The store does not keep the contract (for example creates that are not exclusive).
    Contract,
    /// Anything else.
    Other,
}

/// A failed store request. Display is one line: what, where, why, and what to do.
#[derive(Debug, Clone, thiserror::Error)]
pub struct StoreError {
    /// The operation.
    pub op: Op,
    /// Root URL of the store and key, as `s3://bucket/prefix/key`.
    pub location: String,
    /// Why.
    pub kind: ErrorKind,
    /// Whether it may have happened.
    pub effect: Effect,
    /// What the store or system said, one line; request id included where there is one.
    pub detail: String,
}

impl ErrorKind {
    /// Worth trying again after a pause.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Unreachable | Self::Timeout | Self::Throttled | Self::Server | Self::Conflict
        )
    }

    /// What a person can do about it; empty where nothing general helps.
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
            Self::Throttled => "the request is tried again more slowly",
            Self::TooLarge => {
                "no program of ours writes one so large: restore it from a bucket version or a backup, or delete it if nobody knows it"
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
    /// The operations of the contract; whoever tries them in this order deletes what was made before.
    pub const CONTRACT: [Op; 7] = [
        Op::Create,
        Op::Upload,
        Op::Get,
        Op::GetRange,
        Op::Head,
        Op::List,
        Op::Delete,
    ];

    /// The verb for messages and metric labels.
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
    /// Builds an error; `location` is the root, or the root with the key appended.
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

    /// The object at `location` has `size` bytes, or an unknown number, and at most `at_most` are read.
    pub fn too_large(location: impl Into<String>, size: Option<u64>, at_most: u64) -> Self {
        let size = size.map_or_else(|| "more".to_owned(), |size| format!("{size} bytes"));
        let detail = format!("the object has {size}, at most {at_most} are read");
        let (kind, effect) = (ErrorKind::TooLarge, Effect::DidNot);
        Self::new(Op::Get, location, kind, effect, detail)
    }

    /// True when the object is not there.
    pub fn is_not_found(&self) -> bool {
        self.kind == ErrorKind::NotFound
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.op.name(), self.location, self.detail)?;
        if self.effect == Effect::Unknown && matches!(self.op, Op::Create | Op::Upload | Op::Delete)
        {
            f.write_str(" (it may have happened all the same)")?;
        }
        match self.kind.remedy() {
            "" => Ok(()),
            remedy => write!(f, "; {remedy}"),
        }
    }
}
