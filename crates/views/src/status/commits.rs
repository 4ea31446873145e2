//! Sums over the newest records.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use batchweave_console::output::{bytes, count};
use batchweave_core::ids::{ProducerName, Version};
use batchweave_core::keys;
use batchweave_core::manifest::{Entry, Record};
use batchweave_core::tgb::SliceCost;
use batchweave_store::{Store, StoreError};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use serde::Serialize;

/// Number of newest records that are read.
const NEWEST: u64 = 256;
const READS_AT_ONCE: usize = 32;

/// Sums over the newest records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Commits {
    pub(super) records: u64,
    entries: u64,
    pub(super) tgbs: u64,
    /// Tokens of these TGBs.
    pub(super) tokens: u64,
    /// Bytes of the records themselves.
    bytes: u64,
    /// Bytes of the TGBs that the records name.
    pub(super) tgb_bytes: u64,
    /// Of a balanced stream: the sums of the dearest slices and of the means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost: Option<SliceCost>,
}

/// Sums and keys of the newest records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NewestRecords {
    pub(super) sums: Commits,
    /// The number of TGBs in each.
    pub(super) tgbs: BTreeMap<Version, u64>,
    /// Keys of the provenance objects of their TGBs.
    pub(super) provenance: BTreeSet<String>,
    /// The last of them with batches of each producer.
    pub(super) last_of: BTreeMap<ProducerName, Version>,
}

impl NewestRecords {
    /// Reads the newest records below `next`.
    pub(super) async fn read(store: &dyn Store, next: Version) -> Result<Self, StoreError> {
        Self::default().read_on(store, next).await
    }

    /// Adds the records that were written since, at most those that `read` would read.
    pub(super) async fn read_on(
        self,
        store: &dyn Store,
        next: Version,
    ) -> Result<Self, StoreError> {
        let seen = self
            .tgbs
            .last_key_value()
            .map_or(0, |(version, _)| version + 1);
        let versions = seen.max(next.saturating_sub(NEWEST))..next;
        let reads = versions.map(|version| async move {
            let key = keys::log(version);
            let body = store.get(&key, keys::bytes_max(&key)).await?;
            Ok((version, body))
        });
        let read = stream::iter(reads)
            .buffer_unordered(READS_AT_ONCE)
            .try_fold(self, |all, (version, body)| async move {
                Ok(all.plus(version, &body))
            });
        let mut all = read.await?;
        // The sums go on; of single records only the newest are of interest.
        all.tgbs = all.tgbs.split_off(&next.saturating_sub(NEWEST));
        Ok(all)
    }

    /// Adds a record; an unreadable one counts with its bytes only, and `log` shows its fault.
    fn plus(mut self, version: Version, body: &Bytes) -> Self {
        let sums = &mut self.sums;
        sums.records += 1;
        sums.bytes += body.len() as u64;
        let before = sums.tgbs;
        let entries = Record::from_json(body, version).map(|record| record.entries);
        for entry in entries.unwrap_or_default() {
            sums.entries += 1;
            if let Entry::Batch(batch) = entry {
                sums.tgbs += batch.tgbs.len() as u64;
                sums.tokens += batch.tgbs.iter().map(|tgb| tgb.tokens).sum::<u64>();
                for cost in batch.tgbs.iter().filter_map(|tgb| tgb.cost) {
                    let sum = sums.cost.get_or_insert_default();
                    sum.max = sum.max.saturating_add(cost.max);
                    sum.mean = sum.mean.saturating_add(cost.mean);
                }
                let parts = batch.tgbs.iter().flat_map(|tgb| &tgb.parts);
                sums.tgb_bytes += parts.map(|part| part.length).sum::<u64>();
                let provenance = batch.tgbs.into_iter().filter_map(|tgb| tgb.provenance);
                self.provenance.extend(provenance);
                let last = self.last_of.entry(batch.producer).or_default();
                *last = version.max(*last);
            }
        }
        self.tgbs.insert(version, sums.tgbs - before);
        self
    }
}

impl Commits {
    /// Formats averages per record and per TGB on one line, without a line end.
    pub(super) fn text(&self) -> String {
        if self.records == 0 {
            return "none".to_owned();
        }
        let per = |sum: u64, of: u64| sum as f64 / of.max(1) as f64;
        let mut text = format!(
            "newest {}: {:.1} entries and {:.1} TGBs per record",
            count(self.records, "record"),
            per(self.entries, self.records),
            per(self.tgbs, self.records),
        );
        if self.tgbs > 0 {
            let log = bytes(per(self.bytes, self.tgbs) as u64);
            let data = bytes(per(self.tgb_bytes, self.tgbs) as u64);
            let _ = write!(text, ", {log} of log for {data} of data per TGB");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_a_record_and_a_tgb() {
        let seen = Commits {
            records: 4,
            entries: 5,
            tgbs: 10,
            tokens: 640,
            bytes: 20_480,
            tgb_bytes: 10 << 20,
            cost: None,
        };
        let text = "newest 4 records: 1.2 entries and 2.5 TGBs per record, 2.0 KiB of log for 1.0 MiB of data per TGB";
        assert_eq!(seen.text(), text);
        assert_eq!(Commits::default().text(), "none");
        let bad = NewestRecords::default().plus(0, &Bytes::from_static(b"{"));
        assert_eq!(
            (bad.sums.records, bad.sums.entries, bad.sums.bytes),
            (1, 0, 1)
        );
        assert_eq!(bad.tgbs, BTreeMap::from([(0, 0)]));
        assert_eq!(
            bad.sums.text(),
            "newest 1 record: 0.0 entries and 0.0 TGBs per record"
        );
    }
}
