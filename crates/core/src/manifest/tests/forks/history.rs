//! A random log, and what is known of its history.

use std::collections::BTreeMap;

use serde_json::json;

use super::super::*;
use crate::cursor::Cursor;
use crate::ids::{Nonce, ProducerName, RequestId, Seq, Step, StreamId, Version};
use crate::inputs::LinkId;
use crate::manifest::fork::{Border, ForkState};
use crate::order::{MixtureSpec, NumberedMixture, Weight};
use crate::stream::{ParentStream, StreamConfig};
use crate::tgb::Digest;

/// A mixture: its number, the first batch of each producer, and the version in this log.
pub(super) type Change = (u64, BTreeMap<ProducerName, Seq>, Version);

/// One act of a random run: what, by which producer, and how large.
pub(super) type Act = (u8, u8, u8);

/// A log that was folded record by record, and what is known of its history.
pub(super) struct History {
    pub(super) states: Vec<Manifest>,
    pub(super) folded: Vec<Folded>,
    /// The producer and number of each step, from the stream's first on.
    pub(super) steps: Vec<(ProducerName, Seq)>,
    /// The mixtures of this log and its ancestors: number, first batch of each producer, version in this log.
    pub(super) mixtures: Vec<Change>,
    /// The stages of this log and its ancestors, in the form of the mixtures.
    pub(super) stages: Vec<Change>,
    /// Producers that opened behind a stage that does not name them, with the stage in which they began.
    pub(super) late: BTreeMap<ProducerName, u64>,
    pub(super) files: u64,
}

pub(super) fn digest(producer: &ProducerName, seq: Seq) -> Digest {
    Digest(Hash::sha256(format!("{producer} {seq}").as_bytes()).0)
}

pub(super) fn list(files: u64) -> LinkId {
    LinkId {
        epoch: 1,
        nonce: Nonce([1; 8]),
        files,
        hash: Hash([files as u8; 32]),
    }
}

pub(super) fn names() -> Vec<ProducerName> {
    ["a", "b", "c"].map(name).to_vec()
}

/// Cuts the batches of an entry where the mixture or the stage changes.
pub(super) fn most(m: &Manifest, producer: &ProducerName, tgbs: u64) -> u64 {
    let next = m.producer(producer).unwrap().next_seq;
    let at = |seq| (m.mixture_at(producer, seq), m.stage_at(producer, seq));
    let same = (1..tgbs).take_while(|n| at(next + n) == at(next));
    same.count() as u64 + 1
}

impl History {
    pub(super) fn new(start: Manifest, mixtures: Vec<Change>, files: u64) -> Self {
        let inherited = start.stages().all.keys().map(|id| {
            let of = |name: ProducerName| {
                let own = start.stages_of(&name);
                let seq = own.iter().find(|(_, of)| *of == id)?.0;
                let listed =
                    start.producer(&name).is_some() || start.stages().unopened.contains_key(&name);
                listed.then_some((name, *seq))
            };
            (
                *id,
                names().into_iter().filter_map(of).collect(),
                Version::MAX,
            )
        });
        let stages = inherited.collect();
        Self {
            states: vec![start],
            folded: Vec::new(),
            steps: Vec::new(),
            mixtures,
            stages,
            late: BTreeMap::new(),
            files,
        }
    }

    pub(super) fn head(&self) -> &Manifest {
        self.states.last().unwrap()
    }

    pub(super) fn bench(&self) -> Bench {
        Bench {
            m: self.head().clone(),
            records: Vec::new(),
        }
    }

    pub(super) fn fold(&mut self, entries: Vec<Entry>) {
        let mut bench = self.bench();
        let folded = bench.fold(entries);
        let valid = folded.entries.iter().all(Result::is_ok);
        assert!(valid, "{:?}", folded.entries);
        let placed = folded.placed.iter();
        self.steps
            .extend(placed.map(|s| (s.producer.clone(), s.seq)));
        self.states.push(bench.m);
        self.folded.push(folded);
    }

    /// Returns an entry of `tgbs` batches of a producer that is open in `m`.
    pub(super) fn batch(&self, m: &Manifest, producer: &ProducerName, tgbs: u64) -> Entry {
        let bench = Bench {
            m: m.clone(),
            records: Vec::new(),
        };
        let mut entry = bench.batch(producer.as_str(), tgbs);
        for (seq, tgb) in (entry.first_seq..).zip(&mut entry.tgbs) {
            tgb.digest = digest(producer, seq);
        }
        entry.cursor = Cursor(json!({ "row": entry.last_seq + 1, "inputs": list(self.files) }));
        Entry::Batch(entry)
    }

    pub(super) fn is_open(&self, producer: &ProducerName) -> bool {
        let state = self.head().producer(producer);
        state.is_some_and(|p| !p.retired && !p.finished)
    }

    pub(super) fn act(&mut self, (what, which, size): Act) {
        let names = names();
        let producer = &names[usize::from(which) % 3];
        if !self.is_open(producer) {
            let is_new = self.head().producer(producer).is_none();
            let named = |stage: &Change| stage.1.contains_key(producer);
            let newest = self.stages.last().filter(|_| is_new);
            if let Some((id, ..)) = newest.filter(|_| !self.stages.iter().any(named)) {
                self.late.insert(producer.clone(), *id);
            }
            if self.head().producer(producer).is_none_or(|p| !p.finished) {
                let opened = self.bench().opened(producer.as_str());
                self.fold(vec![opened]);
            }
            return;
        }
        match what % 8 {
            0..=3 => self.commit(&[(producer, u64::from(size) % 5 + 1)]),
            4 => {
                // Several entries of several producers in one record.
                let other = &names[(usize::from(which) + 1) % 3];
                let mut entries = vec![(producer, u64::from(size) % 3 + 1), (producer, 2)];
                if self.is_open(other) {
                    entries.push((other, 3));
                }
                entries.push((producer, 1));
                self.commit(&entries);
            }
            5 => self.files += 1,
            6 if size % 3 == 0 => self.set_stage(u64::from(size)),
            6 => self.set_mixture(usize::from(which), u64::from(size)),
            _ if size % 8 == 0 => {
                let finish = self.bench().finish(producer.as_str());
                self.fold(vec![finish]);
            }
            _ => {
                let opened = self.bench().opened(producer.as_str());
                self.fold(vec![opened]);
            }
        }
    }

    pub(super) fn commit(&mut self, all: &[(&ProducerName, u64)]) {
        let mut bench = self.bench();
        let mut entries = Vec::new();
        for (producer, tgbs) in all {
            let entry = self.batch(&bench.m, producer, most(&bench.m, producer, *tgbs));
            let version = bench.m.next_version();
            bench.m.apply(&entry, version);
            entries.push(entry);
        }
        self.fold(entries);
    }

    pub(super) fn set_mixture(&mut self, which: usize, size: u64) {
        let m = self.head();
        let id = m.mixture().id + 1;
        let mut from = BTreeMap::new();
        for (n, producer) in names().iter().enumerate() {
            let Some(p) = m.producer(producer).filter(|p| !p.finished) else {
                continue;
            };
            // Not of every producer.
            if n == which % 3 || size.is_multiple_of(2) {
                let last = p.mixtures.keys().next_back().copied().unwrap_or(0);
                let ahead = (size + n as u64 * 5) % 9;
                from.insert(producer.clone(), (p.next_seq + ahead).max(last + 1));
            }
        }
        if from.is_empty() {
            return;
        }
        let numbered = NumberedMixture {
            id,
            weights: [("web".to_owned(), Weight::ONE)].into(),
            from: from.clone(),
        };
        let spec = MixtureSpec::read(&m.mixture().spec)
            .unwrap()
            .with(numbered, 0);
        self.mixtures.push((id, from.clone(), m.next_version()));
        let request = RequestId([self.mixtures.len() as u8; 16]);
        self.fold(vec![Entry::Mixture(Mixture {
            request,
            id,
            from,
            spec: spec.to_json(),
            why: None,
        })]);
    }

    fn set_stage(&mut self, size: u64) {
        let m = self.head();
        let id = m.stages().newest() + 1;
        let lanes = m.stream().order == StreamOrder::Lanes;
        let mut from = BTreeMap::new();
        for (n, producer) in names().iter().enumerate() {
            let next = match m.producer(producer) {
                Some(p) if p.finished => continue,
                Some(p) => p.next_seq,
                None if lanes => 0,
                None => continue,
            };
            let last = m.stages_of(producer).keys().next_back().copied();
            let ahead = (size + n as u64 * 5) % 7;
            from.insert(producer.clone(), (next + ahead).max(last.unwrap_or(0)));
        }
        self.stages.push((id, from.clone(), m.next_version()));
        let stage = Stage {
            request: RequestId([100 + self.stages.len() as u8; 16]),
            id,
            name: "long".parse().unwrap(),
            from,
            rows_per_slice: 2,
            seq_len: 8,
            form: String::new(),
            fingerprint: Hash([id as u8; 32]),
            mixture: None,
        };
        self.fold(vec![Entry::Stage(stage)]);
    }

    /// Returns the state of the fork at `step`, as a log that is read twice gives it, and its version.
    pub(super) fn fork(&self, step: Step) -> (ForkState, Option<usize>) {
        let first = self.states[0].stream().first_step();
        let version = (0..self.folded.len()).find(|v| self.states[v + 1].next_step() >= step);
        let version = version.filter(|_| step > first);
        let mut border = match version {
            Some(v) => Border::new(&self.states[v + 1], Some(&self.folded[v]), step),
            None => Border::new(&self.states[0], None, step),
        };
        for v in border.needed() {
            border.see(&self.states[v as usize], &self.folded[v as usize]);
        }
        (border.state().unwrap().0, version)
    }

    /// Opens the stream of a fork.
    pub(super) fn child(&self, state: &ForkState) -> Manifest {
        let parent = self.states[0].stream();
        let bytes = state.to_json();
        let named = ParentStream {
            stream: parent.stream_id,
            root: "memory://parent".to_owned(),
            step: state.step,
            version: (state.step > 0).then_some(1),
            record: Hash([1; 32]),
            view: Hash([2; 32]),
            state: Hash::sha256(&bytes),
        };
        let mut own = parent.clone();
        let random = Hash::sha256(format!("{}", own.stream_id).as_bytes()).0;
        own.stream_id = StreamId::from_random(std::array::from_fn(|n| random[n]));
        own.parent = Some(named.clone());
        own.format = 2;
        own.check().unwrap();
        let json = own.to_json();
        let read = ForkState::from_json(&bytes, &named).unwrap();
        assert_eq!(StreamConfig::from_json(&json, "stream.json").unwrap(), own);
        Manifest::forked(own, &json, read).unwrap()
    }
}
