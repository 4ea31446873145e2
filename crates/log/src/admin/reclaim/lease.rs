//! Leases: a job with a lease is closed when it shows no activity for that time. Each reclaimer measures the
//! time on its own monotonic clock; clocks of two machines are never compared.

use std::collections::BTreeMap;
use std::time::Duration;

use batchweave_core::ids::{AttemptNo, JobName, RequestId, Version};
use batchweave_core::manifest::entry::JobClosed;
use batchweave_core::manifest::{Entry, Manifest};
use batchweave_core::retention::JobObjects;

use super::job_objects::ObjectsByJob;

/// The activity last seen of a job, and since when it has not changed.
#[derive(Debug)]
struct Seen {
    attempts: AttemptNo,
    objects: JobObjects,
    since: Duration,
}

/// The jobs with a lease, by name and incarnation.
#[derive(Debug, Default)]
pub(super) struct Leases(BTreeMap<(JobName, Version), Seen>);

impl Leases {
    /// Updates the activity of all jobs; returns one whose lease has run out.
    pub(super) fn overdue(
        &mut self,
        m: &Manifest,
        objects: &ObjectsByJob,
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
            let current = objects.get(name).cloned().unwrap_or_default();
            let id = (name.clone(), job.opened);
            let seen = self.0.get(&id);
            let same = seen.filter(|s| s.attempts == job.attempts_opened() && s.objects == current);
            match same {
                Some(seen) if now.saturating_sub(seen.since) >= Duration::from_secs(lease) => {
                    overdue = Some((id.0, id.1, lease));
                }
                Some(_) => {}
                None => {
                    let seen = Seen {
                        attempts: job.attempts_opened(),
                        objects: current,
                        since: now,
                    };
                    self.0.insert(id, seen);
                }
            }
        }
        overdue
    }
}

/// Returns the entry that closes such a job.
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
