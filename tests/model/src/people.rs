//! People: the sealer, and the operator pid closes a job and opens it again.

use crate::spec::Spec;
use crate::state::Role;
use crate::turn::Turn;

impl Turn<'_> {
    /// Commits the next seal or unseal.
    pub fn seal(&mut self, pid: u8) -> Option<()> {
        if self.refresh(pid) {
            return Some(());
        }
        let Role::Sealer { done } = self.copy(pid).role else {
            return None;
        };
        if done >= self.config.seals {
            return None;
        }
        let spec = [Spec::Sealed, Spec::Unsealed][usize::from(done == 1)];
        let entry = self.tables.entry(spec);
        self.want(pid, vec![entry]);
        Some(())
    }

    /// Updates the sealer from the folded log.
    pub fn observe_seal(&mut self, pid: u8, done: u8) {
        let sealed = self.tables.facts(self.copy(pid).view).sealed;
        let done = done + u8::from(sealed == (done == 0));
        self.process(pid).role = Role::Sealer {
            done: done.min(self.config.seals),
        };
    }

    /// Closes the first job, or opens it again at the watermark.
    pub fn change_job(&mut self, pid: u8) -> Option<()> {
        if self.refresh(pid) {
            return Some(());
        }
        let process = self.copy(pid);
        let Role::Operator { done } = process.role else {
            return None;
        };
        if done >= self.config.reopens {
            return None;
        }
        let facts = self.tables.facts(process.view);
        let (start, job) = (facts.watermark, &facts.jobs[0]);
        let (opened, change) = (job.opened, job.changes);
        let spec = if job.open {
            Spec::JobClosed {
                job: 0,
                opened,
                change,
            }
        } else {
            Spec::JobOpened {
                job: 0,
                keep: self.config.keep[0],
                start,
                change,
            }
        };
        let entry = self.tables.entry(spec);
        self.want(pid, vec![entry]);
        Some(())
    }

    /// Updates the operator from the folded log. The first change was the job's first opening.
    pub fn observe_job(&mut self, pid: u8) {
        let changes = self.tables.facts(self.copy(pid).view).jobs[0].changes;
        let done = changes.saturating_sub(1);
        self.process(pid).role = Role::Operator { done };
    }
}
