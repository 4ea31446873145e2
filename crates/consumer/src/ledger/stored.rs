//! The steps that stored ledgers of an attempt record, needed for ranks that are new to this daemon.
//!
//! The newest object of each node states it for all ranks that the node knew. The result must not be less than
//! what is stored: the steps between would be recorded again, from data that may be deleted.

use std::collections::BTreeMap;

use batchweave_core::ids::{Step, StreamId};
use batchweave_core::keys;
use batchweave_core::proof::{Ledger, LedgerPlace};
use batchweave_store::{Store, StoreError, list_all};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};

use super::book::reader;
use crate::job::membership::Member;

/// Nodes whose ledgers are read concurrently.
const READS: usize = 16;
/// Most ledgers read of one node, if its newest are unusable or of an old format.
const READS_MAX: usize = 4096;

/// The ends of the recorded steps, by reader.
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
        list_all(store, &prefix, |object| {
            if let Some(named) = keys::parse_ledger(&object.key) {
                let all = by_node.entry(named.node).or_default();
                all.push((named.number, object.key));
            }
        })
        .await?;
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

    /// The step below which a rank is recorded; the attempt's start if it is not.
    pub(super) fn end(&self, member: &Member) -> Step {
        let end = self.ends.get(&reader(member)).copied();
        end.unwrap_or(member.start)
    }

    /// Returns the rank of a coordinate that is recorded furthest, and the step below which it is.
    pub(super) fn furthest(&self, dp_rank: u32) -> Option<(Option<u32>, Step)> {
        let own = (dp_rank, None)..=(dp_rank, Some(u32::MAX));
        let furthest = self.ends.range(own).max_by_key(|(_, end)| **end);
        furthest.map(|((_, rank), end)| (*rank, *end))
    }

    /// Notes an object. Its entries count only in the old format: behind a hole they lie above the step that it
    /// states.
    fn note(&mut self, ledger: &Ledger) {
        let told = ledger.told.iter().map(|told| (told.reader(), told.to));
        let old = ledger.told.is_empty();
        let entries = ledger
            .entries
            .iter()
            .filter(|_| old)
            .map(|e| (e.reader(), e.to));
        for (reader, to) in told.chain(entries) {
            let end = self.ends.entry(reader).or_default();
            *end = to.max(*end);
        }
    }
}

/// Reads ledgers of one node, the newest first, until one states the end of all recorded steps.
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
        let parse = |bytes: &Bytes| Ledger::from_json(bytes, &key, &place);
        let ledger = match batchweave_log::get_fitting(store, &key, parse).await {
            Err(why) if why.is_not_found() => continue,
            ledger => ledger?,
        };
        match ledger {
            Ok(ledger) => {
                let whole = !ledger.told.is_empty();
                read.push(ledger);
                if whole {
                    break;
                }
            }
            // `verify --job` reports it, too.
            Err(why) => tracing::warn!(%why, "a ledger can't be used"),
        }
    }
    Ok(read)
}
