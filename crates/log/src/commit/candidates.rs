//! Chooses the entries of the next record, and summarizes records for policies.

use batchweave_core::commit_policy::{SeenRecord, name_hash};
use batchweave_core::flow_control::Gate;
use batchweave_core::limits::RECORD_BYTES_MAX;
use batchweave_core::manifest::rules::Validity;
use batchweave_core::manifest::{Entry, Folded, Manifest};

use crate::error::LogError;

/// Bytes of entries in a record; its other fields take the rest.
const ENTRIES_BYTES_MAX: usize = RECORD_BYTES_MAX - (4 << 10);

/// The entries of the next record.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    pub(crate) entries: Vec<Entry>,
    /// The producers of the entries that are not ours, as name hashes.
    pub(crate) others: Vec<u64>,
    /// An entry was left out because it is above the ceiling.
    pub(crate) above: bool,
    /// Not all candidates fit into the record.
    pub(crate) full: bool,
}

/// Chooses the candidates that are valid one after the other, stay below the ceiling and fit a record.
/// Fails when one of the first `own`, which are ours, is void: that is a bug.
pub(crate) fn choose(
    manifest: &Manifest,
    gate: Option<Gate>,
    candidates: Vec<Entry>,
    own: usize,
) -> Result<Chosen, LogError> {
    let mut bytes = 0;
    let fitting = |entry: &Entry| {
        bytes += serde_json::to_vec(entry).map_or(RECORD_BYTES_MAX, |b| b.len() + 1);
        bytes <= ENTRIES_BYTES_MAX
    };
    let all = candidates.len();
    let candidates: Vec<_> = candidates.into_iter().take_while(fitting).collect();
    let full = candidates.len() < all;
    let mut chosen = valid(manifest, candidates, own)?;
    chosen.full = full;
    let Some(mut gate) = gate else {
        return Ok(chosen);
    };
    let all = chosen.entries.len();
    let mut at = 0;
    chosen.entries.retain(|entry| {
        at += 1;
        if at > own {
            return gate.take_along(entry);
        }
        gate.count(entry);
        true
    });
    if chosen.entries.len() < all {
        // Entries after one that was left out may be void now.
        chosen = valid(manifest, chosen.entries, own)?;
        (chosen.above, chosen.full) = (true, full);
    }
    Ok(chosen)
}

fn valid(manifest: &Manifest, candidates: Vec<Entry>, own: usize) -> Result<Chosen, LogError> {
    let validities = manifest.validate_all(&candidates);
    let mut chosen = Chosen::default();
    for (at, (entry, validity)) in candidates.into_iter().zip(validities).enumerate() {
        match validity {
            Ok(Validity::Applies) => {
                if let Some((name, _)) = entry.producer().filter(|_| at >= own) {
                    chosen.others.push(name_hash(name.as_str()));
                }
                chosen.entries.push(entry);
            }
            Err(void) if at < own => return Err(LogError::Void(void)),
            _ => {}
        }
    }
    Ok(chosen)
}

/// Returns the parts of a record that policies see; `None` for an unreadable record.
pub(crate) fn seen_record(folded: &Folded) -> Option<SeenRecord> {
    let record = folded.record.as_ref()?;
    let producers = record.entries.iter().filter_map(Entry::producer);
    Some(SeenRecord {
        writer: name_hash(&record.writer.name),
        leads: record.hints.leads,
        put_ms: record.hints.put_ms,
        producers: producers
            .map(|(name, _)| name_hash(name.as_str()))
            .collect(),
    })
}

/// Returns an empty summary, for a record that was unreadable and repaired.
pub(crate) fn blank_record() -> SeenRecord {
    SeenRecord {
        writer: 0,
        leads: false,
        put_ms: None,
        producers: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use batchweave_core::ids::Nonce;
    use batchweave_core::manifest::entry::Opened;

    use super::*;
    use crate::testing::config;

    fn opening(number: usize) -> Entry {
        Entry::Opened(Opened {
            producer: format!("p{number}").parse().unwrap(),
            epoch: 1,
            nonce: Nonce([1; 8]),
            instance: "host:1".to_owned(),
            began: 0,
        })
    }

    #[test]
    fn a_record_is_filled_up_to_its_limit_and_says_so() {
        let stream = config(&[]);
        let manifest = Manifest::new(stream.clone(), &stream.to_json());
        let chosen = |count| {
            let candidates = (0..count).map(opening).collect();
            choose(&manifest, None, candidates, 0).unwrap()
        };
        let some = chosen(100);
        assert_eq!((some.entries.len(), some.full), (100, false));
        let many = chosen(20_000);
        assert!(many.full);
        let bytes = serde_json::to_vec(&many.entries).unwrap().len();
        assert!(
            (ENTRIES_BYTES_MAX - 300..=ENTRIES_BYTES_MAX).contains(&bytes),
            "{bytes}"
        );
    }
}
