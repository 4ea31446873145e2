//! A record that does not fit stops the stream, and a person may make it void. One that can't be read,
//! only while it is the newest: the writer of a later record has read other bytes there, and those must
//! come back. One that can be read and continues another history, whatever follows: a repair counts
//! only for folds that can't take the record.

use std::sync::Arc;

use batchweave_core::error::FormatError;
use batchweave_core::ids::{Hash, StreamId, Version};
use batchweave_core::keys;
use batchweave_core::manifest::repair::Repair;
use batchweave_core::manifest::{FoldError, Record};
use batchweave_core::stream::StreamConfig;
use batchweave_store::Store;
use bytes::Bytes;

use crate::commit::resolve::{self, Resolved};
use crate::read::retrying::Patient;
use crate::read::window::get_record;
use crate::{Log, LogError, LogOptions};

#[cfg(test)]
mod tests;

/// The record at which a log stops.
#[derive(Debug, Clone)]
pub struct Damage {
    /// Its version.
    pub version: Version,
    /// Its key.
    pub key: String,
    /// Why the fold stops there.
    pub reason: FoldError,
    /// How many there are.
    pub bytes: u64,
    /// Their hash.
    pub bad: Hash,
    /// What can be done.
    pub remedy: Remedy,
    stream: StreamId,
}

/// What helps against a [`Damage`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// It is the newest record: it may be made void.
    Repair,
    /// It has another format: a newer program wrote it and reads it, so that a repair would give it
    /// two meanings.
    Upgrade,
    /// A record follows that continues other bytes: this one was altered later. It has to be
    /// restored.
    Restore {
        /// The record that follows.
        later: String,
        /// The hash of the bytes that it continues; none when it can't be read either.
        held: Option<Hash>,
    },
    /// A record follows that continues these very bytes: its writer could read them.
    UpgradeToo {
        /// The record that follows.
        later: String,
    },
    /// Others have gone on from this record: it is the object before it that was altered.
    RestoreBefore {
        /// The object that was altered.
        before: String,
        /// The hash of the bytes that it had.
        named: Hash,
    },
    /// The bytes differ from one reading to the next: what is wrong lies on the way here.
    Unsteady,
    /// A repair is there, of other bytes: they were altered after it. They have to be restored.
    RepairedOther {
        /// The repair.
        repair: String,
        /// The hash of the bytes that it speaks of.
        held: Hash,
    },
}

/// What became of a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Repaired {
    /// The record is void from now on.
    Now,
    /// It was already, by this reason.
    Before {
        /// Of who was first.
        reason: String,
    },
    /// Nothing was written; the damage is another one than was looked at.
    Refused(Remedy),
}

/// Looks for the record at which the log at the store's root stops; `None` when it folds to its
/// head. Every other failure is an error.
pub async fn damage(
    store: &Arc<dyn Store>,
    options: &LogOptions,
) -> Result<Option<Damage>, LogError> {
    let Err(error) = Log::open(Arc::clone(store), options).await else {
        return Ok(None);
    };
    let reason = match error {
        LogError::Fold(reason) if reason.may_be_repaired() => reason,
        error => return Err(error),
    };
    let (version, key) = (reason.version(), keys::log(reason.version()));
    let patient = Patient::around(Arc::clone(store), Arc::clone(&options.clock));
    let stream = patient.get(keys::STREAM, keys::bytes_max(keys::STREAM));
    let stream = StreamConfig::from_json(&stream.await?, keys::STREAM)?;
    let found = patient.get(&key, keys::bytes_max(&key)).await?;
    let again = patient.get(&key, keys::bytes_max(&key)).await?;
    let mut damage = Damage {
        version,
        key,
        reason,
        bytes: found.len() as u64,
        bad: Hash::sha256(&found),
        remedy: Remedy::Unsteady,
        stream: stream.stream_id,
    };
    let readable = Record::from_json(&found, version).is_ok();
    if found == again && readable == damage.reason.writer().is_some() {
        damage.remedy = remedy(patient.as_ref(), &damage).await?;
    }
    Ok(Some(damage))
}

async fn remedy(store: &dyn Store, damage: &Damage) -> Result<Remedy, LogError> {
    let later = get_record(store, damage.version + 1).await?;
    match (&damage.reason, later) {
        (FoldError::Unlinked { named, writer, .. }, Some(later)) => {
            let record = Record::from_json(&later, damage.version + 1);
            let goes_on = |r: Record| r.prev == damage.bad && r.writer.to_string() != *writer;
            if record.is_ok_and(goes_on) {
                let before = damage.version.checked_sub(1);
                return Ok(Remedy::RestoreBefore {
                    before: before.map_or(keys::STREAM.to_owned(), keys::log),
                    named: *named,
                });
            }
        }
        (FoldError::Unreadable { .. }, Some(later)) => return Ok(by_later(damage, &later)),
        (
            FoldError::Unreadable {
                reason: FormatError::UnknownFormat { .. },
                ..
            },
            None,
        ) => return Ok(Remedy::Upgrade),
        _ => {}
    }
    Ok(match repair_of(store, damage).await? {
        Some(repair) if repair.bad != damage.bad => Remedy::RepairedOther {
            repair: keys::repair(damage.version),
            held: repair.bad,
        },
        _ => Remedy::Repair,
    })
}

/// What the record behind an unreadable one says of it.
fn by_later(damage: &Damage, bytes: &[u8]) -> Remedy {
    let version = damage.version + 1;
    let later = keys::log(version);
    let held = Record::from_json(bytes, version)
        .ok()
        .map(|record| record.prev);
    if held == Some(damage.bad) {
        return Remedy::UpgradeToo { later };
    }
    Remedy::Restore { later, held }
}

async fn repair_of(store: &dyn Store, damage: &Damage) -> Result<Option<Repair>, LogError> {
    let key = keys::repair(damage.version);
    match store.get(&key, keys::bytes_max(&key)).await {
        Ok(bytes) => Ok(Some(Repair::from_json(
            &bytes,
            damage.stream,
            damage.version,
        )?)),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Makes the damaged record void for everybody. Looks once more first: only while it is the newest.
pub async fn repair(
    store: &Arc<dyn Store>,
    damage: &Damage,
    reason: &str,
    options: &LogOptions,
) -> Result<Repaired, LogError> {
    let patient = Patient::around(Arc::clone(store), Arc::clone(&options.clock));
    let found = patient
        .get(&damage.key, keys::bytes_max(&damage.key))
        .await?;
    if Hash::sha256(&found) != damage.bad {
        return Ok(Repaired::Refused(Remedy::Unsteady));
    }
    let now = remedy(patient.as_ref(), damage).await?;
    if now != Remedy::Repair {
        return Ok(Repaired::Refused(now));
    }
    let repair = Repair {
        format: 1,
        stream: damage.stream,
        version: damage.version,
        bad: damage.bad,
        reason: reason.to_owned(),
    };
    let key = keys::repair(damage.version);
    let body = Bytes::from(repair.to_json());
    match resolve::put(store.as_ref(), options.clock.as_ref(), &key, body).await? {
        Resolved::Ours => Ok(Repaired::Now),
        Resolved::Theirs(bytes) => {
            let theirs = Repair::from_json(&bytes, damage.stream, damage.version)?;
            if theirs.bad == damage.bad {
                return Ok(Repaired::Before {
                    reason: theirs.reason,
                });
            }
            Ok(Repaired::Refused(Remedy::RepairedOther {
                repair: key,
                held: theirs.bad,
            }))
        }
    }
}
