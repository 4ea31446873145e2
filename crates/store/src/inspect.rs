//! Properties of a store beyond the contract, for `batchweave doctor`: permissions and the rules of an S3
//! bucket. Objects are created only under the given key.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;

use tokio::sync::oneshot;

use crate::{Create, StoreError};

/// Signals around the second half of a body.
#[derive(Debug)]
pub struct Halves {
    /// Sent when the first half has been handed to the network.
    pub sent: oneshot::Sender<()>,
    /// The second half is sent after this signal.
    pub go_on: oneshot::Receiver<()>,
}

/// Properties that a kind of store can determine.
#[async_trait]
pub trait Inspect: Send + Sync {
    /// Checks that these credentials may create an object under `key`, without creating one.
    async fn may_create(&self, key: &str) -> Result<(), StoreError>;

    /// Removes the remains of deleted objects below `prefix`: empty folders, unfinished multipart
    /// uploads.
    async fn tidy(&self, prefix: &str) -> Result<(), StoreError>;

    /// Sends one conditional put whose body arrives late: the head and the first half, then the rest.
    /// Returns `None` where requests have no bodies.
    async fn put_in_halves(
        &self,
        key: &str,
        body: Bytes,
        halves: Halves,
    ) -> Option<Result<Create, StoreError>> {
        let _ = (key, body, halves);
        None
    }

    /// Returns the bucket, where there is one.
    fn bucket(&self) -> Option<&dyn Bucket> {
        None
    }
}

/// Properties of an S3 bucket.
#[async_trait]
pub trait Bucket: Send + Sync {
    /// Returns the endpoint's name for messages.
    fn endpoint(&self) -> &str;

    /// Returns the size in bytes above which data objects are uploaded in parts.
    fn parts_above(&self) -> u64;

    /// Returns whether overwritten and deleted objects are kept.
    async fn versioning(&self) -> Result<Versioning, StoreError>;

    /// Returns the enabled lifecycle rules that reach objects below the store's root; `None` where the store's interface
    /// does not have them.
    async fn lifecycle(&self) -> Result<Option<Vec<LifecycleRule>>, StoreError>;

    /// Returns what else keeps or protects the bucket's objects; `None` where the store's interface has no such properties.
    async fn guards(&self) -> Result<Option<Guards>, StoreError> {
        Ok(None)
    }

    /// Returns the store's clock, in whole seconds. Reads `key`, which should be absent.
    async fn time(&self, key: &str) -> Result<SystemTime, StoreError>;

    /// Returns whether the store refuses a body that does not match its checksum. If it does not, the
    /// object is left under `key`.
    async fn refuses_wrong_checksum(&self, key: &str) -> Result<bool, StoreError>;

    /// Uploads `body` as the only part of a multipart upload of `key`.
    async fn begin_upload(&self, key: &str, body: Bytes) -> Result<PendingUpload, StoreError>;

    /// Completes the upload with one request if the key is absent.
    async fn complete_upload(&self, upload: &PendingUpload) -> Result<Create, StoreError>;

    /// Whether the store lists unfinished uploads, and keeps them until they are aborted; otherwise they end by
    /// themselves.
    fn lists_uploads(&self) -> bool {
        true
    }

    /// Aborts the upload; succeeds if it is gone already.
    async fn abort_upload(&self, upload: &PendingUpload) -> Result<(), StoreError>;
}

/// A multipart upload before its completion.
#[derive(Debug, Clone, Default)]
pub struct PendingUpload {
    /// The key of the future object.
    pub key: String,
    /// The store's id of the upload.
    pub id: String,
    /// The entity tag of the part.
    pub e_tag: Option<String>,
    /// The part's CRC32, where the store requires it at completion.
    pub crc32: Option<String>,
    /// The bytes that the completion sends, where the store takes the last part with it.
    pub last: Bytes,
}

/// Properties of a bucket that keep deleted objects, or forbid deletes, besides versions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guards {
    /// Time for which deleted objects are kept, and paid for.
    pub soft_delete: Option<Duration>,
    /// Age below which no object can be deleted.
    pub retention: Option<Duration>,
    /// Objects can't be deleted by a policy of unknown length.
    pub immutable: bool,
    /// Objects are held until the hold is lifted.
    pub holds: bool,
    /// Whether permissions are those of the bucket alone, where a bucket can have others.
    pub uniform_access: Option<bool>,
    /// The place of the bucket.
    pub location: Option<String>,
    /// The class of new objects.
    pub storage_class: Option<String>,
}

/// Whether a bucket keeps older versions of its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versioning {
    /// Versioning was never enabled.
    Off,
    /// Deletes hide objects behind a marker.
    On,
    /// No longer enabled; older versions are still there.
    Suspended,
}

/// The effect of a lifecycle rule below the store's root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LifecycleRule {
    pub id: String,
    /// Prefix relative to the root; empty for the whole root.
    pub prefix: String,
    /// The rule deletes objects by age.
    pub expires: bool,
    /// The storage class to which the rule moves objects.
    pub moves_to: Option<String>,
    /// Days after which the rule aborts unfinished multipart uploads.
    pub aborts_uploads_days: Option<i32>,
}

impl LifecycleRule {
    /// Returns the rule of a bucket with its prefix relative to `root` (empty, or ends in `/`); `None` if it has no
    /// effect there.
    pub(crate) fn below(mut self, root: &str) -> Option<Self> {
        self.prefix = match self.prefix.strip_prefix(root) {
            Some(rest) => rest.to_owned(),
            None if root.starts_with(&self.prefix) => String::new(),
            None => return None,
        };
        Some(self)
    }

    /// Returns whether the rule applies to objects whose keys begin with `prefix`.
    pub fn reaches(&self, prefix: &str) -> bool {
        prefix.starts_with(&self.prefix) || self.prefix.starts_with(prefix)
    }
}
