//! How far the stored ledgers of an attempt tell of a rank: for ranks that come to a daemon that does
//! not know them.

use std::collections::BTreeMap;

use batchweave_core::ids::{Step, StreamId};
use batchweave_core::keys;
use batchweave_core::lifecycle::{Ledger, LedgerPlace};
use batchweave_store::{Store, StoreError};
use futures::{StreamExt, TryStreamExt};

use crate::member::Member;

/// Ledgers read at a time.
const READS: usize = 16;
/// Ledgers read in all when a rank is in no node's newest one.
const READS_MAX: usize = 4096;

/// The ends of what is told, by reader.
#[derive(Debug, Default)]
pub(super) struct Stored {
    ends: BTreeMap<(u32, Option<u32>), Step>,
    /// Ledgers that were not read, the oldest first.
    older: Vec<String>,
}

impl Stored {
    /// Lists the ledgers of the member's attempt and reads the newest of each node.
    pub(super) async fn list(
        store: &dyn Store,
        stream: StreamId,
        member: &Member,
    ) -> Result<Self, StoreError> {
        let prefix = keys::ledgers(&member.job, member.opened, member.attempt);
        let mut by_node: BTreeMap<String, Vec<(u64, Step, String)>> = BTreeMap::new();
        let mut page = None;
        loop {
            let listed = store.list(&prefix, page).await?;
            for object in listed.objects {
                if let Some(named) = keys::parse_ledger(&object.key) {
                    let all = by_node.entry(named.node).or_default();
                    all.push((named.number, named.first, object.key));
                }
            }
            page = listed.next;
            if page.is_none() {
                break;
            }
        }
        let mut newest = Vec::new();
        let mut older = Vec::new();
        for mut all in by_node.into_values() {
            all.sort();
            newest.extend(all.pop().map(|(_, _, key)| key));
            older.extend(all.into_iter().map(|(_, first, key)| (first, key)));
        }
        older.sort();
        let mut stored = Self {
            ends: BTreeMap::new(),
            older: older.into_iter().map(|(_, key)| key).collect(),
        };
        stored.read(store, stream, member, newest).await?;
        Ok(stored)
    }

    /// The end of what is told of this rank; the attempt's start when nothing is.
    pub(super) async fn end(
        &mut self,
        store: &dyn Store,
        stream: StreamId,
        member: &Member,
    ) -> Result<Step, StoreError> {
        let reader = (member.dp_rank, member.rank);
        let mut left = READS_MAX;
        while !self.ends.contains_key(&reader) && !self.older.is_empty() && left > 0 {
            let some = self.older.len() - self.older.len().min(READS);
            let keys = self.older.split_off(some);
            left = left.saturating_sub(keys.len());
            self.read(store, stream, member, keys).await?;
        }
        Ok(self.ends.get(&reader).copied().unwrap_or(member.start))
    }

    async fn read(
        &mut self,
        store: &dyn Store,
        stream: StreamId,
        member: &Member,
        keys: Vec<String>,
    ) -> Result<(), StoreError> {
        let gets = keys.into_iter().map(|key| async move {
            let bytes = store.get(&key).await;
            bytes.map(|bytes| (key, bytes))
        });
        let mut gets = futures::stream::iter(gets).buffered(READS);
        while let Some((key, bytes)) = gets.try_next().await? {
            let place = LedgerPlace {
                stream,
                job: &member.job,
                opened: member.opened,
                attempt: member.attempt,
            };
            match Ledger::from_json(&bytes, &key, &place) {
                Ok(ledger) => self.note(&ledger),
                // `verify --job` says so to whoever asks.
                Err(why) => tracing::warn!(%why, "a ledger can't be used"),
            }
        }
        Ok(())
    }

    /// This daemon has told of the rank up to `told`.
    pub(super) fn raise(&mut self, member: &Member, told: Step) {
        let end = self.ends.entry((member.dp_rank, member.rank)).or_default();
        *end = told.max(*end);
    }

    fn note(&mut self, ledger: &Ledger) {
        for entry in &ledger.entries {
            let end = self.ends.entry(entry.reader()).or_default();
            *end = entry.to.max(*end);
        }
    }
}
