//! What `batchweave doctor` finds out about a store beyond the contract: permissions, and the rules
//! of an S3 bucket. Nothing here creates an object outside the key that it is given.

use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;

use tokio::sync::oneshot;

use crate::{Create, StoreError};

/// When the halves of a body are sent.
#[derive(Debug)]
pub struct Halves {
    /// Notified when the first half is on its way.
    pub sent: oneshot::Sender<()>,
    /// The second half follows this.
    pub go_on: oneshot::Receiver<()>,
}

/// Questions that a kind of store can answer about itself.
#[async_trait]
pub trait Inspect: Send + Sync {
    /// Whether these credentials may create an object under `key`. None is created.
    async fn may_create(&self, key: &str) -> Result<(), StoreError>;

    /// Removes what objects leave below `prefix` when they are deleted: empty folders, unfinished
    /// multipart uploads.
    async fn tidy(&self, prefix: &str) -> Result<(), StoreError>;

    /// A conditional put whose body comes late: the head and the first half, then the rest. One try.
    /// `None` where requests have no bodies.
    async fn put_in_halves(
        &self,
        key: &str,
        body: Bytes,
        halves: Halves,
    ) -> Option<Result<Create, StoreError>> {
        let _ = (key, body, halves);
        None
    }

    /// The bucket, where there is one.
    fn bucket(&self) -> Option<&dyn Bucket> {
        None
    }
}

/// Questions about an S3 bucket.
#[async_trait]
pub trait Bucket: Send + Sync {
    /// The endpoint, as a person would name it.
    fn endpoint(&self) -> &str;

    /// Data objects above this many bytes are made by multipart uploads.
    fn parts_above(&self) -> u64;

    /// Whether overwritten and deleted objects are kept.
    async fn versioning(&self) -> Result<Versioning, StoreError>;

    /// The enabled lifecycle rules that can touch an object below the store's root.
    async fn lifecycle(&self) -> Result<Vec<LifecycleRule>, StoreError>;

    /// The store's own time, to the second. `key` is read and should be absent.
    async fn time(&self, key: &str) -> Result<SystemTime, StoreError>;

    /// Whether a body whose checksum does not match the one sent along is refused. What is stored
    /// all the same lies under `key`.
    async fn refuses_wrong_checksum(&self, key: &str) -> Result<bool, StoreError>;

    /// Uploads `body` as the only part of a multipart upload of `key`.
    async fn begin_upload(&self, key: &str, body: Bytes) -> Result<PendingUpload, StoreError>;

    /// Completes it, if the key is absent; one try.
    async fn complete_upload(&self, upload: &PendingUpload) -> Result<Create, StoreError>;

    /// Gives it up.
    async fn abort_upload(&self, upload: &PendingUpload) -> Result<(), StoreError>;
}

/// A multipart upload that lacks only its completion.
#[derive(Debug, Clone, Default)]
pub struct PendingUpload {
    /// Where the object will be.
    pub key: String,
    /// The store's name of the upload.
    pub id: String,
    /// What the store answered to the part.
    pub e_tag: Option<String>,
    /// The part's CRC32, where the store wants it again.
    pub crc32: Option<String>,
}

/// Whether a bucket keeps older versions of its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versioning {
    /// Never was on.
    Off,
    /// A delete hides an object behind a marker.
    On,
    /// Was on, and what it kept is still there.
    Suspended,
}

/// What a lifecycle rule does below the store's root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LifecycleRule {
    /// The rule's name.
    pub id: String,
    /// Relative to the root: empty for the whole root.
    pub prefix: String,
    /// It deletes objects of an age.
    pub expires: bool,
    /// It moves objects to this storage class.
    pub moves_to: Option<String>,
    /// It aborts unfinished multipart uploads after so many days.
    pub aborts_uploads_days: Option<i32>,
}

impl LifecycleRule {
    /// Whether it reaches objects whose keys begin with `prefix`.
    pub fn reaches(&self, prefix: &str) -> bool {
        prefix.starts_with(&self.prefix) || self.prefix.starts_with(prefix)
    }
}
