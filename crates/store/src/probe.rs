//! The checks of a store that streams rely on, as functions that return what they found: the start-up probe refuses a
//! store whose creates are not exclusive, and reports a missing permission before it can be mistaken for a missing
//! object; `doctor` prints them all, and the conformance suite asserts them.

mod completions;
mod late;
mod race_check;
mod ranges;
mod visibility;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::future::join_all;

use crate::{Create, Effect, ErrorKind, Inspect, Op, Store, StoreError};
pub use completions::probe_completions;
use race_check::{bodies, check_race};
pub use ranges::probe_ranges;
pub use visibility::{Stopped, Unseen, probe_visibility};

const RACERS: usize = 16;
/// Most bytes of an object that the probe reads; it writes fewer.
const PROBE_BYTES_MAX: u64 = 1 << 20;
/// Races with bodies that do not fit one packet with their head.
const LARGE_RACES: usize = 5;
const LARGE_BYTES: usize = 64 << 10;
/// Runs of a race before it counts as failed; one without a clear answer is inconclusive.
const RACE_TRIES: usize = 3;

/// The permissions that the opening role needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads only; the check of exclusive creates is skipped.
    Read,
    Write,
}

/// The results of the probe's races.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProbeReport {
    /// Races with exactly one winner.
    pub rounds: usize,
    /// Losers that received 409 or no answer instead of a clear "exists".
    pub unclear_answers: usize,
    /// Late bodies that replaced nothing.
    pub late_bodies: usize,
}

/// Checks that a missing key reads as missing and that creates are exclusive: one of 16 concurrent ones
/// wins, with small and with larger bodies, and a late body replaces nothing. Where objects of `largest`
/// bytes are uploaded in parts, one of 8 completions must win. `random` makes the temporary keys below
/// `probe/` unique; all are deleted again.
pub fn probe(
    store: &dyn Store,
    random: u64,
    largest: u64,
) -> BoxFuture<'_, Result<(), StoreError>> {
    Box::pin(async move {
        probe_read(store, random).await?;
        let folder = format!("probe/{random:016x}");
        race(store, &format!("{folder}/race"), 0).await?;
        slow_bodies(store, &folder).await?;
        let bucket = store.inspect().and_then(|inspect| inspect.bucket());
        if let Some(bucket) = bucket.filter(|bucket| largest > bucket.parts_above()) {
            probe_completions(store, bucket, random, 1).await?;
        }
        Ok(())
    })
}

/// A store that checks the key before it has the whole body creates a key twice when a body is slow. An
/// earlier race has opened the connections; it is not counted here.
async fn slow_bodies(store: &dyn Store, folder: &str) -> Result<ProbeReport, StoreError> {
    let mut report = ProbeReport::default();
    let Some(inspect) = store.inspect() else {
        return Ok(report);
    };
    if inspect.bucket().is_some() {
        for round in 0..LARGE_RACES {
            let key = format!("{folder}/large-{round}");
            report.unclear_answers += race(store, &key, LARGE_BYTES).await?;
        }
    }
    let late = Race::Late(inspect);
    if let Some(unclear) = until_conclusive(store, &format!("{folder}/late"), late).await? {
        report.unclear_answers += unclear;
        report.late_bodies += 1;
    }
    Ok(report)
}

/// Runs the part of the probe that needs only read permissions.
pub fn probe_read(store: &dyn Store, random: u64) -> BoxFuture<'_, Result<(), StoreError>> {
    Box::pin(async move {
        let key = format!("probe/{random:016x}/absent");
        match store.get(&key, PROBE_BYTES_MAX).await {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(broken(
                store,
                &key,
                "a key that was never written has an object",
            )),
        }
    })
}

/// Runs [`probe`] with `rounds` races and a ranged read, for `batchweave doctor`.
pub async fn probe_long(
    store: &dyn Store,
    random: u64,
    rounds: usize,
    access: Access,
) -> Result<ProbeReport, StoreError> {
    probe_read(store, random).await?;
    let mut report = ProbeReport::default();
    if access == Access::Read {
        return Ok(report);
    }
    for round in 0..rounds {
        let key = format!("probe/{random:016x}/race-{round}");
        report.unclear_answers += race(store, &key, 0).await?;
        report.rounds += 1;
    }
    let slow = slow_bodies(store, &format!("probe/{random:016x}")).await?;
    report.unclear_answers += slow.unclear_answers;
    report.late_bodies += slow.late_bodies;
    ranged(store, &format!("probe/{random:016x}/range")).await?;
    Ok(report)
}

/// The kinds of races on an absent key.
#[derive(Clone, Copy)]
enum Race<'a> {
    /// Concurrent creates with bodies of at least this many bytes.
    Creates(usize),
    /// A create with a late body, and another one in between.
    Late(&'a dyn Inspect),
}

/// Races creates on one absent key; returns the number of unclear answers.
async fn race(store: &dyn Store, key: &str, size: usize) -> Result<usize, StoreError> {
    let unclear = until_conclusive(store, key, Race::Creates(size)).await?;
    Ok(unclear.unwrap_or_default())
}

/// Repeats a race under another key while it is inconclusive. Returns the number of unclear answers;
/// `None` where the store does not support this race.
async fn until_conclusive(
    store: &dyn Store,
    key: &str,
    race: Race<'_>,
) -> Result<Option<usize>, StoreError> {
    let mut tries = RACE_TRIES;
    loop {
        let key = format!("{key}-{tries}");
        let outcome = match race {
            Race::Creates(size) => race_once(store, &key, size).await.map(Some),
            Race::Late(inspect) => late::put(store, inspect, &key).await,
        };
        clean(store, &key).await;
        tries -= 1;
        match outcome {
            Err(error) if error.kind.is_transient() && tries > 0 => {}
            outcome => return outcome,
        }
    }
}

async fn race_once(store: &dyn Store, key: &str, size: usize) -> Result<usize, StoreError> {
    let bodies = bodies(key, RACERS, size);
    let answers = join_all(bodies.iter().map(|body| store.create(key, body.clone()))).await;
    check_race(store, key, "creates", &bodies, answers).await
}

async fn ranged(store: &dyn Store, key: &str) -> Result<(), StoreError> {
    use futures::TryStreamExt;
    let created = store.create(key, Bytes::from_static(b"0123456789")).await?;
    let chunks: Vec<Bytes> = store.get_range(key, 3..7).await?.try_collect().await?;
    clean(store, key).await;
    if created != Create::Created || chunks.concat() != b"3456" {
        return Err(broken(
            store,
            key,
            "a read of bytes 3..7 did not return these bytes",
        ));
    }
    Ok(())
}

/// Deletes the probe's object, as far as permitted: writers need no permission to delete.
async fn clean(store: &dyn Store, key: &str) {
    if let Err(error) = store.delete(key).await {
        tracing::debug!(%error, "cannot delete the probe's temporary object");
    }
}

fn broken(store: &dyn Store, key: &str, why: &str) -> StoreError {
    let location = format!("{}/{key}", store.root());
    StoreError::new(Op::Open, location, ErrorKind::Contract, Effect::DidNot, why)
}

#[cfg(test)]
mod tests;
