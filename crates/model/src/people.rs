//! People: one who seals, and one who closes a job and opens it again.

use crate::spec::Spec;
use crate::state::Role;
use crate::turn::Turn;

impl Turn<'_> {
    /// The next seal or unseal.
    pub fn seal(&mut self, who: u8) -> Option<()> {
        if self.look(who) {
            return Some(());
        }
        let Role::Sealer { done } = self.copy(who).role else {
            return None;
        };
        if done >= self.config.seals {
            return None;
        }
        let spec = [Spec::Sealed, Spec::Unsealed][usize::from(done == 1)];
        let entry = self.tables.entry(spec);
        self.want(who, vec![entry]);
        Some(())
    }

    /// What whoever seals learns from the log.
    pub fn observe_seal(&mut self, who: u8, done: u8) {
        let sealed = self.tables.facts(self.copy(who).view).sealed;
        let done = done + u8::from(sealed == (done == 0));
        self.process(who).role = Role::Sealer {
            done: done.min(self.config.seals),
        };
    }

    /// The first job is closed, or opened again from where the data begins.
    pub fn change_job(&mut self, who: u8) -> Option<()> {
        if self.look(who) {
            return Some(());
        }
        let process = self.copy(who);
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
        self.want(who, vec![entry]);
        Some(())
    }

    /// What the operator learns from the log. The first change was the job's first opening.
    pub fn observe_job(&mut self, who: u8) {
        let changes = self.tables.facts(self.copy(who).view).jobs[0].changes;
        let done = changes.saturating_sub(1);
        self.process(who).role = Role::Operator { done };
    }
}
