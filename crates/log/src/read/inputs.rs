//! Reading the input list that a producer's cursor counts in.

use batchweave_core::ids::ProducerName;
use batchweave_core::inputs::{Chain, ChainReader, LinkId, PinnedFile};
use batchweave_core::keys;
use batchweave_store::Store;

use crate::LogError;

/// Looks at a link before it counts as damaged: one wrong read says nothing of the object.
const LOOKS: u32 = 3;

/// The chain that ends in `head`, and its files. A link that is not there is `NotFound`: when the producer has
/// grown its list meanwhile, its cursor names another head now.
pub async fn read_inputs(
    store: &dyn Store,
    producer: &ProducerName,
    head: Option<LinkId>,
) -> Result<(Chain, Vec<PinnedFile>), LogError> {
    let mut reader = ChainReader::new(head);
    while let Some(id) = reader.next() {
        let key = keys::inputs(producer, &id);
        let mut bytes = store.get(&key, keys::bytes_max(&key)).await?;
        for look in 1.. {
            match reader.take(&bytes, &key) {
                Ok(()) => break,
                Err(why) if look == LOOKS => return Err(why.into()),
                Err(why) => tracing::warn!(error = %why, "reading it again"),
            }
            bytes = store.get_fresh(&key, keys::bytes_max(&key)).await?;
        }
    }
    Ok(reader.finish())
}
