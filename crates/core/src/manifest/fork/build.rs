//! The way from the parent's records to the state of a fork.
//!
//! A [`Border`] is made of the fold after the first record behind which all steps below the fork are assigned. The
//! entries that reach over it were committed there or, under `lanes`, earlier: a second fold passes their records to
//! [`Border::see`], and then [`Border::state`] has all that it needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ForkState;
use crate::guards;
use crate::ids::{ProducerName, Seq, StageName, Step, Version};
use crate::inputs::{LinkId, head_of};
use crate::limits::FORK_REPEATED_MAX;
use crate::manifest::entry::{BatchEntry, Entry};
use crate::manifest::rules::Validity;
use crate::manifest::stages::in_force;
use crate::manifest::state::{Again, Manifest, MixtureState, ProducerState};
use crate::manifest::{Folded, StepEntry};
use crate::order::MixtureSpec;
use crate::tgb::Digest;

/// The first batch of a producer with a step of the fork, if it is committed.
#[derive(Debug, Clone, Copy)]
struct Beyond {
    seq: Seq,
    /// The version that committed it.
    version: Version,
}

/// The entry of a producer that reaches over the border, and the state before it.
#[derive(Debug, Clone)]
struct Reaching {
    before: Arc<ProducerState>,
    /// The digests of its batches below the border.
    digests: Vec<Digest>,
}

/// The parts of the parent that the fork does not have, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftBehind {
    /// Producers that have finished, and finish again in the fork.
    pub finished: Vec<ProducerName>,
    /// Mixtures that begin later for all producers.
    pub mixtures: Vec<u64>,
    /// Stages that begin later for all producers, by name.
    pub stages: Vec<StageName>,
    /// Ranges of quarantined steps.
    pub quarantines: Vec<(Step, Step)>,
    /// The parent is sealed.
    pub sealed: bool,
    /// The number of open jobs of the parent.
    pub jobs: usize,
}

/// The border between the steps of the parent and those of a fork.
#[derive(Debug, Clone)]
pub struct Border {
    step: Step,
    /// The fold after the record of the border.
    m: Manifest,
    turn: u32,
    beyond: BTreeMap<ProducerName, Beyond>,
    reaching: BTreeMap<ProducerName, Reaching>,
}

impl Border {
    /// Returns the border at `step`, of the fold `m` after the first record behind which all steps below it are
    /// assigned, and of the effects of that record; without any for step 0 and the state before version 0.
    pub fn new(m: &Manifest, folded: Option<&Folded>, step: Step) -> Self {
        let placed = folded.map_or(&[][..], |folded| &folded.placed);
        let mut beyond = BTreeMap::new();
        let later = placed.iter().filter(|entry| entry.step >= step);
        for StepEntry {
            producer,
            seq,
            version,
            ..
        } in later.map(AsRef::as_ref)
        {
            let (seq, version) = (*seq, *version);
            let first = beyond
                .entry(producer.clone())
                .or_insert(Beyond { seq, version });
            if guards::forks_last_entry() {
                *first = Beyond { seq, version };
            }
        }
        for (name, queue) in m.lanes.queues() {
            if let Some((seq, waiting)) = queue.first().filter(|_| !guards::forks_without_waiting())
            {
                let (seq, version) = (*seq, waiting.version);
                beyond
                    .entry(name.clone())
                    .or_insert(Beyond { seq, version });
            }
        }
        Self {
            step,
            turn: turn(m, placed, step),
            m: m.clone(),
            beyond,
            reaching: BTreeMap::new(),
        }
    }

    /// Returns the versions of the records that [`Border::see`] must see, the oldest first.
    pub fn needed(&self) -> BTreeSet<Version> {
        self.beyond.values().map(|beyond| beyond.version).collect()
    }

    /// Takes the entries that reach over the border from the record that was folded into `before`.
    pub fn see(&mut self, before: &Manifest, folded: &Folded) {
        let version = before.next_version();
        let Some(record) = folded.record.as_ref().filter(|_| folded.void.is_none()) else {
            return;
        };
        let mut state = before.clone();
        for (entry, verdict) in record.entries.iter().zip(&folded.entries) {
            if *verdict != Ok(Validity::Applies) {
                continue;
            }
            if let Entry::Batch(batch) = entry {
                self.see_batch(&state, batch, version);
            }
            state.apply(entry, version);
        }
    }

    fn see_batch(&mut self, state: &Manifest, batch: &BatchEntry, version: Version) {
        let beyond = self.beyond.get(&batch.producer);
        let reaches = |b: &&Beyond| {
            b.version == version && (batch.first_seq..=batch.last_seq).contains(&b.seq)
        };
        let (Some(beyond), Some(before)) =
            (beyond.filter(reaches), state.producers.get(&batch.producer))
        else {
            return;
        };
        let below = batch
            .tgbs
            .iter()
            .take((beyond.seq - batch.first_seq) as usize);
        let reaching = Reaching {
            before: Arc::clone(before),
            digests: below.map(|tgb| tgb.digest).collect(),
        };
        self.reaching.insert(batch.producer.clone(), reaching);
    }

    /// Returns the state of the fork, and what it leaves behind. An error is a sentence about the reason why the
    /// parent cannot be continued there.
    pub fn state(&self) -> Result<(ForkState, LeftBehind), String> {
        let first = |name: &ProducerName, p: &ProducerState| {
            self.beyond
                .get(name)
                .map_or(p.next_seq, |beyond| beyond.seq)
        };
        let (mut changes, mut carried, mut all) =
            (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let mut stages = self.m.stages().clone();
        let mut newest_stage = 0;
        for changes in stages.unopened.values() {
            carried.extend(changes.mixtures.get(&0));
            all.extend(changes.mixtures.values().copied());
            newest_stage = newest_stage.max(in_force(&changes.stages, 0));
        }
        for (name, p) in self.m.producers() {
            newest_stage = newest_stage.max(in_force(&p.stages, first(name, p)));
            let own = self.changes(name, p);
            carried.extend(own.range(..=first(name, p)).map(|(_, id)| *id));
            all.extend(own.values().copied());
            changes.insert(name, own);
        }
        let later: BTreeSet<u64> = all.difference(&carried).copied().collect();
        // Stages begin in the order of their ids, so those that are carried are the first ones.
        let newest_stage = self.with_replacing(newest_stage);
        let later_stages = stages.all.split_off(&(newest_stage + 1));
        for changes in stages.unopened.values_mut() {
            changes.stages.retain(|_, id| *id <= newest_stage);
            changes.mixtures.retain(|_, id| carried.contains(id));
        }
        let mut producers = BTreeMap::new();
        for (name, p) in self.m.producers() {
            let first = first(name, p);
            let mut mixtures = changes.remove(name).unwrap_or_default();
            let own = guards::forks_own_mixtures();
            mixtures.retain(|seq, id| carried.contains(id) && (!own || *seq <= first));
            let mut state = self.producer(name, p, first, mixtures)?;
            let own_stages = &mut state.stages;
            own_stages.retain(|seq, id| *id <= newest_stage && (!own || *seq <= first));
            producers.insert(name.clone(), state);
        }
        let state = ForkState {
            format: 1,
            stream: self.m.stream_id(),
            step: self.step,
            turn: self.turn,
            producers,
            mixture: mixture(self.m.mixture(), &later)?,
            stages,
        };
        let stages = later_stages.into_values().map(|stage| stage.name);
        Ok((state, self.left_behind(later, stages.collect())))
    }

    /// Returns the newest stage to carry, if `newest` is one. Where another stage replaced it at the same number of some
    /// producer, the fold knows that number of the other one alone.
    fn with_replacing(&self, mut newest: u64) -> u64 {
        let opened = self.m.producers().map(|(_, p)| &p.stages);
        let unopened = self.m.stages().unopened.values().map(|own| &own.stages);
        let all: Vec<_> = opened.chain(unopened).collect();
        let replacing = |newest: u64, own: &BTreeMap<Seq, u64>| {
            let lacks = !own.values().any(|id| *id == newest);
            let later = own.values().copied().filter(|id| *id > newest);
            later.min().filter(|_| lacks && newest > 0)
        };
        while let Some(id) = all.iter().filter_map(|own| replacing(newest, own)).max() {
            newest = id;
        }
        newest
    }

    /// Returns the changes of the mixture of a producer. A fold keeps only those that are in force behind the last commit
    /// or later; the last mixture describes earlier ones, and so does the state before the entry that reaches over.
    fn changes(&self, name: &ProducerName, p: &ProducerState) -> BTreeMap<Seq, u64> {
        let spec = MixtureSpec::read(&self.m.mixture().spec).unwrap_or_default();
        let described = spec.mixtures.iter();
        let mut own: BTreeMap<Seq, u64> = described
            .filter_map(|mixture| Some((*mixture.from.get(name)?, mixture.id)))
            .collect();
        let before = self.reaching.get(name).map(|reaching| &reaching.before);
        own.extend(before.iter().flat_map(|before| before.mixtures.clone()));
        own.extend(p.mixtures.clone());
        own
    }

    /// Returns the state of one producer, whose first batch in the fork is `first`.
    fn producer(
        &self,
        name: &ProducerName,
        p: &ProducerState,
        first: Seq,
        mut mixtures: BTreeMap<Seq, u64>,
    ) -> Result<ProducerState, String> {
        let reaching = self.reaching.get(name);
        if self.beyond.contains_key(name) && reaching.is_none() {
            return Err(format!(
                "the entry of batch {first} of producer {name} was not found in the log"
            ));
        }
        let before = reaching.map_or(p, |reaching| &reaching.before);
        let earlier = before.again.as_ref().map(|again| again.digests.clone());
        let mut digests = earlier
            .filter(|_| !guards::forks_own_entry())
            .unwrap_or_default();
        digests.extend(reaching.iter().flat_map(|reaching| &reaching.digests));
        if digests.len() > FORK_REPEATED_MAX {
            return Err(format!(
                "producer {name} would have to make {} batches of its parents once more, and at most {FORK_REPEATED_MAX} are \
                 kept: fork at a step after the first commit of this stream",
                digests.len()
            ));
        }
        let made_from = first.saturating_sub(digests.len() as u64);
        if let Some((&in_force, _)) = mixtures.range(..=made_from).next_back() {
            mixtures = mixtures.split_off(&in_force);
        }
        let inputs = inputs(p, before, reaching.is_some());
        let again = Again { digests, inputs };
        Ok(ProducerState {
            opened: 0,
            began: 0,
            next_seq: first,
            cursor: before.cursor.clone(),
            finished: false,
            retired: true,
            mixtures,
            again: (again != Again::default()).then(|| Arc::new(again)),
            ..p.clone()
        })
    }

    fn left_behind(&self, mixtures: BTreeSet<u64>, stages: Vec<StageName>) -> LeftBehind {
        let finished = self.m.producers().filter(|(_, p)| p.finished);
        let ranges = self.m.quarantines().iter().filter(|q| q.lifted.is_none());
        LeftBehind {
            finished: finished.map(|(name, _)| name.clone()).collect(),
            mixtures: mixtures.into_iter().collect(),
            stages,
            quarantines: ranges.map(|q| (q.first, q.last)).collect(),
            sealed: self.m.sealed(),
            jobs: self.m.jobs().len(),
        }
    }
}

/// Returns the list in which a producer's place in the fork counts. Files that joined below the border joined at some
/// moment: the newest list of the parent says with which others.
fn inputs(p: &ProducerState, before: &ProducerState, reaches: bool) -> Option<LinkId> {
    let newest = if reaches && !guards::forks_old_list() {
        head_of(&p.cursor)
    } else {
        before.input_list()
    };
    newest.ok().flatten()
}

/// Returns the lane of `step`: that of its TGB, if it has one, else the lane that the parent waited for.
fn turn(m: &Manifest, placed: &[Arc<StepEntry>], step: Step) -> u32 {
    let of_step = placed.iter().find(|entry| entry.step == step);
    let named = &m.stream().producers;
    let lane = of_step.and_then(|entry| named.iter().position(|name| *name == entry.producer));
    match lane {
        Some(lane)
            if m.stream().order == crate::stream::StreamOrder::Lanes
                && !guards::forks_later_turn() =>
        {
            lane as u32
        }
        _ => m.lanes.turn().0,
    }
}

/// Returns the mixture of the fork: the parent's last one, without those that begin `later`.
fn mixture(last: &MixtureState, later: &BTreeSet<u64>) -> Result<MixtureState, String> {
    if later.is_empty() {
        return Ok(last.clone());
    }
    let mut spec = MixtureSpec::read(&last.spec)
        .map_err(|why| format!("the mixtures of the parent cannot be read: {why}"))?;
    spec.mixtures.retain(|mixture| !later.contains(&mixture.id));
    Ok(match spec.mixtures.last().map(|mixture| mixture.id) {
        Some(id) => MixtureState {
            id,
            spec: spec.to_json(),
        },
        None => MixtureState::default(),
    })
}
