//! Marks and progress as the product sees them: its own keys, read by its own functions, and what its
//! own rules say of watermarks.

use std::collections::BTreeMap;

use batchweave_core::ids::{AttemptNo, JobName, Version};
use batchweave_core::keys;
use batchweave_core::retention::reclaim::{Fate, Reclaim, ReferencedObjects};
use batchweave_core::retention::{self, AttemptObjects, Due, JobObjects};

use crate::config::Config;
use crate::entries::command;
use crate::spec;
use crate::state::{Role, State, TRAINERS_MAX, mark};
use crate::tables::{Node, Tables};

/// All that the store has under `jobs/`, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signs {
    /// As in the state.
    pub marks: u32,
    /// For each trainer: what its coordinates have received.
    pub at: [[u8; 2]; TRAINERS_MAX],
}

impl Signs {
    /// What the store has at a moment.
    pub fn of(state: &State) -> Self {
        let mut at = [[0; 2]; TRAINERS_MAX];
        for process in state.processes.as_slice() {
            if let Role::Trainer(trainer) = process.role {
                at[usize::from(trainer.index)] = trainer.at;
            }
        }
        let marks = state.marks;
        Self { marks, at }
    }

    /// Whether a coordinate has marked a step.
    pub fn marked(&self, trainer: u8, coordinate: u8, step: u8) -> bool {
        self.marks & mark(trainer, coordinate, step) != 0
    }
}

impl Tables {
    /// The step of the watermark that the product would publish, by a fold and what the store has.
    pub fn due(&mut self, node: Node, signs: Signs) -> Option<u8> {
        if let Some(&known) = self.due.get(&(node, signs)) {
            return known;
        }
        let listed = self.listed(node, &signs);
        let due = match retention::watermark(self.manifest(node), &listed) {
            Due::Publish(watermark) => Some(watermark.step as u8),
            _ => None,
        };
        self.due.insert((node, signs), due);
        due
    }

    /// Whether the product does as a person says who wants the watermark at a step.
    pub fn asked(&mut self, node: Node, signs: Signs, step: u8) -> bool {
        if let Some(&known) = self.asked.get(&(node, signs, step)) {
            return known;
        }
        let listed = self.listed(node, &signs);
        let manifest = self.manifest(node);
        let asked = retention::asked(manifest, &listed, step.into(), command(0)).is_ok();
        self.asked.insert((node, signs, step), asked);
        asked
    }

    /// Whether the product may delete an object by a fold.
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

    /// The marks that the product may delete by a fold.
    pub fn dead_marks(&self, node: Node, signs: Signs) -> u32 {
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
                for (bit, key) in folder.marks(config, trainer, &signs) {
                    if reclaim.job(&key, None) == Fate::Dead {
                        dead |= bit;
                    }
                }
            }
        }
        dead
    }

    /// What LISTs of the folders of all open jobs' attempts say.
    fn listed(&self, node: Node, signs: &Signs) -> BTreeMap<JobName, JobObjects> {
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
                let marks = folder.marks(config, trainer, signs).into_iter();
                let progress = folder.progress(config, trainer, signs);
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
    /// The marks of an attempt, each with its bit.
    fn marks(&self, config: &Config, trainer: u8, signs: &Signs) -> Vec<(u32, String)> {
        let all = (0..config.coordinates).flat_map(|at| (0..4).map(move |step| (at, step)));
        let made = all.filter(|&(at, step)| signs.marked(trainer, at, step));
        made.map(|(at, step)| {
            let by = (!config.rank0).then_some(at.into());
            let key = keys::mark(self.job, self.opened, self.attempt, step.into(), by);
            (mark(trainer, at, step), key)
        })
        .collect()
    }

    fn progress(&self, config: &Config, trainer: u8, signs: &Signs) -> Vec<String> {
        let at = signs.at[usize::from(trainer)];
        let at = (0..).zip(at).take(config.coordinates.into());
        at.map(|(coordinate, at)| {
            let (range, node) = ((coordinate, coordinate), format!("n{coordinate}"));
            keys::progress(self.job, self.opened, self.attempt, at.into(), range, &node)
        })
        .collect()
    }
}
