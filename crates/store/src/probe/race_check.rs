//! Checks a race of writers for one absent key: one wins, its bytes are stored, and they stay.

use bytes::Bytes;

use super::{PROBE_BYTES_MAX, broken};
use crate::{Create, Effect, Store, StoreError};

/// Reads of an unexpected object before the store counts as broken.
const READS: usize = 4;

/// Returns a distinct body of at least `size` bytes for each of `racers`.
pub(super) fn bodies(key: &str, racers: usize, size: usize) -> Vec<Bytes> {
    let body = |racer| {
        let name = format!("racer {racer} of {key}\n");
        Bytes::from(name.repeat(size.div_ceil(name.len()).max(1)))
    };
    (0..racers).map(body).collect()
}

/// Checks the `answers` of racers that wrote `bodies`; returns the number of unclear answers.
pub(super) async fn check_race(
    store: &dyn Store,
    key: &str,
    what: &str,
    bodies: &[Bytes],
    answers: Vec<Result<Create, StoreError>>,
) -> Result<usize, StoreError> {
    let won = |answer: &&Result<Create, _>| matches!(answer, Ok(Create::Created));
    let winners = answers.iter().filter(won).count();
    if winners > 1 {
        let why = format!(
            "{winners} of {} concurrent {what} of one key were answered \"created\"",
            answers.len()
        );
        return Err(broken(store, key, &why));
    }
    let won = |there: &Bytes| {
        let mut racers = answers.iter().zip(bodies);
        racers.any(|(answer, body)| may_own(answer, winners) && body == there)
    };
    let there = match read(store, key, won).await {
        Err(error) if error.is_not_found() && winners == 0 => {
            return Err(no_winner(store, key, what, answers));
        }
        Err(error) if error.is_not_found() => {
            let why = "the object that was created is not there";
            return Err(broken(store, key, why));
        }
        there => there?,
    };
    if !won(&there) {
        let why = "the object does not hold the bytes of the writer that won";
        return Err(broken(store, key, why));
    }
    refuses_again(store, key, &there).await?;
    Ok(answers.iter().filter(|answer| answer.is_err()).count())
}

/// Returns whether the racer with this answer may be the winner: one whose answer was lost may be it.
fn may_own(answer: &Result<Create, StoreError>, winners: usize) -> bool {
    match answer {
        Ok(Create::Created) => true,
        Ok(Create::Exists) => false,
        Err(error) => winners == 0 && error.effect == Effect::Unknown,
    }
}

/// Reads an object. Unexpected bytes are read again over new connections, because one damaged answer
/// does not make a store unfit. Returns the last bytes read.
async fn read(
    store: &dyn Store,
    key: &str,
    expected: impl Fn(&Bytes) -> bool,
) -> Result<Bytes, StoreError> {
    let mut bytes = store.get(key, PROBE_BYTES_MAX).await?;
    for _ in 1..READS {
        if expected(&bytes) {
            break;
        }
        bytes = store.get_fresh(key, PROBE_BYTES_MAX).await?;
    }
    Ok(bytes)
}

/// Checks that one more create after the race is answered "exists" and changes nothing.
async fn refuses_again(store: &dyn Store, key: &str, there: &Bytes) -> Result<(), StoreError> {
    let again = match store.create(key, Bytes::from_static(b"late\n")).await {
        Err(error) if error.effect == Effect::Unknown => Create::Exists,
        again => again?,
    };
    if again == Create::Created || read(store, key, |now| now == there).await? != *there {
        return Err(broken(
            store,
            key,
            "a create of a key that exists replaced its object",
        ));
    }
    Ok(())
}

/// Returns the error of a race without a winner: the most specific of the racers' errors.
fn no_winner(
    store: &dyn Store,
    key: &str,
    what: &str,
    answers: Vec<Result<Create, StoreError>>,
) -> StoreError {
    let racers = answers.len();
    let errors: Vec<StoreError> = answers.into_iter().filter_map(Result::err).collect();
    if errors.len() < racers {
        let why = format!("{what} were answered \"exists\", but none was answered \"created\"");
        return broken(store, key, &why);
    }
    let lasting = errors.iter().position(|error| !error.kind.is_transient());
    errors
        .into_iter()
        .nth(lasting.unwrap_or(0))
        .unwrap_or_else(|| broken(store, key, "no answers"))
}
