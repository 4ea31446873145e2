//! Deletes all objects of a stream, in an order in which every interruption leaves no stream that can be opened.

use std::sync::Arc;
use std::time::Duration;

use batchweave_console::CliError;
use batchweave_console::output::count;
use batchweave_core::ids::StreamId;
use batchweave_core::keys::{self, class_of};
use batchweave_daemon::timestamp;
use batchweave_store::{ErrorKind, Pages, Store, StoreError};
use bytes::Bytes;
use futures::future::join_all;
use serde_json::json;

/// Most requests at the same time.
const REQUESTS: usize = 4;
/// Most keys that one request deletes.
const KEYS: usize = 1000;
/// Tries per request. Deleting twice is harmless.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(200);
/// Most passes over the listing: a listing may miss objects that are deleted meanwhile, or a daemon still writes.
const PASSES: usize = 5;

/// Deletes the stream and returns the number of deleted objects.
pub(super) async fn delete(
    store: &Arc<dyn Store>,
    stream: Option<StreamId>,
) -> Result<u64, CliError> {
    let marker = json!({ "format": 1, "stream": stream, "began": timestamp::now() });
    // An interrupted deletion has left the marker.
    let _ = store
        .create(keys::DELETING, Bytes::from(marker.to_string()))
        .await?;
    let mut sweep = Sweep {
        store: store.as_ref(),
        deleted: 0,
    };
    sweep.keys(vec![keys::STREAM.to_owned()]).await?;
    sweep.deleted = u64::from(stream.is_some());
    let mut passes = 0;
    while sweep.pass().await? > 0 {
        passes += 1;
        if passes == PASSES {
            let text = format!(
                "objects still appear at {} while it is deleted: a daemon writes there; stop it, and run the command again",
                store.root()
            );
            return Err(CliError::Failed(text));
        }
    }
    sweep.uploads().await;
    let deleted = sweep.deleted;
    sweep.keys(vec![keys::DELETING.to_owned()]).await?;
    if let Some(inspect) = store.inspect() {
        let _ = inspect.tidy("data/").await;
    }
    Ok(deleted)
}

struct Sweep<'a> {
    store: &'a dyn Store,
    deleted: u64,
}

impl Sweep<'_> {
    /// Lists the root once and deletes everything but the marker; returns the number of deleted objects.
    async fn pass(&mut self) -> Result<u64, CliError> {
        let before = self.deleted;
        let mut pages = Pages::new(self.store, "");
        let mut keys = Vec::new();
        while let Some(objects) = pages.next().await? {
            let own = objects.into_iter().map(|object| object.key);
            keys.extend(own.filter(|key| key != keys::DELETING && class_of(key).is_some()));
            if keys.len() >= REQUESTS * KEYS {
                self.keys(std::mem::take(&mut keys)).await?;
            }
        }
        self.keys(keys).await?;
        Ok(self.deleted - before)
    }

    /// Deletes `keys` with some requests at a time.
    async fn keys(&mut self, keys: Vec<String>) -> Result<(), CliError> {
        let chunks: Vec<&[String]> = keys.chunks(KEYS).collect();
        for some in chunks.chunks(REQUESTS) {
            let answers = join_all(some.iter().map(|keys| self.request(keys))).await;
            for (keys, refused) in some.iter().zip(answers) {
                let refused = refused.map_err(|error| self.stopped(error))?;
                self.deleted += (keys.len() - refused.len()) as u64;
                if let Some((_, error)) = refused.into_iter().next() {
                    return Err(self.stopped(error));
                }
            }
        }
        Ok(())
    }

    /// Sends one request, and again after transient failures.
    async fn request(&self, keys: &[String]) -> Result<Vec<(String, StoreError)>, StoreError> {
        let mut tries = 1;
        loop {
            match self.store.delete_many(keys).await {
                Err(error) if error.kind.is_transient() && tries < TRIES => {
                    tokio::time::sleep(PAUSE * tries).await;
                    tries += 1;
                }
                answer => return answer,
            }
        }
    }

    /// Aborts unfinished uploads; not every store lists them, and not every client may.
    async fn uploads(&self) {
        let Ok(uploads) = self.store.unfinished(keys::DATA).await else {
            return;
        };
        for upload in uploads {
            if let Err(error) = self.store.abort(&upload).await {
                tracing::warn!(key = upload.key, %error, "an unfinished upload stays");
            }
        }
    }

    /// Adds the result so far, and a remedy, to the error that ends the deletion.
    fn stopped(&self, mut error: StoreError) -> CliError {
        let gone = count(self.deleted, "object");
        error.detail = format!(
            "{} ({gone} deleted; run the command again to go on)",
            error.detail
        );
        if error.kind == ErrorKind::Denied {
            error.detail += "; deleting needs s3:DeleteObject on the whole prefix";
        }
        CliError::Store(error)
    }
}
