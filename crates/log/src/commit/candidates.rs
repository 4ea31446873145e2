//! Which entries go into the next record, and what policies see of a record.

use batchweave_core::commit_policy::{SeenRecord, name_hash};
use batchweave_core::flow_control::Gate;
use batchweave_core::limits::RECORD_BYTES_MAX;
use batchweave_core::manifest::rules::Validity;
use batchweave_core::manifest::{Entry, Folded, Manifest};

use crate::LogError;

/// Space in a record for what is not an entry.
const RECORD_ROOM: usize = RECORD_BYTES_MAX - (4 << 10);

/// The choice.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    pub(crate) entries: Vec<Entry>,
    /// Whose they are that are not ours.
    pub(crate) others: Vec<u64>,
    /// Something was left out because it is above the ceiling.
    pub(crate) above: bool,
    /// Not all candidates had room.
    pub(crate) full: bool,
}

/// The candidates that are valid one after the other, stay below the ceiling and fit a record. The
/// first `own` are ours: they are valid and below it, or something is wrong that nobody planned.
pub(crate) fn choose(
    manifest: &Manifest,
    gate: Option<Gate>,
    candidates: Vec<Entry>,
    own: usize,
) -> Result<Chosen, LogError> {
    let mut bytes = 0;
    let fitting = |entry: &Entry| {
        bytes += serde_json::to_vec(entry).map_or(RECORD_BYTES_MAX, |b| b.len() + 1);
        bytes <= RECORD_ROOM
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
        // What followed an entry that was left out may be valid no more.
        chosen = valid(manifest, chosen.entries, own)?;
        (chosen.above, chosen.full) = (true, full);
    }
    Ok(chosen)
}

fn valid(manifest: &Manifest, candidates: Vec<Entry>, own: usize) -> Result<Chosen, LogError> {
    let verdicts = manifest.validate_all(&candidates);
    let mut chosen = Chosen::default();
    for (at, (entry, verdict)) in candidates.into_iter().zip(verdicts).enumerate() {
        match verdict {
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

/// A record as policies see it.
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

/// A record that says nothing: it was unreadable and repaired.
pub(crate) fn nobody() -> SeenRecord {
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
            (RECORD_ROOM - 300..=RECORD_ROOM).contains(&bytes),
            "{bytes}"
        );
    }
}
