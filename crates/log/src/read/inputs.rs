//! Reads the input list to which a producer's cursor refers.

use batchweave_core::ids::ProducerName;
use batchweave_core::inputs::{Chain, ChainReader, LinkId, PinnedFile};
use batchweave_core::keys;
use batchweave_store::Store;
use futures::future::BoxFuture;

use crate::error::LogError;

/// Reads of a link before it counts as damaged: one wrong read says nothing about the object.
const READS: u32 = 3;

/// Reads the chain of links that ends in `head`, and its files. A missing link is `NotFound`: the producer may have
/// extended its list meanwhile, so that its cursor names another head now.
pub fn read_inputs<'a>(
    store: &'a dyn Store,
    producer: &'a ProducerName,
    head: Option<LinkId>,
) -> BoxFuture<'a, Result<(Chain, Vec<PinnedFile>), LogError>> {
    Box::pin(async move {
        let mut reader = ChainReader::new(head);
        while let Some(id) = reader.next() {
            let key = keys::inputs(producer, &id);
            let mut bytes = store.get(&key, keys::bytes_max(&key)).await?;
            for read in 1.. {
                match reader.take(&bytes, &key) {
                    Ok(()) => break,
                    Err(why) if read == READS => return Err(why.into()),
                    Err(why) => {
                        tracing::warn!(error = %why, "a link of an input list is damaged; reading it again")
                    }
                }
                bytes = store.get_fresh(&key, keys::bytes_max(&key)).await?;
            }
        }
        Ok(reader.finish())
    })
}
