//! The stored `tokenizer.json` file of a stream: put once, before the first commit, and read by those who decode.

use std::sync::Arc;

use batchweave_core::error::FormatError;
use batchweave_core::keys;
use batchweave_core::limits::TOKENIZER_BYTES_MAX;
use batchweave_core::stream::TokenizerId;
use batchweave_store::{Store, found};
use bytes::Bytes;

use crate::clock::TokioClock;
use crate::commit::resolve::{self, Resolved};
use crate::error::LogError;

/// Reads of the file before it counts as damaged: one wrong read says nothing about the object.
const READS: u32 = 3;

/// Stores the file that made the tokens of a stream, unless it is there. Returns whether this call stored it. Fails
/// when the file does not fit the stream, when it is too large, or when other bytes are in its place.
pub async fn store_tokenizer(
    store: &Arc<dyn Store>,
    id: &TokenizerId,
    file: Bytes,
) -> Result<bool, LogError> {
    let key = keys::tokenizer(&id.fingerprint);
    if file.len() > TOKENIZER_BYTES_MAX {
        let (bytes, limit) = (file.len(), TOKENIZER_BYTES_MAX);
        return Err(FormatError::TooLarge { key, bytes, limit }.into());
    }
    id.check_file(&file, &key)?;
    // Most starts find it: a put would send megabytes to be refused.
    if let Some(there) = found(store.head(&key).await)?
        && there.size == file.len() as u64
    {
        return Ok(false);
    }
    let clock = TokioClock::shared();
    match resolve::put(store.as_ref(), clock.as_ref(), &key, file).await? {
        Resolved::Ours => Ok(true),
        Resolved::Theirs(_) => read_tokenizer(store.as_ref(), id).await.map(|_| false),
    }
}

/// Reads the stored file of a stream's tokenizer and compares it with the fingerprint; `None` where there is none,
/// as in streams from before it was stored.
pub async fn read_tokenizer(
    store: &dyn Store,
    id: &TokenizerId,
) -> Result<Option<Bytes>, LogError> {
    let key = keys::tokenizer(&id.fingerprint);
    let at_most = keys::bytes_max(&key);
    let Some(mut bytes) = found(store.get(&key, at_most).await)? else {
        return Ok(None);
    };
    for read in 1.. {
        match id.check_file(&bytes, &key) {
            Ok(()) if read == 1 => break,
            Ok(()) => {
                tracing::warn!(
                    key,
                    "a read returned damaged bytes of an intact tokenizer file"
                );
                break;
            }
            Err(why) if read == READS => return Err(damaged(store, why).into()),
            Err(_) => bytes = store.get_fresh(&key, at_most).await?,
        }
    }
    Ok(Some(bytes))
}

/// Adds the root and the remedy.
fn damaged(store: &dyn Store, why: FormatError) -> FormatError {
    let remedy = "delete the object and restart a producer, which stores its file again";
    match why {
        FormatError::Rule { key, reason } => FormatError::Rule {
            key: format!("{}/{key}", store.root()),
            reason: format!("{reason}; {remedy}"),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use batchweave_core::ids::Hash;
    use batchweave_store::Create;
    use batchweave_store::memory::MemoryStore;

    use super::*;

    const FILE: &[u8] = b"{\"model\": {\"vocab\": {\"a\": 0}}}";

    fn id() -> TokenizerId {
        let own = Hash::sha256(FILE);
        TokenizerId {
            name: "m/tokenizer.json; best_fit".to_owned(),
            fingerprint: Hash::sha256(format!("{own}; best_fit").as_bytes()),
        }
    }

    fn store() -> Arc<dyn Store> {
        MemoryStore::new()
    }

    #[tokio::test]
    async fn the_file_is_stored_once_and_read_back() {
        let (store, id) = (store(), id());
        let file = Bytes::from_static(FILE);
        assert_eq!(read_tokenizer(store.as_ref(), &id).await.unwrap(), None);
        assert!(store_tokenizer(&store, &id, file.clone()).await.unwrap());
        assert!(!store_tokenizer(&store, &id, file.clone()).await.unwrap());
        let read = read_tokenizer(store.as_ref(), &id).await.unwrap();
        assert_eq!(read, Some(file));
    }

    #[tokio::test]
    async fn another_file_is_neither_stored_nor_believed() {
        let (store, id) = (store(), id());
        let other = Bytes::from_static(b"{}");
        let why = store_tokenizer(&store, &id, other.clone())
            .await
            .unwrap_err();
        assert!(why.to_string().contains("another tokenizer"), "{why}");
        let large = Bytes::from(vec![b' '; TOKENIZER_BYTES_MAX + 1]);
        let why = store_tokenizer(&store, &id, large).await.unwrap_err();
        assert!(why.to_string().contains("more than the 67108864"), "{why}");
        let key = keys::tokenizer(&id.fingerprint);
        assert_eq!(store.create(&key, other).await.unwrap(), Create::Created);
        for why in [
            read_tokenizer(store.as_ref(), &id).await.unwrap_err(),
            store_tokenizer(&store, &id, Bytes::from_static(FILE))
                .await
                .unwrap_err(),
        ] {
            let why = why.to_string();
            assert!(why.contains(&key) && why.contains("damaged"), "{why}");
        }
    }
}
