//! The start-up probe: refuses a store whose create-only put is not exclusive, and explains a
//! missing permission before it can look like a missing object.

use bytes::Bytes;
use futures::future::join_all;

use crate::{Create, Effect, ErrorKind, Op, Store, StoreError};

const RACERS: usize = 16;
/// A race in which nobody got an answer says nothing and is run again.
const RACE_TRIES: usize = 3;

/// What the role that opens the store will do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads only: the exclusive part is skipped.
    Read,
    /// Creates objects.
    Write,
}

/// What the long form has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProbeReport {
    /// Races with exactly one winner.
    pub rounds: usize,
    /// Losers that were told 409 or got no answer instead of a clear "exists".
    pub unclear_answers: usize,
}

/// Checks that a missing key reads as missing and that one of 16 concurrent creates wins.
/// `random` makes the throw-away keys below `probe/` unique; all are deleted again.
pub async fn probe(store: &dyn Store, random: u64) -> Result<(), StoreError> {
    probe_read(store, random).await?;
    race(store, &format!("probe/{random:016x}/race"))
        .await
        .map(drop)
}

/// The part of the probe that needs read permissions only.
pub async fn probe_read(store: &dyn Store, random: u64) -> Result<(), StoreError> {
    let key = format!("probe/{random:016x}/absent");
    match store.get(&key).await {
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(broken(
            store,
            &key,
            "a key that was never written has an object",
        )),
    }
}

/// As [`probe`], with `rounds` races and a ranged read, for `batchweave doctor`.
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
        report.unclear_answers += race(store, &format!("probe/{random:016x}/race-{round}")).await?;
        report.rounds += 1;
    }
    ranged(store, &format!("probe/{random:016x}/range")).await?;
    Ok(report)
}

/// Races creates on one absent key until a race is conclusive; returns how many answers were unclear.
async fn race(store: &dyn Store, key: &str) -> Result<usize, StoreError> {
    let mut tries = RACE_TRIES;
    loop {
        let key = format!("{key}-{tries}");
        let outcome = race_once(store, &key).await;
        clean(store, &key).await;
        tries -= 1;
        match outcome {
            Err(error) if error.kind.is_transient() && tries > 0 => {}
            outcome => return outcome,
        }
    }
}

async fn race_once(store: &dyn Store, key: &str) -> Result<usize, StoreError> {
    let body = |racer: usize| Bytes::from(format!("racer {racer} of {key}\n"));
    let answers = join_all((0..RACERS).map(|racer| store.create(key, body(racer)))).await;
    let winners: Vec<usize> = (0..RACERS)
        .filter(|at| matches!(answers[*at], Ok(Create::Created)))
        .collect();
    if winners.len() > 1 {
        let why = format!(
            "{} of {RACERS} concurrent creates of one key were told that they made it",
            winners.len()
        );
        return Err(broken(store, key, &why));
    }
    let there = match store.get(key).await {
        Err(error) if error.is_not_found() && winners.is_empty() => {
            return Err(nobody(store, key, answers));
        }
        Err(error) if error.is_not_found() => {
            return Err(broken(
                store,
                key,
                "the object that was created is not there",
            ));
        }
        there => there?,
    };
    // A winner whose answer was lost is as good as one who was told.
    let may_own = |racer: usize| match &answers[racer] {
        Ok(Create::Created) => true,
        Ok(Create::Exists) => false,
        Err(error) => winners.is_empty() && error.effect == Effect::Unknown,
    };
    if !(0..RACERS).any(|racer| may_own(racer) && body(racer) == there) {
        return Err(broken(
            store,
            key,
            "the object does not hold the bytes of the create that won",
        ));
    }
    refuses_again(store, key, &there).await?;
    Ok(answers.iter().filter(|answer| answer.is_err()).count())
}

/// One more create, after the race, is told "exists" and changes nothing.
async fn refuses_again(store: &dyn Store, key: &str, there: &Bytes) -> Result<(), StoreError> {
    let again = match store.create(key, Bytes::from_static(b"late\n")).await {
        Err(error) if error.effect == Effect::Unknown => Create::Exists,
        again => again?,
    };
    if again == Create::Created || store.get(key).await? != *there {
        return Err(broken(
            store,
            key,
            "a create of a key that exists replaced its object",
        ));
    }
    Ok(())
}

/// Nobody won: the reason is the most telling of the racers' errors.
fn nobody(store: &dyn Store, key: &str, answers: Vec<Result<Create, StoreError>>) -> StoreError {
    let errors: Vec<StoreError> = answers.into_iter().filter_map(Result::err).collect();
    if errors.len() < RACERS {
        return broken(
            store,
            key,
            "creates were told that the object exists, but nobody made it",
        );
    }
    let lasting = errors.iter().position(|error| !error.kind.is_transient());
    errors
        .into_iter()
        .nth(lasting.unwrap_or(0))
        .unwrap_or_else(|| broken(store, key, "no answers"))
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

/// Best effort: a writer needs no permission to delete.
async fn clean(store: &dyn Store, key: &str) {
    if let Err(error) = store.delete(key).await {
        tracing::debug!(%error, "the probe's throw-away object stays");
    }
}

fn broken(store: &dyn Store, key: &str, why: &str) -> StoreError {
    let location = format!("{}/{key}", store.root());
    StoreError::new(Op::Open, location, ErrorKind::Contract, Effect::DidNot, why)
}

#[cfg(test)]
mod tests;
