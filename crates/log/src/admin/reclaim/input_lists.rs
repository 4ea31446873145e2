//! The input lists to which producers' cursors refer, as far as reclamation needs them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use batchweave_core::ids::ProducerName;
use batchweave_core::inputs::LinkId;
use batchweave_core::keys;
use batchweave_core::retention::reclaim::{Links, Reclaim};
use batchweave_store::{ObjectMeta, Store};
use tracing::warn;

use crate::error::LogError;
use crate::read::inputs::read_inputs;

/// Links of all lists kept from pass to pass; they never change.
const LINKS_KEPT: usize = 1 << 16;
/// Objects of one pass whose lists are not read yet; further ones are left to the next pass.
pub(super) const WAITING_MAX: usize = 1 << 16;

/// The input lists read so far, each with its newest link.
#[derive(Debug, Default)]
pub(super) struct InputLists(BTreeMap<ProducerName, (LinkId, Links)>);

impl InputLists {
    /// Returns the list to which the producer's cursor refers by `rule`, if it was read.
    pub(super) fn get(&self, rule: &Reclaim<'_>, producer: &ProducerName) -> Option<Links> {
        let head = rule.list_head(producer).ok()??;
        let (known, links) = self.0.get(producer)?;
        (*known == head).then(|| Arc::clone(links))
    }

    /// Reads the lists of the producers of `waiting`. A list that cannot be read retains all its objects.
    pub(super) async fn read(
        &mut self,
        store: &dyn Store,
        rule: &Reclaim<'_>,
        waiting: &[ObjectMeta],
        gets: &mut u64,
    ) -> Result<(), LogError> {
        let links: usize = self.0.values().map(|(_, links)| links.len()).sum();
        if links > LINKS_KEPT {
            self.0.clear();
        }
        let producers: BTreeSet<_> = waiting
            .iter()
            .filter_map(|o| keys::parse_inputs(&o.key))
            .map(|(producer, _)| producer)
            .collect();
        for producer in producers {
            let Ok(Some(head)) = rule.list_head(&producer) else {
                continue;
            };
            let chain = match read_inputs(store, &producer, Some(head)).await {
                Ok((chain, _)) => chain,
                Err(LogError::Store(why)) if !why.is_not_found() => return Err(why.into()),
                // Reclaimed since our fold, or damaged: `verify` and the producer report that.
                Err(why) => {
                    warn!(%producer, error = %why, "cannot read this producer's input list: keeping all its objects");
                    continue;
                }
            };
            let links: BTreeSet<_> = chain.ids().collect();
            *gets += links.len() as u64;
            self.0.insert(producer, (head, Arc::new(links)));
        }
        Ok(())
    }
}
