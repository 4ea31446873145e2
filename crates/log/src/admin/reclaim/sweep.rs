//! Deletes the objects that a scan found: in bulk, with the refusal of each key reported. It may be
//! interrupted anywhere.

use std::time::Duration;

use batchweave_store::{ErrorKind, StoreError};
use tracing::{debug, warn};

use super::report::{Class, ReclaimReport};
use super::scan::{Dead, Found};
use crate::log::Log;

/// Keys per delete request.
const KEYS: usize = 1000;
/// Tries per request. Deleting twice is harmless.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(200);

/// Deletes at most `max` objects.
pub(super) async fn sweep(log: &Log, found: Found, max: u64, report: &mut ReclaimReport) {
    let mut dead = found.dead;
    dead.truncate(usize::try_from(max).unwrap_or(usize::MAX));
    for class in Class::ALL {
        let of_class: Vec<_> = dead.iter().filter(|dead| dead.class == class).collect();
        for some in of_class.chunks(KEYS) {
            if !delete(log, class, some, report).await {
                return;
            }
        }
    }
    for upload in found.uploads {
        report.requests.deletes += 1;
        match log.store.abort(&upload).await {
            Ok(()) => report.deleted.entry(Class::Uploads).or_default().add(0),
            Err(error) if error.kind == ErrorKind::Denied => {
                return stop(&upload.key, error, 1, report);
            }
            Err(error) => report.refuse(upload.key, error, 1),
        }
    }
}

/// Deletes some objects of a class; returns false when further requests would fail too.
async fn delete(log: &Log, class: Class, some: &[&Dead], report: &mut ReclaimReport) -> bool {
    let keys: Vec<_> = some.iter().map(|dead| dead.key.clone()).collect();
    let first = keys.first().map_or("", String::as_str);
    let refused = match delete_with_retries(log, &keys, report).await {
        Ok(refused) => refused,
        Err(error) => {
            stop(first, error, keys.len() as u64, report);
            return false;
        }
    };
    let deleted = report.deleted.entry(class).or_default();
    let is_refused = |key: &str| refused.iter().any(|(refused, _)| refused == key);
    let gone = some
        .iter()
        .filter(|dead| refused.is_empty() || !is_refused(&dead.key));
    gone.for_each(|dead| deleted.add(dead.bytes));
    debug!(
        class = class.name(),
        keys = keys.len(),
        refused = refused.len(),
        "deleted"
    );
    let denied = |error: &StoreError| error.kind == ErrorKind::Denied;
    let all_denied = refused.len() == keys.len() && refused.iter().all(|(_, e)| denied(e));
    if all_denied {
        report.stopped = refused.first().map(|(_, error)| error.clone());
    }
    for (key, error) in refused {
        report.refuse(key, error, 1);
    }
    !all_denied
}

/// Sends one request, and again after transient failures. Refusals of single keys are left to the next pass.
async fn delete_with_retries(
    log: &Log,
    keys: &[String],
    report: &mut ReclaimReport,
) -> Result<Vec<(String, StoreError)>, StoreError> {
    let mut tries = 1;
    loop {
        report.requests.deletes += 1;
        match log.store.delete_many(keys).await {
            Err(error) if error.kind.is_transient() && tries < TRIES => {
                log.clock.sleep(PAUSE * tries).await;
                tries += 1;
            }
            answer => return answer,
        }
    }
}

fn stop(key: &str, error: StoreError, keys: u64, report: &mut ReclaimReport) {
    warn!(key, %error, "stopping reclamation: the store does not delete");
    report.refuse(key.to_owned(), error.clone(), keys);
    report.stopped = Some(error);
}
