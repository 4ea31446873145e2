//! The names of the objects in a job's folder: ledgers, marks and progress.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_core::ids::{AttemptNo, Step};
use batchweave_core::keys;
use batchweave_core::proof::{AttemptRecord, JobRecord};
use batchweave_store::Store;

use crate::context;
use crate::error::CliError;

#[derive(Default)]
pub(super) struct JobListing {
    /// First step and key of each ledger, by attempt.
    pub(super) ledgers: BTreeMap<AttemptNo, Vec<(Step, String)>>,
    /// The coordinates that made each mark (`None`: one mark for all), by attempt and step.
    marks: BTreeMap<AttemptNo, BTreeMap<Step, Vec<Option<u32>>>>,
    /// First and last coordinate, and the step below which they have received everything, by attempt.
    progress: BTreeMap<AttemptNo, Vec<(u32, u32, Step)>>,
    pub(super) reached: BTreeMap<AttemptNo, Step>,
}

impl JobListing {
    /// Lists the folder of `record`.
    pub(super) async fn list(store: &Arc<dyn Store>, record: &JobRecord) -> Result<Self, CliError> {
        let folder = keys::job_folder(&record.name, record.opened);
        let mut listed = Self::default();
        for object in context::list(store.as_ref(), &folder).await? {
            let key = object.key;
            if let Some(ledger) = keys::parse_ledger(&key) {
                listed.reach(ledger.owner.attempt, ledger.first);
                let all = listed.ledgers.entry(ledger.owner.attempt).or_default();
                all.push((ledger.first, key));
            } else if let Some(mark) = keys::parse_mark(&key) {
                listed.reach(mark.owner.attempt, mark.step);
                let all = listed.marks.entry(mark.owner.attempt).or_default();
                all.entry(mark.step).or_default().push(mark.coordinate);
            } else if let Some(progress) = keys::parse_progress(&key) {
                listed.reach(progress.owner.attempt, progress.step);
                let all = listed.progress.entry(progress.owner.attempt).or_default();
                all.push((progress.first, progress.last, progress.step));
            }
        }
        for all in listed.ledgers.values_mut() {
            all.sort();
        }
        Ok(listed)
    }

    /// Returns the highest steps of an attempt's progress and marks.
    pub(super) fn shown(&self, attempt: AttemptNo) -> (Option<Step>, Option<Step>) {
        let progress = self.progress.get(&attempt).into_iter().flatten();
        let marks = self.marks.get(&attempt).and_then(|m| m.last_key_value());
        (progress.map(|p| p.2).max(), marks.map(|(step, _)| *step))
    }

    /// Returns first and last coordinate and the step of each mark and progress of an attempt. Names with
    /// impossible coordinates or steps are ignored.
    pub(super) fn claims(
        &self,
        attempt: &AttemptRecord,
        head: Step,
    ) -> impl Iterator<Item = (u32, u32, Step)> {
        let (number, dp_size) = (attempt.state.number, attempt.state.dp_size);
        let marks = self.marks.get(&number).into_iter().flatten();
        let marks = marks.flat_map(|(step, by)| by.iter().map(move |of| (*of, *step)));
        let marks = marks.map(move |(of, step)| match of {
            Some(one) => (one, one, step),
            None => (0, dp_size.saturating_sub(1), step),
        });
        let progress = self.progress.get(&number).into_iter().flatten();
        let all = marks.chain(progress.copied());
        all.filter(move |(_, last, step)| *step <= head && *last < dp_size)
    }

    /// Returns the position of a coordinate by its marks and progress; 0 without any.
    pub(super) fn shown_of(&self, attempt: &AttemptRecord, dp_rank: u32, head: Step) -> Step {
        let own = self.claims(attempt, head);
        let own = own.filter(|(first, last, _)| (*first..=*last).contains(&dp_rank));
        own.map(|(_, _, step)| step).max().unwrap_or_default()
    }

    fn reach(&mut self, attempt: AttemptNo, step: Step) {
        let reached = self.reached.entry(attempt).or_default();
        *reached = step.max(*reached);
    }

    pub(super) fn complete_marks(&self, attempt: &AttemptRecord) -> Vec<Step> {
        let marks = self.marks.get(&attempt.state.number).into_iter().flatten();
        let complete = |by: &Vec<Option<u32>>| {
            by.contains(&None) || by.len() >= attempt.state.dp_size as usize
        };
        let complete = marks.filter(|(_, by)| complete(by));
        complete.map(|(step, _)| *step).collect()
    }
}
