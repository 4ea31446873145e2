//! Storing checkpoint marks as create-only objects. Marks are never deleted here.

use batchweave_core::ids::Step;
use batchweave_core::keys;
use batchweave_core::retention::{AttemptObjects, Mark};
use batchweave_store::{StoreError, list_all};
use batchweave_wire::{ErrorName, Fault};

use crate::resources::Resources;

/// Missing coordinates that a warning lists.
const LISTED_MAX: usize = 16;

/// Stores a mark. `recorded`: the ledger of all that the rank received before it is stored, without which
/// the mark is refused, since a proof must have no hole below a restart point.
pub(crate) async fn store(resources: &Resources, mark: &Mark, recorded: bool) -> Result<(), Fault> {
    let key = mark.key();
    let fault = |message: String| Fault::new(ErrorName::MarkNotStored, message).at_step(mark.step);
    if !recorded {
        let message = "the ledger of what was delivered before the mark could not be stored";
        return Err(fault(message.to_owned()).at_key(key));
    }
    let began = resources.context.now();
    let stored = resources.create(&key, mark.to_json().into()).await;
    stored.map_err(|why| {
        // A refusal that no repetition mends is answered at once.
        let tried = match resources.context.since(began).as_secs() {
            0 => String::new(),
            seconds => format!(" for {seconds} s"),
        };
        let message = format!("the mark could not be stored{tried}: {why}");
        fault(message).at_key(key)
    })
}

/// Warns of marks older than `mark` that lack coordinates: their ranks do not call `checkpoint`, or fail to.
pub(crate) async fn warn_of_incomplete(resources: &Resources, mark: &Mark) {
    let objects = match list(resources, mark).await {
        Ok(objects) => objects,
        Err(why) => return tracing::debug!(%why, "marks could not be listed"),
    };
    let incomplete = objects.incomplete(mark.dp_size);
    let older: Vec<_> = incomplete
        .into_iter()
        .filter(|(step, _)| *step < mark.step)
        .collect();
    resources
        .metrics
        .incomplete_marks
        .with_label_values(&[mark.job.as_str()])
        .set(older.len().cast_signed() as i64);
    // Only the newest: each was reported when it was the newest.
    if let Some((step, missing)) = older.last() {
        tracing::warn!(
            job = %mark.job,
            attempt = mark.attempt,
            step,
            missing = missing.len(),
            dp_ranks = ?&missing[..missing.len().min(LISTED_MAX)],
            "a mark is incomplete, so a restart cannot use it: every data coordinate must call \
             checkpoint(), or set job.checkpoints = \"rank0\""
        );
    }
}

async fn list(resources: &Resources, mark: &Mark) -> Result<AttemptObjects, StoreError> {
    let prefix = keys::marks(&mark.job, mark.opened, mark.attempt);
    let mut objects = AttemptObjects::default();
    list_all(resources.store.as_ref(), &prefix, |object| {
        objects.note(&object.key, mark.dp_size, Step::MAX);
    })
    .await?;
    Ok(objects)
}
