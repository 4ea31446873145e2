//! Marks and progress as the product sees them: its own keys, read by its own functions, and the
//! watermarks that its own rules compute.

use std::collections::BTreeMap;

use batchweave_core::ids::{AttemptNo, JobName, Version};
use batchweave_core::keys;
use batchweave_core::retention::reclaim::{Fate, Reclaim, ReferencedObjects};
use batchweave_core::retention::{self, AttemptObjects, Due, JobObjects};

use crate::config::Config;
use crate::entries::command;
use crate::numbers::Node;
use crate::spec;
use crate::state::{MarksAndProgress, mark};
use crate::tables::Tables;

impl Tables {
    /// Returns the watermark that the product would publish from a fold and the listed objects.
    pub fn due(&mut self, node: Node, stored: MarksAndProgress) -> Option<u8> {
        if let Some(&known) = self.due.get(&(node, stored)) {
            return known;
        }
        let listed = self.listed(node, &stored);
        let due = match retention::watermark(self.manifest(node), &listed) {
            Due::Publish(watermark) => Some(watermark.step as u8),
            _ => None,
        };
        self.due.insert((node, stored), due);
        due
    }

    /// Returns true if the product accepts a person's watermark at a step.
    pub fn asked(&mut self, node: Node, stored: MarksAndProgress, step: u8) -> bool {
        if let Some(&known) = self.asked.get(&(node, stored, step)) {
            return known;
        }
        let listed = self.listed(node, &stored);
        let manifest = self.manifest(node);
        let asked =
            retention::requested_watermark(manifest, &listed, step.into(), command(0)).is_ok();
        self.asked.insert((node, stored, step), asked);
        asked
    }

    /// Returns true if the product may delete an object by a fold.
    pub fn is_dead(&mut self, node: Node, object: u8) -> bool {
        if let Some(&known) = self.dead.get(&(node, object)) {
            return known;
        }
        let manifest = self.manifest(node);
        let named = ReferencedObjects::from_manifest(manifest, manifest.watermark());
        let key = self.objects()[usize::from(object)].key();
        let fate = key.map(|key| Reclaim::by(manifest).data(&key, &named));
        let dead = fate == Some(Fate::Dead);
        self.dead.insert((node, object), dead);
        dead
    }

    /// Returns the marks that the product may delete by a fold.
    pub fn dead_marks(&self, node: Node, stored: MarksAndProgress) -> u32 {
        let (facts, config) = (self.facts(node), self.config());
        let reclaim = Reclaim::by(self.manifest(node));
        let mut dead = 0;
        for (index, job) in (0..).zip(&facts.jobs).filter(|(_, job)| job.open) {
            let Some(name) = spec::job(index) else {
                continue;
            };
            for (number, &(trainer, _)) in (0..).zip(&job.attempts) {
                let folder = Folder {
                    job: &name,
                    opened: job.opened.into(),
                    attempt: number,
                };
                for (bit, key) in folder.marks(config, trainer, &stored) {
                    if reclaim.job(&key, None) == Fate::Dead {
                        dead |= bit;
                    }
                }
            }
        }
        dead
    }

    /// Returns the listed objects of all attempts of all open jobs.
    fn listed(&self, node: Node, stored: &MarksAndProgress) -> BTreeMap<JobName, JobObjects> {
        let (facts, config) = (self.facts(node), self.config());
        let head = facts.next_step.into();
        let mut all = BTreeMap::new();
        for (index, job) in (0..).zip(&facts.jobs).filter(|(_, job)| job.open) {
            let Some(name) = spec::job(index) else {
                continue;
            };
            let mut of_job = JobObjects::new();
            for (number, &(trainer, _)) in (0..).zip(&job.attempts) {
                let mut found = AttemptObjects::default();
                let folder = Folder {
                    job: &name,
                    opened: job.opened.into(),
                    attempt: number,
                };
                let marks = folder.marks(config, trainer, stored).into_iter();
                let progress = folder.progress(config, trainer, stored);
                for key in marks.map(|(_, key)| key).chain(progress) {
                    found.note(&key, config.coordinates.into(), head);
                }
                of_job.insert(number, found);
            }
            all.insert(name, of_job);
        }
        all
    }
}

struct Folder<'a> {
    job: &'a JobName,
    opened: Version,
    attempt: AttemptNo,
}

impl Folder<'_> {
    /// Returns the marks of an attempt, each with its bit.
    fn marks(&self, config: &Config, trainer: u8, stored: &MarksAndProgress) -> Vec<(u32, String)> {
        let all = (0..config.coordinates).flat_map(|at| (0..4).map(move |step| (at, step)));
        let made = all.filter(|&(at, step)| stored.marked(trainer, at, step));
        made.map(|(at, step)| {
            let by = (!config.rank0).then_some(at.into());
            let key = keys::mark(self.job, self.opened, self.attempt, step.into(), by);
            (mark(trainer, at, step), key)
        })
        .collect()
    }

    fn progress(&self, config: &Config, trainer: u8, stored: &MarksAndProgress) -> Vec<String> {
        let at = stored.at[usize::from(trainer)];
        let at = (0..).zip(at).take(config.coordinates.into());
        at.map(|(coordinate, at)| {
            let (range, node) = ((coordinate, coordinate), format!("n{coordinate}"));
            keys::progress(self.job, self.opened, self.attempt, at.into(), range, &node)
        })
        .collect()
    }
}
