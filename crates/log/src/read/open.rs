//! Opening a log in few rounds of parallel requests: {stream.json, LIST snapshots/}, {newest snapshot, the
//! window of the log that begins with its record}, further windows. The record proves that the snapshot
//! belongs to this log. An unusable snapshot is skipped with a warning: the log alone decides.

use std::sync::Arc;

use batchweave_core::guards;
use batchweave_core::ids::Hash;
use batchweave_core::keys;
use batchweave_core::stream::StreamConfig;
use batchweave_store::Store;
use futures::future::BoxFuture;
use futures::future::join;
use tracing::warn;

use crate::error::LogError;
use crate::log::{Log, LogOptions};
use crate::read::fitting::FreshReads;
use crate::read::retrying::RetryingReads;
use crate::read::snapshot_search::{Found, Search, Start, list_snapshots};

/// A snapshot that saves fewer records is not worth its requests.
const JUMP_MIN: u64 = 16;
/// Records read together with a snapshot when jumping ahead.
const JUMP_WINDOW: u64 = 8;

impl Log {
    /// Opens the stream at the store's root and folds to its head.
    pub fn open(
        store: Arc<dyn Store>,
        options: &LogOptions,
    ) -> BoxFuture<'_, Result<Self, LogError>> {
        Box::pin(async move {
            let reads = RetryingReads::around(Arc::clone(&store), Arc::clone(&options.clock));
            let opened = match Self::open_by(&reads, &store, options).await {
                Err(why) if why.may_be_misread() => {
                    warn!(error = %why, "the log cannot be opened; reading it again over new connections");
                    let fresh = FreshReads::around(&reads);
                    Self::open_by(&fresh, &store, options).await
                }
                opened => opened,
            };
            let mut log = opened?;
            log.store = reads;
            Ok(log)
        })
    }

    /// Opens a log that reads by `store`, a layer around `raw`.
    fn open_by<'a>(
        store: &'a Arc<dyn Store>,
        raw: &'a Arc<dyn Store>,
        options: &'a LogOptions,
    ) -> BoxFuture<'a, Result<Self, LogError>> {
        Box::pin(async move {
            let stream = store.get(keys::STREAM, keys::bytes_max(keys::STREAM));
            let (stream, listed) = join(stream, list_snapshots(store.as_ref())).await;
            let stream_json = match stream {
                Ok(bytes) => bytes,
                Err(e) if e.is_not_found() => {
                    return Err(LogError::NoStream {
                        root: store.root().to_owned(),
                    });
                }
                Err(e) => return Err(e.into()),
            };
            let stream = Arc::new(StreamConfig::from_json(&stream_json, keys::STREAM)?);
            let search = Search {
                store,
                stream: &stream,
                genesis: Hash::sha256(&stream_json),
                unusable: Vec::new(),
            };
            let (start, unusable) = search.run(listed?).await?;
            let start = match start {
                Some(start) => start,
                None => Start::at_zero(store.as_ref(), &stream, &stream_json).await?,
            };
            let mut log = Self::new(Arc::clone(store), start.manifest, options);
            if let Some((hint, bytes)) = start.snapshot {
                log.base = Some(hint.version);
                log.snapshots.note_read(hint, bytes);
            }
            log.snapshots.unusable = unusable;
            let (_, at_head) = log.fold_window(start.tail).await?;
            log.raw = Arc::clone(raw);
            log.window = start.next_window;
            if !at_head {
                log.catch_up().await?;
            }
            log.window = 1;
            Ok(log)
        })
    }
}

impl Log {
    /// Continues from the newest snapshot, if it is well ahead; returns false when it cannot be used: then the
    /// records are read.
    pub(crate) async fn jump(&mut self) -> Result<bool, LogError> {
        let store = Arc::clone(&self.store);
        let least = self.manifest.next_version() + JUMP_MIN;
        let newest = list_snapshots(store.as_ref()).await?.into_iter().max();
        let Some(newest) = newest.filter(|v| *v >= least || guards::jumps_back()) else {
            return Ok(false);
        };
        let stream = Arc::new(self.manifest.stream().clone());
        let mut search = Search {
            store: &store,
            stream: &stream,
            genesis: self.manifest.genesis(),
            unusable: Vec::new(),
        };
        let Found::Good(start) = search.try_start(newest, JUMP_WINDOW).await? else {
            return Ok(false);
        };
        self.manifest = start.manifest;
        if let Some((hint, bytes)) = start.snapshot {
            self.base = Some(hint.version);
            self.snapshots.jumped(hint, bytes);
        }
        self.fold_window(start.tail).await?;
        Ok(true)
    }
}
