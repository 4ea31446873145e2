//! Intents: ready entries that a producer announces, so that the next writer can include them in its
//! record. They are hints: each is validated like any entry, and nothing relies on their presence.
//!
//! A key carries a copy of its intent where there is room, so that a LIST suffices and nothing must be read
//! (docs/adr/0009-intents-in-keys.md).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::FormatError;
use crate::ids::{Epoch, ProducerName, Seq, StreamId};
use crate::limits::{ENTRY_BYTES_MAX, INTENT_BYTES_MAX, INTENTS_PER_ROUND};
use crate::manifest::{Entry, Manifest, Void};
use crate::manifest::{record, rules};
use crate::{json, keys};

mod carried;

pub use crate::keys::Announced;
pub use carried::{carried, stem};

const _: () = assert!(INTENT_BYTES_MAX > ENTRY_BYTES_MAX);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    format: u32,
    stream: StreamId,
    entry: Entry,
}

/// Returns key and bytes of the intent for `entry`; `None` for entries that are never announced. A key
/// longer than `key_bytes_max` carries no copy.
pub fn encode(stream: StreamId, entry: &Entry, key_bytes_max: usize) -> Option<(String, Vec<u8>)> {
    let key = key_of(entry)?;
    let stored = Stored {
        format: record::format_of(entry.is_of_format_2()),
        stream,
        entry: entry.clone(),
    };
    let bytes = json::compact(&stored);
    Some((carried::add(key, &bytes, key_bytes_max), bytes))
}

/// Decodes the entry of the intent at `key`; fails when it does not match the key.
pub fn decode(key: &str, bytes: &[u8], stream: StreamId) -> Result<Entry, FormatError> {
    let key = &*stem(key);
    let newest = record::FORMAT_WITH_STAGES.into();
    let stored: Stored = json::parse_up_to(bytes, key, INTENT_BYTES_MAX, newest)?;
    let format = record::format_of(stored.entry.is_of_format_2());
    FormatError::check_format(key, stored.format, format)?;
    FormatError::check_stream(key, stored.stream, stream)?;
    if key_of(&stored.entry).as_deref() != Some(key) {
        let other = "holds another entry than its key says";
        return Err(FormatError::rule(key, other));
    }
    Ok(stored.entry)
}

fn key_of(entry: &Entry) -> Option<String> {
    match entry {
        Entry::Opened(e) => Some(keys::intent_opened(&e.producer, e.epoch, e.nonce)),
        Entry::Batch(e) => Some(keys::intent(&e.producer, e.epoch, e.first_seq, e.last_seq)),
        Entry::Finished(e) => Some(keys::intent_finished(&e.producer, e.epoch, e.final_seq)),
        _ => None,
    }
}

/// Listed intents, sorted by their use in one state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Keys of intents that extend what is committed, in the order in which they must be validated.
    pub wanted: Vec<String>,
    /// Keys of intents that no later state can make valid.
    pub dead: Vec<String>,
    /// Keys of no use in this state, which may be an old one, and keys that are not intents.
    pub odd: Vec<String>,
}

/// Selects among listed intents (key and size) those that extend what is committed, without those of `own`.
/// `start` rotates the first producer, so that full records do not always hold the same producers' entries.
pub fn select(
    manifest: &Manifest,
    listed: &[(String, u64)],
    own: &ProducerName,
    start: u64,
) -> Selection {
    let mut by_producer: BTreeMap<ProducerName, Vec<(Announced, &String)>> = BTreeMap::new();
    let mut selection = Selection::default();
    for (key, size) in listed {
        match keys::parse_intent(key).filter(|_| *size <= INTENT_BYTES_MAX as u64) {
            Some((producer, ..)) if producer == *own => {}
            Some((producer, epoch, what)) if is_dead(manifest, &producer, epoch, &what) => {
                selection.dead.push(key.clone());
            }
            Some((producer, epoch, what)) if is_early(manifest, &producer, epoch, &what) => {
                selection.odd.push(key.clone());
            }
            Some((producer, _, what)) => {
                by_producer.entry(producer).or_default().push((what, key));
            }
            None => selection.odd.push(key.clone()),
        }
    }
    let skip = (start % by_producer.len().max(1) as u64) as usize;
    let rotated = by_producer
        .iter()
        .skip(skip)
        .chain(by_producer.iter().take(skip));
    for (producer, announced) in rotated {
        let next = manifest.producer(producer).map_or(0, |p| p.next_seq);
        chain(next, announced, &mut selection.wanted);
        if selection.wanted.len() >= INTENTS_PER_ROUND {
            selection.wanted.truncate(INTENTS_PER_ROUND);
            break;
        }
    }
    selection
}

/// Returns whether the intent is void in this state and all later ones. The state of a lister may be old.
pub(crate) fn is_dead(
    manifest: &Manifest,
    producer: &ProducerName,
    epoch: Epoch,
    what: &Announced,
) -> bool {
    let state = manifest.producer(producer);
    let current = state.map_or(0, |p| p.epoch);
    if state.is_some_and(|p| p.finished) {
        return true;
    }
    let next = state.filter(|p| !p.retired).map(|p| p.next_seq);
    match what {
        Announced::Opened => epoch <= current,
        Announced::Batch(from, _) | Announced::Finished(from) => {
            epoch < current || (epoch == current && next.is_none_or(|next| *from < next))
        }
    }
}

/// Returns whether the intent belongs to an epoch that this state does not know yet.
fn is_early(manifest: &Manifest, producer: &ProducerName, epoch: Epoch, what: &Announced) -> bool {
    let current = manifest.producer(producer).map_or(0, |p| p.epoch);
    let opening = u64::from(*what == Announced::Opened);
    epoch > current.saturating_add(opening)
}

/// The use of an intent's entry in one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Candidacy {
    /// It is valid, or becomes valid after others of its producer.
    Candidate,
    /// It is void, but a record without an entry of its producer could make it valid.
    NotNow(Void),
    /// No record can make it valid. Correct producers never announce such an entry.
    Never(Void),
}

/// Validates an intent's entry alone.
pub fn candidacy(manifest: &Manifest, entry: &Entry) -> Candidacy {
    let verdict = rules::size(entry).and_then(|()| manifest.validate(entry).map(|_| ()));
    match verdict {
        Ok(()) => Candidacy::Candidate,
        Err(Void::WrongSeq { next, found, .. }) if found > next => Candidacy::Candidate,
        Err(void) => match void {
            Void::Sealed
            | Void::VersionsUsedUp
            | Void::WrongMixture { .. }
            | Void::WrongStep { .. }
            | Void::NotOpened(_) => Candidacy::NotNow(void),
            Void::WrongEpoch { current, found, .. } if found > current => Candidacy::NotNow(void),
            _ => Candidacy::Never(void),
        },
    }
}

/// Adds the longest chain of intents from `next` on, then the other useful ones of the producer.
fn chain(mut next: Seq, announced: &[(Announced, &String)], wanted: &mut Vec<String>) {
    let longest = |next: Seq| {
        let starts = announced.iter().filter_map(|(what, key)| match what {
            Announced::Batch(first, last) if *first == next && *last >= next => Some((*last, *key)),
            _ => None,
        });
        starts.max()
    };
    while let Some((last, key)) = longest(next) {
        wanted.push(key.clone());
        next = last.saturating_add(1);
    }
    for (what, key) in announced {
        if matches!(what, Announced::Opened) || *what == Announced::Finished(next) {
            wanted.push((*key).clone());
        }
    }
}

#[cfg(test)]
mod tests;
