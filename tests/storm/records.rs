//! The stream as its records alone give it: copies of the log may be forged, and a reader compares one of 16 steps only.

use batchweave_core::keys;
use batchweave_log::{Log, LogOptions};
use batchweave_store::memory::MemoryStore;
use batchweave_store::{Store, list_all};

/// Opens the log of the records of `store`, without its snapshots and segments.
pub(super) async fn open(store: &dyn Store) -> Log {
    let copy = MemoryStore::new();
    let mut all = vec![keys::STREAM.to_owned()];
    list_all(store, keys::LOG, |object| all.push(object.key))
        .await
        .unwrap();
    for key in all {
        copy.overwrite(&key, store.get(&key, u64::MAX).await.unwrap());
    }
    let options = LogOptions {
        write_snapshots: false,
        ..LogOptions::new(rand::random())
    };
    Log::open(copy, &options).await.unwrap()
}
