//! Properties of a cloud's bucket beyond the contract: permissions, rules, clock, checksums, uploads in parts.

use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;

use super::{Answer, CloudStore, halves, time, upload};
use crate::{
    Bucket, Create, Effect, ErrorKind, Guards, Halves, Inspect, LifecycleRule, Op, PendingUpload,
    Store, StoreError, Versioning,
};

#[async_trait]
impl Inspect for CloudStore {
    async fn may_create(&self, key: &str) -> Result<(), StoreError> {
        self.0.dialect.may_create(self, key).await
    }

    /// Unfinished uploads have no objects: the clouds remove them by themselves within a week.
    async fn tidy(&self, _prefix: &str) -> Result<(), StoreError> {
        Ok(())
    }

    async fn put_in_halves(
        &self,
        key: &str,
        body: Bytes,
        halves: Halves,
    ) -> Option<Result<Create, StoreError>> {
        Some(halves::put(self, key, body, halves).await)
    }

    fn bucket(&self) -> Option<&dyn Bucket> {
        Some(self)
    }
}

#[async_trait]
impl Bucket for CloudStore {
    fn endpoint(&self) -> &str {
        &self.0.transport.endpoint
    }

    fn parts_above(&self) -> u64 {
        upload::PARTS_ABOVE_BYTES as u64
    }

    async fn versioning(&self) -> Result<Versioning, StoreError> {
        self.0.dialect.versioning(self).await
    }

    async fn lifecycle(&self) -> Result<Option<Vec<LifecycleRule>>, StoreError> {
        let rules = self.0.dialect.lifecycle(self).await?;
        let below = |rule: LifecycleRule| rule.below(self.prefix());
        Ok(rules.map(|rules| rules.into_iter().filter_map(below).collect()))
    }

    async fn guards(&self) -> Result<Option<Guards>, StoreError> {
        self.0.dialect.guards(self).await.map(Some)
    }

    async fn time(&self, key: &str) -> Result<SystemTime, StoreError> {
        let request = self.0.dialect.head(&self.full(key));
        let answer = self.once(Op::Get, key, request).await?;
        let date = answer.header("date").and_then(time);
        date.ok_or_else(|| {
            let (kind, effect) = (ErrorKind::Other, Effect::DidNot);
            self.error(Op::Get, key, kind, effect, "the answer has no Date header")
        })
    }

    async fn refuses_wrong_checksum(&self, key: &str) -> Result<bool, StoreError> {
        let body = Bytes::from_static(b"a body with another checksum");
        let request = self.0.dialect.create_damaged(&self.full(key), body);
        let answer: Answer = self.once(Op::Upload, key, request).await?;
        match answer.status {
            200..300 => Ok(false),
            400 => Ok(true),
            _ => Err(self.failed(Op::Upload, key, &self.refused(Op::Upload, &answer))),
        }
    }

    fn lists_uploads(&self) -> bool {
        false
    }

    async fn begin_upload(&self, key: &str, body: Bytes) -> Result<PendingUpload, StoreError> {
        self.0.dialect.begin_upload(self, key, body).await
    }

    async fn complete_upload(&self, upload: &PendingUpload) -> Result<Create, StoreError> {
        self.0.dialect.complete_upload(self, upload).await
    }

    async fn abort_upload(&self, upload: &PendingUpload) -> Result<(), StoreError> {
        self.0.dialect.abort_upload(self, upload).await
    }
}

impl CloudStore {
    /// Checks by a create with a wrong checksum that a create would be allowed: the store checks the permission first.
    pub(crate) async fn may_create_damaged(&self, key: &str) -> Result<(), StoreError> {
        let body = Bytes::from_static(b"a body with another checksum");
        let request = self.0.dialect.create_damaged(&self.full(key), body);
        let answer = self.once(Op::Create, key, request).await?;
        match answer.status {
            200..300 => {
                let _ = self.delete(key).await;
                let why = "the store accepts a body that does not match its checksum";
                Err(self.broken(Op::Create, key, why))
            }
            400 => Ok(()),
            _ if self.is_there(&answer) => Ok(()),
            _ => Err(self.failed(Op::Create, key, &self.refused(Op::Create, &answer))),
        }
    }
}
