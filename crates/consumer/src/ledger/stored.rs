//! How far the stored ledgers of an attempt tell of a rank: for ranks that come to a daemon that does
//! not know them.
//!
//! The newest object of each node says it of all ranks that the node knew. Less than what is stored
//! must not come of it: the steps between would be told again, from data that may be gone.

use std::collections::BTreeMap;

use batchweave_core::ids::{Step, StreamId};
use batchweave_core::keys;
use batchweave_core::proof::{Ledger, LedgerPlace};
use batchweave_store::{Store, StoreError};
use futures::{StreamExt, TryStreamExt};

use super::book::reader;
use crate::job::membership::Member;

/// Nodes whose ledgers are read at a time.
const READS: usize = 16;
/// Ledgers read of one node, when its newest can't be used or are of old.
const READS_MAX: usize = 4096;

/// The ends of what is told, by reader.
#[derive(Debug, Default)]
pub(super) struct Stored {
    ends: BTreeMap<(u32, Option<u32>), Step>,
}

impl Stored {
    /// Lists the ledgers of the member's attempt and reads the newest of each node.
    pub(super) async fn list(
        store: &dyn Store,
        stream: StreamId,
        member: &Member,
    ) -> Result<Self, StoreError> {
        let prefix = keys::ledgers(&member.job, member.opened, member.attempt);
        let mut by_node: BTreeMap<String, Vec<(u64, String)>> = BTreeMap::new();
        let mut page = None;
        loop {
            let listed = store.list(&prefix, page).await?;
            for object in listed.objects {
                if let Some(named) = keys::parse_ledger(&object.key) {
                    let all = by_node.entry(named.node).or_default();
                    all.push((named.number, object.key));
                }
            }
            page = listed.next;
            if page.is_none() {
                break;
            }
        }
        let nodes = by_node.into_values().map(|mut all| {
            all.sort_unstable_by(|a, b| b.cmp(a));
            newest(store, stream, member, all)
        });
        let mut nodes = futures::stream::iter(nodes).buffered(READS);
        let mut stored = Self::default();
        while let Some(ledgers) = nodes.try_next().await? {
            for ledger in &ledgers {
                stored.note(ledger);
            }
        }
        Ok(stored)
    }

    /// The end of what is told of this rank; the attempt's start when nothing is.
    pub(super) fn end(&self, member: &Member) -> Step {
        let end = self.ends.get(&reader(member)).copied();
        end.unwrap_or(member.start)
    }

    /// An object behind a hole has entries beyond what it tells without one.
    fn note(&mut self, ledger: &Ledger) {
        let told = ledger.told.iter().map(|told| (told.reader(), told.to));
        let old = ledger.told.is_empty();
        let entries = ledger.entries.iter().filter(|_| old);
        let entries = entries.map(|e| (e.reader(), e.to));
        for (reader, to) in told.chain(entries) {
            let end = self.ends.entry(reader).or_default();
            *end = to.max(*end);
        }
    }
}

/// Of one node's ledgers, the newest first: as many as it takes to know what all tell.
async fn newest(
    store: &dyn Store,
    stream: StreamId,
    member: &Member,
    keys: Vec<(u64, String)>,
) -> Result<Vec<Ledger>, StoreError> {
    let place = LedgerPlace {
        stream,
        job: &member.job,
        opened: member.opened,
        attempt: member.attempt,
    };
    let mut read = Vec::new();
    for (_, key) in keys.into_iter().take(READS_MAX) {
        let bytes = match batchweave_log::get_intact(store, &key).await {
            Err(why) if why.is_not_found() => continue,
            read => read?,
        };
        match Ledger::from_json(&bytes, &key, &place) {
            Ok(ledger) => {
                let whole = !ledger.told.is_empty();
                read.push(ledger);
                if whole {
                    break;
                }
            }
            // `verify --job` says so to whoever asks.
            Err(why) => tracing::warn!(%why, "a ledger can't be used"),
        }
    }
    Ok(read)
}
