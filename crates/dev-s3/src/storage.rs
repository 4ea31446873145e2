//! Buckets and objects, in memory or in files.
//!
//! The index of a bucket is always in memory and guarded by one lock. A write prepares its bytes (in
//! memory, or in a temporary file) without the lock; under the lock it checks its condition, renames
//! the file and adds the object. The names of the buckets have another lock, which is taken first, and
//! the uploads in progress, which are always in memory, a third.

mod disk;
mod list;
mod object;
mod upload;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use futures::TryStreamExt;
use s3s::dto::ETagCondition;
use s3s::{S3Error, S3Result, s3_error};

use crate::Error;
pub(crate) use list::{Order, Page, Query};
pub(crate) use object::{Headers, Object, now_ms, read};
pub(crate) use upload::{Part, Upload};

/// All buckets of one server.
#[derive(Debug)]
pub(crate) struct Storage {
    buckets: Mutex<BTreeMap<String, Arc<Bucket>>>,
    folder: Option<disk::Folder>,
}

/// One bucket with its objects.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub created: SystemTime,
    objects: Mutex<BTreeMap<String, Arc<Object>>>,
    uploads: Mutex<BTreeMap<String, Upload>>,
    folder: Option<disk::BucketFolder>,
    /// Deleted, so that writes in progress are refused; changed under the lock of `objects`.
    gone: AtomicBool,
}

/// The conditions `If-Match` and `If-None-Match` of a write.
#[derive(Debug, Clone, Default)]
pub(crate) struct Condition {
    pub if_match: Option<ETagCondition>,
    pub if_none_match: Option<ETagCondition>,
}

fn no_such_bucket(name: &str) -> S3Error {
    s3_error!(NoSuchBucket, "The specified bucket does not exist: {name}")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Condition {
    fn check(&self, found: Option<&Arc<Object>>) -> S3Result<()> {
        let failed = || {
            s3_error!(
                PreconditionFailed,
                "At least one of the pre-conditions you specified did not hold"
            )
        };
        if let Some(wanted) = &self.if_none_match
            && found.is_some_and(|object| object.matches(wanted))
        {
            return Err(failed());
        }
        match (&self.if_match, found) {
            (None, _) => Ok(()),
            (Some(_), None) => Err(s3_error!(
                NoSuchKey,
                "If-Match was given and the key does not exist"
            )),
            (Some(wanted), Some(object)) if object.matches(wanted) => Ok(()),
            (Some(_), Some(_)) => Err(failed()),
        }
    }
}

impl Storage {
    /// Opens the storage; with a folder, its stored objects are available again.
    pub(crate) fn open(dir: Option<PathBuf>) -> Result<Self, Error> {
        let Some(dir) = dir else {
            return Ok(Self {
                buckets: Mutex::default(),
                folder: None,
            });
        };
        let folder = disk::Folder::open(dir)?;
        let mut buckets = BTreeMap::new();
        for (name, created, bucket_folder) in folder.buckets()? {
            let objects = bucket_folder.load()?;
            let bucket = Bucket {
                created,
                objects: Mutex::new(objects),
                uploads: Mutex::default(),
                folder: Some(bucket_folder),
                gone: AtomicBool::new(false),
            };
            buckets.insert(name, Arc::new(bucket));
        }
        Ok(Self {
            buckets: Mutex::new(buckets),
            folder: Some(folder),
        })
    }

    /// Creates a bucket. Returns `false` if it exists.
    pub(crate) fn create_bucket(&self, name: &str) -> Result<bool, Error> {
        let mut buckets = lock(&self.buckets);
        if buckets.contains_key(name) {
            return Ok(false);
        }
        let folder = self
            .folder
            .as_ref()
            .map(|folder| folder.create_bucket(name))
            .transpose()?;
        let bucket = Bucket {
            created: SystemTime::now(),
            objects: Mutex::default(),
            uploads: Mutex::default(),
            folder,
            gone: AtomicBool::new(false),
        };
        buckets.insert(name.to_owned(), Arc::new(bucket));
        Ok(true)
    }

    pub(crate) fn bucket(&self, name: &str) -> S3Result<Arc<Bucket>> {
        let found = lock(&self.buckets).get(name).cloned();
        found.ok_or_else(|| no_such_bucket(name))
    }

    pub(crate) fn delete_bucket(&self, name: &str) -> S3Result<()> {
        let mut buckets = lock(&self.buckets);
        let bucket = buckets.get(name).ok_or_else(|| no_such_bucket(name))?;
        let objects = lock(&bucket.objects);
        if !objects.is_empty() {
            return Err(s3_error!(
                BucketNotEmpty,
                "The bucket you tried to delete is not empty: {name}"
            ));
        }
        if let Some(folder) = &bucket.folder {
            folder.remove()?;
        }
        bucket.gone.store(true, Ordering::Relaxed);
        drop(objects);
        buckets.remove(name);
        Ok(())
    }

    pub(crate) fn bucket_names(&self) -> Vec<(String, SystemTime)> {
        lock(&self.buckets)
            .iter()
            .map(|(name, bucket)| (name.clone(), bucket.created))
            .collect()
    }
}

impl Storage {
    /// Returns the bytes of another object below the folder of `key`, in the first bucket that has this key: the one
    /// before it if there is one.
    pub(crate) async fn neighbour(&self, key: &str) -> Option<Bytes> {
        let buckets: Vec<_> = lock(&self.buckets).values().cloned().collect();
        let found = buckets.iter().find_map(|bucket| bucket.neighbour(key))?;
        let body = read(&found, 0..found.headers.size).await.ok()?;
        let chunks: Vec<Bytes> = body.try_collect().await.ok()?;
        Some(chunks.concat().into())
    }
}

impl Bucket {
    fn neighbour(&self, key: &str) -> Option<Arc<Object>> {
        let objects = lock(&self.objects);
        objects.get(key)?;
        let folder = &key[..=key.rfind('/')?];
        let same = |(other, _): &(&String, &Arc<Object>)| other.starts_with(folder);
        let before = objects
            .range::<str, _>((Bound::Unbounded, Bound::Excluded(key)))
            .next_back()
            .filter(same);
        let mut after = objects.range::<str, _>((Bound::Excluded(key), Bound::Unbounded));
        let (_, found) = before.or_else(|| after.next().filter(same))?;
        Some(Arc::clone(found))
    }

    pub(crate) fn get(&self, key: &str) -> S3Result<Arc<Object>> {
        let found = lock(&self.objects).get(key).cloned();
        found.ok_or_else(|| s3_error!(NoSuchKey, "The specified key does not exist: {key}"))
    }

    /// Checks a condition before the write, as a store does that does not check it again.
    pub(crate) fn check_early(&self, key: &str, condition: &Condition) -> S3Result<()> {
        condition.check(lock(&self.objects).get(key))
    }

    /// Returns the index for a write, which a deleted bucket refuses.
    fn objects_to_write(&self) -> S3Result<MutexGuard<'_, BTreeMap<String, Arc<Object>>>> {
        let objects = lock(&self.objects);
        if self.gone.load(Ordering::Relaxed) {
            return Err(s3_error!(NoSuchBucket, "The bucket was deleted"));
        }
        Ok(objects)
    }

    /// Makes `body` the object at `key` if the condition holds at that instant.
    pub(crate) async fn put(
        self: &Arc<Self>,
        key: &str,
        headers: Headers,
        body: Bytes,
        condition: Condition,
    ) -> S3Result<Arc<Object>> {
        if self.folder.is_none() {
            let object = Arc::new(Object::in_memory(headers, body));
            let mut objects = self.objects_to_write()?;
            condition.check(objects.get(key))?;
            objects.insert(key.to_owned(), Arc::clone(&object));
            return Ok(object);
        }
        let (bucket, key) = (Arc::clone(self), key.to_owned());
        let put = move || bucket.put_file(&key, headers, &body, &condition);
        tokio::task::spawn_blocking(put)
            .await
            .map_err(|error| s3_error!(error, InternalError))?
    }

    fn put_file(
        &self,
        key: &str,
        headers: Headers,
        body: &[u8],
        condition: &Condition,
    ) -> S3Result<Arc<Object>> {
        let Some(folder) = &self.folder else {
            return Err(s3_error!(InternalError));
        };
        let draft = folder.write_draft(key, &headers, body)?;
        let mut objects = self.objects_to_write()?;
        condition.check(objects.get(key))?;
        let object = Arc::new(folder.publish(draft, headers)?);
        let replaced = objects.insert(key.to_owned(), Arc::clone(&object));
        drop(objects);
        if let Some(old) = replaced {
            old.remove_replaced();
        }
        Ok(object)
    }

    /// Deletes an object; deleting an absent one succeeds. One whose file stays would be back after a restart, so it
    /// stays.
    pub(crate) fn delete(&self, key: &str) -> S3Result<()> {
        let mut objects = lock(&self.objects);
        if let Some(object) = objects.get(key) {
            object.remove_file().map_err(|error| {
                s3_error!(error, InternalError, "cannot remove the file of {key}")
            })?;
            objects.remove(key);
        }
        Ok(())
    }

    pub(crate) fn list(&self, query: &Query<'_>, order: Order) -> Page {
        list::page(&lock(&self.objects), query, order)
    }

    /// Runs `act` on the uploads in progress.
    pub(crate) fn uploads<T>(&self, act: impl FnOnce(&mut BTreeMap<String, Upload>) -> T) -> T {
        act(&mut lock(&self.uploads))
    }
}

#[cfg(test)]
mod tests;
