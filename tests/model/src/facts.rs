//! The properties of a log that can be checked once per log, and the small numbers that the model needs
//! from a manifest.
//!
//! The facts are derived independently of the product's manifest, from a list of all entries that
//! applied, so that the two check each other.

use batchweave_core::manifest::rules::Validity;
use batchweave_core::manifest::{Folded, Manifest, Void};

use crate::config::Config;
use crate::guard::Guard;
use crate::property::{Broken, Property};
use crate::spec::{self, JOBS_MAX, Object, Spec};

/// Producers in a model at most.
pub const PRODUCERS_MAX: usize = 3;

/// A committed TGB and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    pub producer: u8,
    /// The index of the TGB in its producer's input.
    pub row: u8,
    /// The object that holds it.
    pub object: Object,
    /// The step, or none while the TGB waits for its lane's turn.
    pub step: Option<u8>,
}

/// The state of a producer in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProducerFacts {
    /// The epoch; 0 before the first.
    pub epoch: u8,
    pub instance: u8,
    /// The length of the log when that instance started.
    pub began: u8,
    pub next: u8,
    /// The end of its input is committed.
    pub finished: bool,
}

/// The facts of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The number of records.
    pub length: u8,
    /// All TGBs that applied, in the order of the log.
    pub tgbs: Vec<Placed>,
    pub names: [ProducerFacts; PRODUCERS_MAX],
    /// The first step that has no TGB.
    pub next_step: u8,
    pub watermark: u8,
    pub sealed: bool,
    pub jobs: [Job; JOBS_MAX],
}

/// The state of a job in the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Job {
    pub open: bool,
    pub opened: u8,
    /// The number of openings and closings.
    pub changes: u8,
    /// The trainer and start of each attempt of this incarnation, in order.
    pub attempts: Vec<(u8, u8)>,
    /// For each attempt but the newest: the stream's next step when the following attempt opened.
    pub heads: Vec<u8>,
    /// The trainer and start of each attempt of the previous incarnation.
    pub past: Vec<(u8, u8)>,
}

/// A record, folded by the product.
#[derive(Debug, Clone, Copy)]
pub struct Fold<'a> {
    pub config: &'a Config,
    /// A rule that the model removes from the fold.
    pub lacks: Option<Guard>,
    /// The manifest after the record.
    pub manifest: &'a Manifest,
    /// The result of the fold.
    pub folded: &'a Folded,
}

impl Fold<'_> {
    /// Returns true if a void entry would apply without the removed rule.
    fn would_apply(&self, spec: Spec, void: &Void) -> bool {
        matches!(
            (self.lacks, spec, void),
            (Some(Guard::FoldGrows), _, Void::WatermarkOrder { .. })
                | (Some(Guard::FoldLists), _, Void::WatermarkJobs)
                | (
                    Some(Guard::FoldStarts),
                    Spec::Attempt { .. },
                    Void::BelowWatermark { .. }
                )
        )
    }
}

impl Facts {
    /// Returns the facts after a record, and the property that it breaks.
    pub fn after(&self, fold: &Fold<'_>, specs: &[Spec]) -> (Self, Option<Broken>) {
        let Fold {
            config,
            manifest,
            folded,
            ..
        } = *fold;
        let mut facts = self.clone();
        facts.length += 1;
        facts.next_step = manifest.next_step() as u8;
        let mut broken = folded
            .void
            .as_ref()
            .map(|void| Broken::new(Property::NoVoid, format!("the record is void: {void}")));
        for (spec, validity) in specs.iter().zip(&folded.entries) {
            let found = match validity {
                Err(void) if !fold.would_apply(*spec, void) => {
                    Some(Broken::new(Property::NoVoid, format!("{spec}: {void}")))
                }
                Ok(Validity::Repeat) => None,
                _ => facts.apply(config, *spec),
            };
            broken = broken.or(found);
        }
        let steps = self.next_step..facts.next_step;
        broken = broken.or(facts.place(config, folded, steps));
        if fold.lacks.is_none() {
            broken = broken.or(facts.agree(manifest));
            broken = broken.or(facts.agree_on_jobs(manifest));
        }
        (facts, broken)
    }

    /// Adds one entry that applied.
    fn apply(&mut self, config: &Config, spec: Spec) -> Option<Broken> {
        match spec {
            Spec::Opened {
                producer,
                instance,
                epoch,
                began,
            } => {
                let name = &mut self.names[usize::from(producer)];
                let older = began < name.began;
                (name.epoch, name.instance, name.began) = (epoch, instance, began);
                older.then(|| Broken::new(Property::Newest, format!("{spec} applied")))
            }
            Spec::Batch { .. } => self.apply_batch(config, spec),
            Spec::Finished { producer, .. } => {
                self.names[usize::from(producer)].finished = true;
                None
            }
            Spec::Sealed => {
                self.sealed = true;
                None
            }
            Spec::Unsealed => {
                self.sealed = false;
                None
            }
            Spec::Attempt {
                job,
                trainer,
                start,
                ..
            } => {
                let head = self.next_step;
                let job = &mut self.jobs[usize::from(job)];
                if !job.attempts.is_empty() {
                    job.heads.push(head);
                }
                job.attempts.push((trainer, start));
                None
            }
            Spec::JobOpened { job, .. } => {
                let opened = self.length - 1;
                let job = &mut self.jobs[usize::from(job)];
                (job.open, job.opened) = (true, opened);
                job.changes += 1;
                None
            }
            Spec::JobClosed { job, .. } => {
                let job = &mut self.jobs[usize::from(job)];
                job.open = false;
                job.changes += 1;
                job.past = std::mem::take(&mut job.attempts);
                job.heads.clear();
                None
            }
            Spec::Watermark { step, .. } => {
                self.watermark = step;
                None
            }
        }
    }

    fn apply_batch(&mut self, config: &Config, spec: Spec) -> Option<Broken> {
        let Spec::Batch {
            producer,
            instance,
            epoch,
            start,
            first,
            last,
        } = spec
        else {
            return None;
        };
        let name = &mut self.names[usize::from(producer)];
        let broken = if name.epoch != epoch || name.instance != instance {
            Some(Property::Fence)
        } else if self.sealed {
            Some(Property::Seal)
        } else if name.next != first || name.finished {
            Some(Property::ExactlyOnce)
        } else {
            None
        };
        name.next = last + 1;
        for row in first..=last {
            let (first, last) = config.object_split().object(start, row);
            self.tgbs.push(Placed {
                producer,
                row,
                object: Object {
                    producer,
                    instance,
                    epoch,
                    first,
                    last,
                },
                step: None,
            });
        }
        broken.map(|property| Broken::new(property, format!("{spec} applied")))
    }

    /// Adds the steps that the fold assigned, and checks that they are dense and in the right
    /// order.
    fn place(
        &mut self,
        config: &Config,
        folded: &Folded,
        steps: std::ops::Range<u8>,
    ) -> Option<Broken> {
        let order = |detail| Some(Broken::new(Property::Order, detail));
        let given: Vec<_> = folded.placed.iter().map(|entry| entry.step as u8).collect();
        if !given.iter().copied().eq(steps) {
            return order(format!("steps {given:?} were given"));
        }
        for entry in &folded.placed {
            let (producer, row) = (spec::producer_index(&entry.producer), entry.seq as u8);
            if entry.tgb.digest != spec::digest(producer, row) {
                return order(format!("step {} has another TGB's digest", entry.step));
            }
            let found = self
                .tgbs
                .iter_mut()
                .find(|tgb| tgb.producer == producer && tgb.row == row && tgb.step.is_none());
            match found {
                Some(tgb) => tgb.step = Some(entry.step as u8),
                None => return order(format!("p{producer} seq {row} got a step twice")),
            }
            // All lanes have the same number of TGBs here, so the turns rotate without gaps.
            let turn = entry.step as u8 % config.producers;
            if config.lanes && turn != producer {
                return order(format!("step {} went to p{producer}", entry.step));
            }
        }
        None
    }

    /// Checks that the manifest and the facts agree on producers and cursors.
    fn agree(&self, manifest: &Manifest) -> Option<Broken> {
        for (index, name) in (0..).zip(&self.names).filter(|(_, name)| name.epoch > 0) {
            let state = spec::producer(index).and_then(|name| manifest.producer(&name).cloned());
            let same = state.is_some_and(|state| {
                state.epoch == u64::from(name.epoch)
                    && state.nonce == spec::nonce(name.instance)
                    && state.began == u64::from(name.began)
                    && state.next_seq == u64::from(name.next)
                    && state.cursor == spec::cursor(name.next)
                    && state.finished == name.finished
            });
            if !same {
                let detail = format!("the manifest and what applied differ for p{index}");
                return Some(Broken::new(Property::ExactlyOnce, detail));
            }
        }
        None
    }

    /// Checks that the manifest and the facts agree on watermark, jobs and attempts.
    fn agree_on_jobs(&self, manifest: &Manifest) -> Option<Broken> {
        let mut same = manifest.watermark() == u64::from(self.watermark);
        for (index, job) in (0..).zip(&self.jobs) {
            let state = spec::job(index).and_then(|name| manifest.jobs().get(&name).cloned());
            same &= match state {
                None => !job.open,
                Some(state) => {
                    // A checkpoint of an attempt is at most at the head when the next attempt
                    // opened.
                    let over = job.heads.iter().filter(|head| **head < self.watermark);
                    let kept = (0..)
                        .zip(&job.attempts)
                        .skip(over.count())
                        .map(|(n, &(by, start))| (n, spec::attempt_id(by), start));
                    let attempts = state.attempts.iter();
                    job.open
                        && state.opened == u64::from(job.opened)
                        && attempts.map(|a| (a.number, a.id, a.start as u8)).eq(kept)
                }
            };
        }
        (!same).then(|| {
            let detail = "the manifest and what applied differ for watermark or jobs";
            Broken::new(Property::Watermark, detail.to_owned())
        })
    }
}
