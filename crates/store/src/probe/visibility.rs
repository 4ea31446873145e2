//! Reads and listings see earlier creates and deletions at once: streams rely on it.

use bytes::Bytes;

use super::PROBE_BYTES_MAX;
use crate::{Create, Store, StoreError, found, list_all};

/// The results of the rounds: how often something was not seen at once.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Unseen {
    /// New objects that could not be read, or not whole.
    pub unread: usize,
    /// New objects that were not listed.
    pub unlisted: usize,
    /// Deleted objects that were still read or listed.
    pub undeleted: usize,
}

/// The request at which the rounds stopped.
#[derive(Debug)]
pub enum Stopped {
    /// An object could not be created or read.
    Create(StoreError),
    /// An object could not be deleted.
    Delete(StoreError),
}

/// Creates an object in each round, looks for it by all reads, deletes it, and looks again. `folder` ends in `/`, and the
/// caller alone writes there. Returns what was not seen, and the failure that ended the rounds.
pub async fn probe_visibility(
    store: &dyn Store,
    folder: &str,
    rounds: usize,
) -> (Unseen, Result<(), Stopped>) {
    let mut unseen = Unseen::default();
    for round in 0..rounds {
        let key = format!("{folder}visible-{round}");
        if let Err(error) = create_and_look(store, folder, &key, &mut unseen).await {
            return (unseen, Err(Stopped::Create(error)));
        }
        if let Err(error) = delete_and_look(store, folder, &key, &mut unseen).await {
            return (unseen, Err(Stopped::Delete(error)));
        }
    }
    (unseen, Ok(()))
}

async fn create_and_look(
    store: &dyn Store,
    folder: &str,
    key: &str,
    unseen: &mut Unseen,
) -> Result<(), StoreError> {
    let body = Bytes::from_static(b"made by a check of the store; may be deleted\n");
    let created = store.create(key, body.clone()).await?;
    let read = found(store.get(key, PROBE_BYTES_MAX).await)?;
    let size = found(store.head(key).await)?.map(|head| head.size);
    let is_whole = read.as_ref() == Some(&body) && size == Some(body.len() as u64);
    unseen.unread += usize::from(created == Create::Exists || !is_whole);
    unseen.unlisted += usize::from(!is_listed(store, folder, key).await?);
    Ok(())
}

async fn delete_and_look(
    store: &dyn Store,
    folder: &str,
    key: &str,
    unseen: &mut Unseen,
) -> Result<(), StoreError> {
    store.delete(key).await?;
    let read = found(store.get(key, PROBE_BYTES_MAX).await)?;
    unseen.undeleted += usize::from(read.is_some() || is_listed(store, folder, key).await?);
    Ok(())
}

async fn is_listed(store: &dyn Store, folder: &str, key: &str) -> Result<bool, StoreError> {
    let mut is_there = false;
    list_all(store, folder, |object| is_there |= object.key == key).await?;
    Ok(is_there)
}
