//! A record that does not fit stops the stream, and a person may make it void. An unreadable record only
//! while it is the newest: the writer of a later record has read other bytes there, which must be restored.
//! A readable record that continues another history always: a repair counts only for folds that cannot take
//! the record.

use std::sync::Arc;

use batchweave_core::error::FormatError;
use batchweave_core::ids::{Hash, StreamId, Version};
use batchweave_core::keys;
use batchweave_core::manifest::repair::Repair;
use batchweave_core::manifest::{FoldError, Record};
use batchweave_core::stream::StreamConfig;
use batchweave_store::{Store, found};
use bytes::Bytes;
use futures::future::BoxFuture;

use crate::commit::resolve::{self, Resolved};
use crate::error::LogError;
use crate::log::{Log, LogOptions};
use crate::read::fitting::get_fitting;
use crate::read::retrying::RetryingReads;
use crate::read::window::get_record;

#[cfg(test)]
mod tests;

/// The record at which the fold of a log stops.
#[derive(Debug, Clone)]
pub struct Damage {
    pub version: Version,
    pub key: String,
    /// Why the fold stops there.
    pub reason: FoldError,
    /// The size of the object.
    pub bytes: u64,
    /// The hash of the object.
    pub bad: Hash,
    pub remedy: Remedy,
    stream: StreamId,
}

/// The remedy of a [`Damage`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// A repair: the record is the newest one and may be made void.
    Repair,
    /// An upgrade: a newer program wrote the record and reads it, so that a repair would give it two
    /// meanings.
    Upgrade,
    /// Restoring the object: a later record continues other bytes, so this one was altered.
    Restore {
        /// The key of the later record.
        later: String,
        /// The hash of the bytes that it continues; `None` when it is unreadable too.
        held: Option<Hash>,
    },
    /// An upgrade: a later record continues these very bytes, so its writer could read them.
    UpgradeToo {
        /// The key of the later record.
        later: String,
    },
    /// Restoring the object before: other writers continued this record, so the one before was altered.
    RestoreBefore {
        /// The key of the altered object.
        before: String,
        /// The hash of its original bytes.
        named: Hash,
    },
    /// Checking this machine and its network: the bytes differ from one read to the next.
    Unsteady,
    /// Restoring the object: a repair of other bytes exists, so they were altered after it.
    RepairedOther {
        /// The key of the repair.
        repair: String,
        /// The hash of the repaired bytes.
        held: Hash,
    },
}

/// The outcome of a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Repaired {
    /// The record is void from now on.
    Now,
    /// The record was void before.
    Before {
        /// The reason of the first repair.
        reason: String,
    },
    /// Nothing was written: the damage is no longer the one that was found.
    Refused(Remedy),
}

/// Finds the record at which the log at the store's root stops; `None` when it folds to its head. Every other
/// failure is an error.
pub fn damage<'a>(
    store: &'a Arc<dyn Store>,
    options: &'a LogOptions,
) -> BoxFuture<'a, Result<Option<Damage>, LogError>> {
    Box::pin(async move {
        let Err(error) = Log::open(Arc::clone(store), options).await else {
            return Ok(None);
        };
        let reason = match error {
            LogError::Fold(reason) if reason.may_be_repaired() => reason,
            error => return Err(error),
        };
        let (version, key) = (reason.version(), keys::log(reason.version()));
        let reads = RetryingReads::around(Arc::clone(store), Arc::clone(&options.clock));
        let parse = |bytes: &Bytes| StreamConfig::from_json(bytes, keys::STREAM);
        let stream = get_fitting(reads.as_ref(), keys::STREAM, parse).await??;
        let found = reads.get(&key, keys::bytes_max(&key)).await?;
        let again = reads.get_fresh(&key, keys::bytes_max(&key)).await?;
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
            damage.remedy = remedy(reads.as_ref(), &damage).await?;
        }
        Ok(Some(damage))
    })
}

async fn remedy(store: &dyn Store, damage: &Damage) -> Result<Remedy, LogError> {
    let later = get_record(store, damage.version + 1).await?;
    match (&damage.reason, later) {
        (FoldError::Unlinked { named, writer, .. }, Some(later)) => {
            let record = Record::from_json(&later, damage.version + 1);
            let continued = |r: Record| r.prev == damage.bad && r.writer.to_string() != *writer;
            if record.is_ok_and(continued) {
                let before = damage.version.checked_sub(1);
                return Ok(Remedy::RestoreBefore {
                    before: before.map_or(keys::STREAM.to_owned(), keys::log),
                    named: *named,
                });
            }
        }
        (FoldError::Unreadable { .. }, Some(later)) => return Ok(remedy_by_later(damage, &later)),
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

/// Returns the remedy of an unreadable record that a later one follows.
fn remedy_by_later(damage: &Damage, bytes: &[u8]) -> Remedy {
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
    let parse = |bytes: &Bytes| Repair::from_json(bytes, damage.stream, damage.version);
    let read = found(get_fitting(store, &key, parse).await)?;
    Ok(read.transpose()?)
}

/// Makes the damaged record void for all readers, after checking that this is still its remedy.
pub fn repair<'a>(
    store: &'a Arc<dyn Store>,
    damage: &'a Damage,
    reason: &'a str,
    options: &'a LogOptions,
) -> BoxFuture<'a, Result<Repaired, LogError>> {
    Box::pin(async move {
        let reads = RetryingReads::around(Arc::clone(store), Arc::clone(&options.clock));
        let found = reads.get(&damage.key, keys::bytes_max(&damage.key)).await?;
        if Hash::sha256(&found) != damage.bad {
            return Ok(Repaired::Refused(Remedy::Unsteady));
        }
        let now = remedy(reads.as_ref(), damage).await?;
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
            Resolved::Theirs(bytes) => outcome_of_other(damage, key, &bytes),
        }
    })
}

/// Returns the outcome when another's repair object was there before.
fn outcome_of_other(damage: &Damage, key: String, bytes: &[u8]) -> Result<Repaired, LogError> {
    let theirs = Repair::from_json(bytes, damage.stream, damage.version)?;
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
