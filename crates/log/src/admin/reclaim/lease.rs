//! Leases: a job that says it may be closed when it shows no sign of life for so long is watched by
//! each reclaimer on its own monotonic clock; no two machines' clocks are ever compared.

use std::collections::BTreeMap;
use std::time::Duration;

use batchweave_core::ids::{AttemptNo, JobName, RequestId, Version};
use batchweave_core::manifest::entry::JobClosed;
use batchweave_core::manifest::{Entry, Manifest};
use batchweave_core::retention::JobObjects;

use super::job_objects::Signs;

/// What was last seen of a job, and since when it is so.
#[derive(Debug)]
struct Seen {
    attempts: AttemptNo,
    signs: JobObjects,
    since: Duration,
}

/// The jobs with a lease, as this reclaimer sees them.
#[derive(Debug, Default)]
pub(super) struct Leases(BTreeMap<(JobName, Version), Seen>);

impl Leases {
    /// Looks at all jobs; one whose lease has run out.
    pub(super) fn overdue(
        &mut self,
        m: &Manifest,
        signs: &Signs,
        now: Duration,
    ) -> Option<(JobName, Version, u64)> {
        let leased = |name: &JobName, opened| {
            let job = m.jobs().get(name).filter(|job| job.opened == opened);
            job.and_then(|job| job.lease_seconds)
        };
        self.0
            .retain(|(name, opened), _| leased(name, *opened).is_some());
        let mut overdue = None;
        for (name, job) in m.jobs() {
            let Some(lease) = job.lease_seconds else {
                continue;
            };
            let current = signs.get(name).cloned().unwrap_or_default();
            let place = (name.clone(), job.opened);
            let seen = self.0.get(&place);
            let same = seen.filter(|s| s.attempts == job.attempts_opened() && s.signs == current);
            match same {
                Some(seen) if now.saturating_sub(seen.since) >= Duration::from_secs(lease) => {
                    overdue = Some((place.0, place.1, lease));
                }
                Some(_) => {}
                None => {
                    let seen = Seen {
                        attempts: job.attempts_opened(),
                        signs: current,
                        since: now,
                    };
                    self.0.insert(place, seen);
                }
            }
        }
        overdue
    }
}

/// The record that closes such a job, for all to see.
pub(super) fn close(request: RequestId, (job, opened, lease): (JobName, Version, u64)) -> Entry {
    let reason =
        format!("its lease of {lease} s ran out without progress, mark, heartbeat or new attempt");
    Entry::JobClosed(JobClosed {
        request,
        job,
        opened,
        reason,
    })
}
