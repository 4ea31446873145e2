//! A bucket in memory with scripted flaws; it records every deleted key.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use async_trait::async_trait;
use batchweave_store::layer::{Call, Intercept};
use batchweave_store::memory::MemoryStore;
use batchweave_store::{
    Bucket, Create, Effect, ErrorKind, Inspect, LifecycleRule, ListPage, Op, PendingUpload, Store,
    StoreError, Versioning,
};
use bytes::Bytes;

/// A bucket in memory with scripted flaws; it records every deleted key.
#[derive(Debug)]
pub(super) struct Scripted {
    pub(super) inner: Arc<MemoryStore>,
    /// Refused operations (`Upload` for checking the permission of a put), with a prefix.
    pub(super) denied: Vec<(Op, &'static str)>,
    pub(super) overwrites: bool,
    pub(super) forgetful_list: bool,
    pub(super) versioning: Option<Versioning>,
    pub(super) rules: Vec<LifecycleRule>,
    pub(super) deleted: Mutex<BTreeSet<String>>,
}

impl Scripted {
    pub(super) fn new() -> Self {
        Self {
            inner: MemoryStore::at("s3://b"),
            denied: Vec::new(),
            overwrites: false,
            forgetful_list: false,
            versioning: Some(Versioning::Off),
            rules: Vec::new(),
            deleted: Mutex::default(),
        }
    }

    fn may(&self, op: Op, key: &str) -> Result<(), StoreError> {
        let denied = |(no, prefix): &(Op, &str)| *no == op && key.starts_with(prefix);
        if self.denied.iter().any(denied) {
            return Err(refusal(op, key));
        }
        Ok(())
    }
}

fn refusal(op: Op, key: &str) -> StoreError {
    let detail = "HTTP 403 AccessDenied";
    StoreError::new(
        op,
        format!("s3://b/{key}"),
        ErrorKind::Denied,
        Effect::DidNot,
        detail,
    )
}

#[async_trait]
impl Intercept for Scripted {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn around<T, F>(&self, call: Call<'_>, run: F) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        self.may(
            match call.op {
                Op::Upload => Op::Create,
                Op::GetRange | Op::Head => Op::Get,
                op => op,
            },
            call.key,
        )?;
        run.await
    }

    async fn create(&self, key: &str, body: Bytes) -> Result<Create, StoreError> {
        self.may(Op::Create, key)?;
        if self.overwrites {
            self.inner.overwrite(key, body);
            return Ok(Create::Created);
        }
        self.inner.create(key, body).await
    }

    async fn list(&self, prefix: &str, page: Option<String>) -> Result<ListPage, StoreError> {
        self.may(Op::List, prefix)?;
        if self.forgetful_list {
            return Ok(ListPage::default());
        }
        self.inner.list(prefix, page).await
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.may(Op::Delete, key)?;
        self.deleted.lock().unwrap().insert(key.to_owned());
        self.inner.delete(key).await
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }
}

#[async_trait]
impl Inspect for Scripted {
    async fn may_create(&self, key: &str) -> Result<(), StoreError> {
        self.may(Op::Upload, key)
    }
    async fn tidy(&self, _: &str) -> Result<(), StoreError> {
        Ok(())
    }
    fn bucket(&self) -> Option<&dyn Bucket> {
        Some(self)
    }
}

#[async_trait]
impl Bucket for Scripted {
    fn parts_above(&self) -> u64 {
        0
    }
    fn endpoint(&self) -> &'static str {
        "http://scripted"
    }
    async fn versioning(&self) -> Result<Versioning, StoreError> {
        self.versioning
            .ok_or_else(|| refusal(Op::Head, "?versioning"))
    }
    async fn lifecycle(&self) -> Result<Option<Vec<LifecycleRule>>, StoreError> {
        self.versioning
            .ok_or_else(|| refusal(Op::Head, "?lifecycle"))?;
        Ok(Some(self.rules.clone()))
    }
    async fn time(&self, _: &str) -> Result<SystemTime, StoreError> {
        Ok(SystemTime::now())
    }
    async fn refuses_wrong_checksum(&self, _: &str) -> Result<bool, StoreError> {
        Ok(true)
    }
    async fn begin_upload(&self, key: &str, body: Bytes) -> Result<PendingUpload, StoreError> {
        Ok(PendingUpload {
            key: key.to_owned(),
            id: String::from_utf8_lossy(&body).into_owned(),
            ..PendingUpload::default()
        })
    }
    async fn complete_upload(&self, upload: &PendingUpload) -> Result<Create, StoreError> {
        Store::create(self, &upload.key, upload.id.clone().into()).await
    }
    async fn abort_upload(&self, _: &PendingUpload) -> Result<(), StoreError> {
        Ok(())
    }
}
