//! The names of the objects in a job's folder: ledgers, marks and progress.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::context;
use batchweave_core::ids::{AttemptNo, Step};
use batchweave_core::keys;
use batchweave_core::proof::{AttemptRecord, JobRecord};
use batchweave_core::retention::JobObjects;
use batchweave_store::Store;

#[derive(Default)]
pub(crate) struct JobListing {
    /// First step and key of each ledger, by attempt.
    pub(crate) ledgers: BTreeMap<AttemptNo, Vec<(Step, String)>>,
    /// Marks and progress, by attempt.
    objects: JobObjects,
}

impl JobListing {
    /// Lists the folder of `record`, in a log of `head` steps.
    pub(crate) async fn list(
        store: &Arc<dyn Store>,
        record: &JobRecord,
        head: Step,
    ) -> Result<Self, CliError> {
        let folder = keys::job_folder(&record.name, record.opened);
        let mut listed = Self::default();
        for object in context::list(store.as_ref(), &folder).await? {
            let key = object.key;
            let attempt = keys::parse_owner(&key).and_then(|owner| record.attempt(owner.attempt));
            if let Some(ledger) = keys::parse_ledger(&key) {
                let all = listed.ledgers.entry(ledger.owner.attempt).or_default();
                all.push((ledger.first, key));
            } else if let Some(AttemptRecord { state, .. }) = attempt {
                let objects = listed.objects.entry(state.number).or_default();
                objects.note(&key, state.dp_size, head);
            }
        }
        for all in listed.ledgers.values_mut() {
            all.sort();
        }
        Ok(listed)
    }

    /// Returns the highest steps of an attempt's progress and marks.
    pub(crate) fn shown(&self, attempt: AttemptNo) -> (Option<Step>, Option<Step>) {
        let Some(objects) = self.objects.get(&attempt) else {
            return (None, None);
        };
        let marks = objects.marks.keys().chain(&objects.for_all);
        let progress = objects.progress.values();
        (progress.max().copied(), marks.max().copied())
    }

    /// Returns the highest step in the names of an attempt's objects.
    pub(crate) fn reached(&self, attempt: AttemptNo) -> Option<Step> {
        let (progress, mark) = self.shown(attempt);
        let ledgers = self.ledgers.get(&attempt).and_then(|all| all.last());
        progress.max(mark).max(ledgers.map(|(first, _)| *first))
    }

    /// Returns the position of a coordinate by its marks and progress; 0 without any.
    pub(crate) fn shown_of(&self, attempt: AttemptNo, dp_rank: u32) -> Step {
        let Some(objects) = self.objects.get(&attempt) else {
            return 0;
        };
        let own = objects.marks.iter().filter(|(_, by)| by.contains(&dp_rank));
        let marks = own.map(|(step, _)| step).chain(&objects.for_all);
        let all = marks.chain(objects.progress.get(&dp_rank));
        all.max().copied().unwrap_or_default()
    }

    pub(crate) fn complete_marks(&self, attempt: &AttemptRecord) -> Vec<Step> {
        let objects = self.objects.get(&attempt.state.number);
        let marks = objects.map(|objects| objects.complete_marks(attempt.state.dp_size));
        Vec::from_iter(marks.unwrap_or_default())
    }
}
