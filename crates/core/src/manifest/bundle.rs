//! A bundle: copies of consecutive records of the log in one object, the newest of which names it. Thousands of
//! followers read one bundle instead of each of its records.

use std::collections::VecDeque;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Manifest;
use crate::error::FormatError;
use crate::ids::{Hash, StreamId, Version};
use crate::limits::{
    ADOPTED_KEPT, BUNDLE_BYTES, BUNDLE_BYTES_MAX, BUNDLE_COORDINATES, BUNDLE_RECORDS,
};
use crate::{json, keys};

/// The content of `index/bundles/<version>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// Format of this object; 1.
    pub format: u32,
    /// The stream that it belongs to.
    pub stream: StreamId,
    /// The version of the first record.
    pub first: Version,
    /// The texts of the records, in order.
    pub records: Vec<String>,
}

impl Bundle {
    /// Returns the bytes to store.
    pub fn to_json(&self) -> Vec<u8> {
        json::compact(self)
    }

    /// Decodes the bundle whose newest record has version `last`.
    pub fn from_json(bytes: &[u8], stream: StreamId, last: Version) -> Result<Self, FormatError> {
        let key = keys::bundle(last);
        let read: Self = json::parse(bytes, &key, BUNDLE_BYTES_MAX)?;
        FormatError::check_stream(&key, read.stream, stream)?;
        let count = read.records.len() as u64;
        if count == 0 || count > BUNDLE_RECORDS || read.first.checked_add(count) != Some(last + 1) {
            let rule =
                format!("must hold 1 to {BUNDLE_RECORDS} records, the last of version {last}");
            return Err(FormatError::rule(&key, rule));
        }
        Ok(read)
    }

    /// Returns the records from version `from` on; `None` when the bundle begins after it or ends before it.
    pub fn records_from(self, from: Version) -> Option<impl Iterator<Item = Bytes>> {
        let skipped = usize::try_from(from.checked_sub(self.first)?).ok()?;
        let records = self.records.into_iter().skip(skipped);
        (records.len() > 0).then(|| records.map(Bytes::from))
    }
}

/// Whether thousands may follow a log, so that its writers make bundles: by the data coordinates of the newest
/// attempts, so that all processes decide alike.
pub fn has_crowd(manifest: &Manifest) -> bool {
    manifest.coordinates() >= BUNDLE_COORDINATES
}

/// The newest records that a process has folded, for its next bundle.
#[derive(Debug, Clone, Default)]
pub struct RecentRecords {
    /// The version after the newest.
    next: Version,
    records: VecDeque<Bytes>,
    bytes: usize,
}

impl RecentRecords {
    /// Adds a record that the log holds and every reader takes. Others before it are forgotten if it does not follow
    /// them, or if the bounds of a bundle need it.
    pub fn push(&mut self, version: Version, record: Bytes) {
        if version != self.next {
            self.clear();
        }
        self.bytes += record.len();
        self.records.push_back(record);
        self.next = version + 1;
        while self.records.len() as u64 > BUNDLE_RECORDS
            || (self.bytes > BUNDLE_BYTES && self.records.len() > 1)
        {
            let dropped = self.records.pop_front();
            self.bytes -= dropped.map_or(0, |record| record.len());
        }
    }

    /// Forgets what was pushed, after which the next bundle begins anew.
    pub fn clear(&mut self) {
        (self.bytes, self.next) = (0, 0);
        self.records.clear();
    }

    /// Returns the bundle of the records before `next`, if the newest of them are known.
    pub fn bundle(&self, stream: StreamId, next: Version) -> Option<Bundle> {
        let text = |record: &Bytes| String::from_utf8(record.to_vec()).ok();
        let records: Vec<_> = self.records.iter().map(text).collect::<Option<_>>()?;
        (next == self.next && !records.is_empty()).then(|| Bundle {
            format: 1,
            stream,
            first: next - records.len() as u64,
            records,
        })
    }
}

/// The newest records that a reader took from bundles, by their hashes: some are compared with the log later, because a
/// record planted beyond its end makes a fork of the records before it look like the log.
#[derive(Debug, Clone, Default)]
pub struct AdoptedRecords(VecDeque<(Version, Hash)>);

impl AdoptedRecords {
    /// Adds a record; forgets the oldest beyond the bound.
    pub fn push(&mut self, version: Version, hash: Hash) {
        self.0.push_back((version, hash));
        if self.0.len() > ADOPTED_KEPT {
            self.0.pop_front();
        }
    }

    /// Returns one of them, by any random number; `None` without any.
    pub fn pick(&self, draw: u64) -> Option<(Version, Hash)> {
        let at = draw.checked_rem(self.0.len() as u64)?;
        self.0.get(usize::try_from(at).ok()?).copied()
    }

    /// Forgets all: another fold replaced the one that took them.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::sign_again;

    const STREAM: StreamId = StreamId([3; 16]);

    fn recent(sizes: impl IntoIterator<Item = usize>) -> RecentRecords {
        let mut recent = RecentRecords::default();
        for (version, size) in (100..).zip(sizes) {
            recent.push(version, Bytes::from(vec![b'"'; size]));
        }
        recent
    }

    fn made(sizes: impl IntoIterator<Item = usize>) -> Bundle {
        let recent = recent(sizes);
        recent.bundle(STREAM, recent.next).unwrap()
    }

    #[test]
    fn a_bundle_gives_back_its_records_byte_for_byte() {
        let bundle = made([3, 1, 2]);
        let read = Bundle::from_json(&bundle.to_json(), STREAM, 102).unwrap();
        assert_eq!(read, bundle);
        let sizes = |from| {
            let records = read.clone().records_from(from)?;
            Some(records.map(|r| r.len()).collect::<Vec<_>>())
        };
        assert_eq!(sizes(100), Some(vec![3, 1, 2]));
        assert_eq!(sizes(102), Some(vec![2]));
        assert_eq!((sizes(99), sizes(103)), (None, None));
    }

    #[test]
    fn bounds_keep_the_newest_records_and_one_in_any_case() {
        let bundle = made(vec![10; 40]);
        assert_eq!(
            (bundle.first, bundle.records.len() as u64),
            (108, BUNDLE_RECORDS)
        );
        let bundle = made([10, BUNDLE_BYTES - 5, 6]);
        assert_eq!((bundle.first, bundle.records.len()), (102, 1));
        // The largest record, each byte of which is escaped.
        let bundle = made([crate::limits::RECORD_BYTES_MAX]);
        assert!(bundle.to_json().len() <= BUNDLE_BYTES_MAX);
    }

    #[test]
    fn records_that_do_not_follow_one_another_are_in_no_bundle() {
        let mut recent = recent([1, 2]);
        assert!(recent.bundle(STREAM, 103).is_none(), "behind the head");
        recent.push(200, Bytes::from_static(b"{}"));
        assert_eq!(recent.bundle(STREAM, 201).unwrap().first, 200);
        recent.push(201, Bytes::from_static(b"\xff"));
        assert!(recent.bundle(STREAM, 202).is_none(), "not a text");
        recent.clear();
        assert!(recent.bundle(STREAM, 0).is_none());
    }

    #[test]
    fn the_newest_adopted_records_are_drawn_from() {
        let mut adopted = AdoptedRecords::default();
        assert_eq!(adopted.pick(7), None);
        for version in 0..ADOPTED_KEPT as u64 + 10 {
            adopted.push(version, Hash::sha256(&version.to_le_bytes()));
        }
        let picked = |draw| adopted.pick(draw).unwrap();
        assert_eq!((picked(0).0, picked(255).0, picked(256).0), (10, 265, 10));
        assert_eq!(picked(3).1, Hash::sha256(&13_u64.to_le_bytes()));
        adopted.clear();
        assert_eq!(adopted.pick(0), None);
    }

    #[test]
    fn a_bundle_of_another_stream_or_under_another_key_is_refused() {
        let bytes = made([3, 1, 2]).to_json();
        assert!(Bundle::from_json(&bytes, StreamId([4; 16]), 102).is_err());
        assert!(Bundle::from_json(&bytes, STREAM, 103).is_err());
        let text = String::from_utf8(bytes).unwrap();
        for broken in [
            text.replace("\"first\":100", "\"first\":18446744073709551615"),
            text.replace("\"first\":100", "\"first\":99"),
            text.replace("\"records\":[", "\"records\":[],\"x\":["),
        ] {
            let signed = sign_again(broken.as_bytes()).unwrap();
            assert!(Bundle::from_json(&signed, STREAM, 102).is_err(), "{broken}");
        }
    }
}
