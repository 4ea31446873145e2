//! The input lists of the parent's producers, as a fork stores them: each as a chain of its own. The links in the
//! parent's store may be reclaimed or replaced; a list only grows at its end, so the newest one begins with each older
//! one, and the same files give the same links whenever the command runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_core::ids::ProducerName;
use batchweave_core::inputs::{Chain, LinkId, PinnedFile};
use batchweave_core::keys;
use batchweave_core::manifest::fork::ForkState;
use batchweave_core::manifest::state::Again;
use bytes::Bytes;

use super::ForkError;
use crate::error::LogError;
use crate::log::Log;
use crate::read::inputs::read_inputs;

/// The files of each producer, and the links to store, by key.
pub(super) type Lists = (
    BTreeMap<ProducerName, Vec<PinnedFile>>,
    Vec<(String, Bytes)>,
);

/// Makes the lists of all producers of `state`, which then names them.
pub(super) async fn rebuilt(log: &Log, state: &mut ForkState) -> Result<Lists, ForkError> {
    let (mut files, mut links) = (BTreeMap::new(), Vec::new());
    let step = state.step;
    for (name, producer) in &mut state.producers {
        // A cursor of another kind has no list.
        let Ok(Some(list)) = producer.input_list() else {
            continue;
        };
        let pins = read(log, name, list).await?.ok_or_else(|| ForkError::Refused {
            root: log.store.root().to_owned(),
            step,
            why: format!(
                "the input list of producer {name} is gone ({}); with --fresh its producers begin anew",
                keys::inputs(name, &list)
            ),
        })?;
        let mut chain = Chain::default();
        let opening = (producer.epoch, producer.nonce);
        let (head, own) = chain.grow(opening, &pins);
        let own = own.into_iter();
        links.extend(own.map(|(id, bytes)| (keys::inputs(name, &id), Bytes::from(bytes))));
        let again = producer.again.as_deref().cloned().unwrap_or_default();
        producer.again = Some(Arc::new(Again {
            inputs: Some(head),
            ..again
        }));
        files.insert(name.clone(), pins);
    }
    Ok((files, links))
}

/// Reads the list `id`, or as many files of the newest one; `None` when neither is there.
async fn read(
    log: &Log,
    name: &ProducerName,
    id: LinkId,
) -> Result<Option<Vec<PinnedFile>>, LogError> {
    let newest = log.manifest().producer(name);
    let newest = newest.and_then(|p| p.input_list().ok()).flatten();
    let wanted = usize::try_from(id.files).unwrap_or(usize::MAX);
    for list in [Some(id), newest] {
        match read_inputs(log.store.as_ref(), name, list).await {
            Ok((_, mut pins)) if pins.len() >= wanted => {
                pins.truncate(wanted);
                return Ok(Some(pins));
            }
            Ok(_) => {}
            Err(LogError::Store(why)) if why.is_not_found() => {}
            Err(why) => return Err(why),
        }
    }
    Ok(None)
}
