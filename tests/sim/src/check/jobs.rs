//! Jobs as seen from every mark, progress and record in the order of their effects. Written
//! independently of the product and of `lifecycle`, from docs/protocol.md.

use std::collections::{BTreeMap, BTreeSet};

use batchweave_core::ids::{AttemptNo, JobName, Step, Version};
use batchweave_core::manifest::entry::JobOpened;

/// One attempt of a job.
#[derive(Debug)]
struct Attempt {
    start: Step,
    dp_size: u32,
    marks: BTreeMap<Step, BTreeSet<u32>>,
    /// The highest published progress of each coordinate.
    progress: BTreeMap<u32, Step>,
}

impl Attempt {
    fn position(&self) -> Step {
        let published = |c| self.progress.get(&c).copied().unwrap_or(self.start);
        (0..self.dp_size).map(published).min().unwrap_or(self.start)
    }
}

/// One incarnation of a job.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) opened: Version,
    pub(super) keep: usize,
    pub(super) holds: bool,
    pub(super) paces: bool,
    pub(super) lease: bool,
    start: Step,
    attempts: Vec<Attempt>,
    points: BTreeSet<Step>,
}

impl Job {
    pub(super) fn new(opened: Version, e: &JobOpened) -> Self {
        Self {
            opened,
            keep: e.keep as usize,
            holds: e.holds,
            paces: e.paces,
            lease: e.lease_seconds.is_some(),
            start: e.start,
            attempts: Vec::new(),
            points: BTreeSet::new(),
        }
    }

    /// Opens an attempt, which abandons the restart points above its start.
    pub(super) fn attempt(&mut self, start: Step, dp_size: u32) {
        self.points.retain(|point| *point <= start);
        self.points.insert(start);
        self.attempts.push(Attempt {
            start,
            dp_size,
            marks: BTreeMap::new(),
            progress: BTreeMap::new(),
        });
    }

    /// Adds a mark by one coordinate, or by one for all.
    pub(super) fn mark(&mut self, attempt: AttemptNo, step: Step, coordinate: Option<u32>) {
        let later = self.attempts.iter().skip(attempt as usize + 1);
        let top = later.map(|a| a.start).min().unwrap_or(Step::MAX);
        let Some(attempt) = self.attempts.get_mut(attempt as usize) else {
            return;
        };
        let made = attempt.marks.entry(step).or_default();
        made.extend(coordinate.map_or(0..attempt.dp_size, |c| c..c + 1));
        if made.len() == attempt.dp_size as usize && step <= top {
            self.points.insert(step);
        }
    }

    /// Publishes that coordinates have received each step below `step`.
    pub(super) fn progress(&mut self, attempt: AttemptNo, step: Step, first: u32, last: u32) {
        if let Some(attempt) = self.attempts.get_mut(attempt as usize) {
            for coordinate in first..=last {
                let known = attempt.progress.entry(coordinate).or_default();
                *known = step.max(*known);
            }
        }
    }

    /// Returns the oldest step that the job may still ask for, or none if it may ask for all.
    /// Points above the head do not count.
    pub(super) fn needs(&self, head: Step) -> Option<Step> {
        let newest = self.attempts.last()?;
        let points = self.points.range(..=head);
        let kept = *points.rev().nth(self.keep.checked_sub(1)?)?;
        Some(newest.position().min(kept))
    }

    /// Returns the step up to which all coordinates of the newest attempt have published progress.
    pub(super) fn position(&self) -> Step {
        self.attempts.last().map_or(self.start, Attempt::position)
    }

    /// Returns true if progress was published above the head, which hides the progress before it.
    pub(super) fn ahead(&self, head: Step) -> bool {
        let published = self.attempts.iter().flat_map(|a| a.progress.values());
        published.max().is_some_and(|step| *step > head)
    }

    pub(super) fn describe(&self) -> String {
        let newest = self.attempts.last();
        format!(
            "keeps {} of {:?}, published progress {:?}",
            self.keep,
            self.points,
            newest.map(|a| &a.progress)
        )
    }
}

/// The content of a key below `jobs/`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum JobObject {
    Mark(Step, Option<u32>),
    Progress(Step, u32, u32),
}

/// Parses a key into job, incarnation, attempt and content.
pub(super) fn parse_key(key: &str) -> Option<(JobName, Version, AttemptNo, JobObject)> {
    let mut fields = key.strip_prefix("jobs/")?.split('/');
    let (job, opened) = fields.next()?.split_once('@')?;
    let attempt = fields.next()?.parse().ok()?;
    let (kind, name) = (fields.next()?, fields.next()?.strip_suffix(".json")?);
    let (step, rest) = name.split_once('-')?;
    let step = step.parse().ok()?;
    let object = match kind {
        "marks" if rest == "all" => JobObject::Mark(step, None),
        "marks" => JobObject::Mark(step, Some(rest.parse().ok()?)),
        "progress" => {
            let (first, last) = rest.split_once('-')?.0.split_once('_')?;
            JobObject::Progress(step, first.parse().ok()?, last.parse().ok()?)
        }
        _ => return None,
    };
    Some((job.parse().ok()?, opened.parse().ok()?, attempt, object))
}

#[cfg(test)]
mod tests {
    use batchweave_core::ids::RequestId;

    use super::*;

    #[test]
    fn marks_count_by_what_was_given_up() {
        let mut job = Job::new(
            3,
            &JobOpened {
                request: RequestId([0; 16]),
                job: "j0".parse().unwrap(),
                start: 0,
                keep: 2,
                holds: true,
                paces: true,
                lease_seconds: None,
            },
        );
        assert_eq!(job.needs(50), None);
        job.attempt(0, 2);
        job.mark(0, 4, Some(0));
        job.progress(0, 9, 0, 1);
        assert_eq!(job.needs(50), None, "one restart point, two are kept");
        job.mark(0, 4, Some(1));
        assert_eq!(job.needs(50), Some(0));
        job.mark(0, 8, Some(0));
        job.mark(0, 8, Some(1));
        assert_eq!(job.needs(50), Some(4));
        job.attempt(4, 1);
        assert_eq!(job.needs(50), Some(0), "8 was given up");
        job.mark(1, 6, None);
        assert_eq!(job.needs(50), Some(4));
        job.mark(0, 9, None);
        assert_eq!(job.needs(50), Some(4), "a zombie's mark");
        job.mark(1, 9, None);
        assert_eq!(job.needs(50), Some(4), "nobody has published more");
        job.progress(1, 8, 0, 0);
        assert_eq!(job.needs(50), Some(6));
    }

    #[test]
    fn keys_are_read() {
        let job: JobName = "j0".parse().unwrap();
        let mark = parse_key("jobs/j0@7/1/marks/000000000012-all.json").unwrap();
        assert_eq!(mark, (job.clone(), 7, 1, JobObject::Mark(12, None)));
        let progress = parse_key("jobs/j0@7/1/progress/000000000012-0_1-n3.json").unwrap();
        assert_eq!(progress, (job, 7, 1, JobObject::Progress(12, 0, 1)));
        assert_eq!(parse_key("jobs/j0@7/1/ledger/000000000012-n3.0.json"), None);
    }
}
