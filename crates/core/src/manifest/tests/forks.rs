//! Forks of random logs at every step, and forks of those forks. Each is compared with what follows from the parent's
//! whole history: which batch of each producer is the first with a step of the fork, where its cursor stands, which
//! mixtures are in force, and, under `lanes`, which batch each later step has.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use serde_json::json;

use super::*;
use crate::cursor::Cursor;
use crate::guards::{self, Mutation};
use crate::ids::{Nonce, ProducerName, RequestId, Seq, Step, StreamId, Version};
use crate::inputs::LinkId;
use crate::manifest::fork::{Border, ForkState};
use crate::order::{MixtureSpec, NumberedMixture, Weight};
use crate::stream::{ParentStream, StreamConfig};
use crate::tgb::Digest;

/// One act of a random run: what, by which producer, and how large.
type Act = (u8, u8, u8);

/// A log that was folded record by record, and what is known of its history.
struct History {
    states: Vec<Manifest>,
    folded: Vec<Folded>,
    /// The producer and number of each step, from the stream's first on.
    steps: Vec<(ProducerName, Seq)>,
    /// The mixtures of this log and its ancestors: number, first batch of each producer, version in this log.
    mixtures: Vec<(u64, BTreeMap<ProducerName, Seq>, Version)>,
    files: u64,
}

fn digest(producer: &ProducerName, seq: Seq) -> Digest {
    Digest(Hash::sha256(format!("{producer} {seq}").as_bytes()).0)
}

fn list(files: u64) -> LinkId {
    LinkId {
        epoch: 1,
        nonce: Nonce([1; 8]),
        files,
        hash: Hash([files as u8; 32]),
    }
}

fn names() -> Vec<ProducerName> {
    ["a", "b", "c"].map(name).to_vec()
}

/// Cuts the batches of an entry where the mixture changes.
fn most(m: &Manifest, producer: &ProducerName, tgbs: u64) -> u64 {
    let next = m.producer(producer).unwrap().next_seq;
    let now = m.mixture_at(producer, next);
    let same = (1..tgbs).take_while(|n| m.mixture_at(producer, next + n) == now);
    same.count() as u64 + 1
}

impl History {
    fn new(
        start: Manifest,
        mixtures: Vec<(u64, BTreeMap<ProducerName, Seq>, Version)>,
        files: u64,
    ) -> Self {
        Self {
            states: vec![start],
            folded: Vec::new(),
            steps: Vec::new(),
            mixtures,
            files,
        }
    }

    fn head(&self) -> &Manifest {
        self.states.last().unwrap()
    }

    fn bench(&self) -> Bench {
        Bench {
            m: self.head().clone(),
            records: Vec::new(),
        }
    }

    fn fold(&mut self, entries: Vec<Entry>) {
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
    fn batch(&self, m: &Manifest, producer: &ProducerName, tgbs: u64) -> Entry {
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

    fn is_open(&self, producer: &ProducerName) -> bool {
        let state = self.head().producer(producer);
        state.is_some_and(|p| !p.retired && !p.finished)
    }

    fn act(&mut self, (what, which, size): Act) {
        let names = names();
        let producer = &names[usize::from(which) % 3];
        if !self.is_open(producer) {
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

    fn commit(&mut self, all: &[(&ProducerName, u64)]) {
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

    fn set_mixture(&mut self, which: usize, size: u64) {
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
        })]);
    }

    /// Returns the state of the fork at `step`, as a log that is read twice gives it, and its version.
    fn fork(&self, step: Step) -> (ForkState, Option<usize>) {
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
    fn child(&self, state: &ForkState) -> Manifest {
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

/// Fails with a text unless a condition holds.
fn ensure(holds: bool, text: impl FnOnce() -> String) -> Result<(), TestCaseError> {
    if holds {
        Ok(())
    } else {
        Err(TestCaseError::fail(text()))
    }
}

/// Checks one fork of `h` by the history alone, and returns its beginning.
fn check_state(h: &History, step: Step) -> Result<(ForkState, Manifest, usize), TestCaseError> {
    let first_step = h.states[0].stream().first_step();
    let (state, version) = h.fork(step);
    let child = h.child(&state);
    let at = version.map_or(&h.states[0], |v| &h.states[v + 1]);
    let below = &h.steps[..(step - first_step) as usize];
    let firsts: BTreeMap<&ProducerName, Seq> = at
        .producers()
        .map(|(name, _)| {
            let base = h.states[0].producer(name).map_or(0, |p| p.next_seq);
            let own = below.iter().filter(|(producer, _)| producer == name);
            (name, base + own.count() as u64)
        })
        .collect();
    let set = |id: &&(u64, BTreeMap<ProducerName, Seq>, Version)| {
        version.is_some_and(|v| id.2 <= v as u64)
    };
    let known: Vec<_> = h
        .mixtures
        .iter()
        .filter(|m| m.2 == Version::MAX || set(m))
        .collect();
    let begins = |(_, from, _): &(u64, BTreeMap<ProducerName, Seq>, Version)| {
        from.iter()
            .any(|(name, seq)| firsts.get(name).is_some_and(|first| seq <= first))
    };
    let carried: Vec<_> = known.into_iter().filter(|m| begins(m)).collect();
    for (name, p) in child.producers() {
        let (first, made) = (firsts[name], p.made_from());
        ensure(p.next_seq == first, || {
            format!("{name} begins with {} and not {first}", p.next_seq)
        })?;
        let row = p.cursor.0.get("row").and_then(serde_json::Value::as_u64);
        ensure(row.unwrap_or(0) == made, || {
            format!("{name}: cursor at {row:?}, made from {made}")
        })?;
        let digests = p
            .again
            .as_ref()
            .map(|again| again.digests.clone())
            .unwrap_or_default();
        let parents = (made..first).map(|seq| digest(name, seq));
        ensure(digests.into_iter().eq(parents), || {
            format!("{name}: other digests")
        })?;
        let newest = at.producer(name).unwrap();
        if newest.next_seq > first {
            let list = newest.input_list().unwrap();
            ensure(p.input_list().unwrap() == list, || {
                format!("{name}: an old input list")
            })?;
        }
        for seq in made..first + 30 {
            let changes = carried
                .iter()
                .filter_map(|(id, from, _)| Some((*from.get(name)?, *id)));
            let force = changes.filter(|(from, _)| *from <= seq).max();
            let expected = force.map_or(0, |(_, id)| id);
            let found = child.mixture_at(name, seq);
            ensure(found == expected, || {
                format!("{name} {seq}: mixture {found}, not {expected}")
            })?;
        }
    }
    let last = carried.iter().map(|m| m.0).max().unwrap_or(0);
    ensure(child.mixture().id == last, || {
        "another last mixture".to_owned()
    })?;
    Ok((state, child, version.map_or(0, |v| v + 1)))
}

/// Goes on in a fork with the parent's batches, opened anew and in other entries, and compares the steps.
fn check_continued(
    h: &History,
    step: Step,
    child: &Manifest,
    sizes: &[u8],
) -> Result<(), TestCaseError> {
    let rest = h.steps[(step - h.states[0].stream().first_step()) as usize..].to_vec();
    let lanes = child.stream().order == StreamOrder::Lanes;
    let mut next = History::new(child.clone(), Vec::new(), 1);
    for producer in names() {
        let finished = h.head().producer(&producer).is_some_and(|p| p.finished);
        if finished
            || child.producer(&producer).is_some()
            || rest.iter().any(|(name, _)| *name == producer)
        {
            // Opened twice: nothing that is made once more is forgotten.
            for _ in 0..2 {
                let opened = next.bench().opened(producer.as_str());
                next.fold(vec![opened]);
            }
        }
    }
    for (name, p) in child.producers() {
        let opened = next.head().producer(name).unwrap();
        ensure(opened.again == p.again, || {
            format!("{name}: forgotten at an opening")
        })?;
    }
    let ends = |name: &ProducerName| {
        let finished = h
            .head()
            .producer(name)
            .is_some_and(|p| p.finished && h.head().waiting_of(name) == 0);
        finished.then(|| h.head().producer(name).unwrap().next_seq)
    };
    let mut left: BTreeMap<ProducerName, u64> = BTreeMap::new();
    for (name, _) in &rest {
        *left.entry(name.clone()).or_default() += 1;
    }
    if lanes {
        // In any order: the turns decide.
        for (n, producer) in names().iter().rev().enumerate() {
            while let Some(count) = left.get(producer).copied().filter(|count| *count > 0) {
                let size = u64::from(sizes[n % sizes.len()]) % 4 + 1;
                let size = most(next.head(), producer, size.min(count));
                next.commit(&[(producer, size)]);
                left.insert(producer.clone(), count - size);
            }
            if next.is_open(producer) && ends(producer).is_some() {
                let finish = next.bench().finish(producer.as_str());
                next.fold(vec![finish]);
            }
        }
    } else {
        for (producer, _) in &rest {
            next.commit(&[(producer, 1)]);
        }
    }
    let same = next.steps.len().min(rest.len());
    ensure(next.steps[..same] == rest[..same], || {
        format!("{:?}\nare not {rest:?}", next.steps)
    })?;
    ensure(next.steps.len() >= rest.len(), || {
        format!("only {} of {} steps", next.steps.len(), rest.len())
    })?;
    let (version, bytes) = next.head().snapshot().map_or((0, Vec::new()), |s| s);
    if !bytes.is_empty() {
        let stream = std::sync::Arc::new(child.stream().clone());
        let back = Manifest::from_snapshot(stream, &bytes, version).unwrap();
        assert_eq!(&back, next.head());
    }
    Ok(())
}

fn check(
    order: StreamOrder,
    acts: &[Act],
    again: &[Act],
    sizes: &[u8],
) -> Result<(), TestCaseError> {
    let config = config(order, &["a", "b", "c"]);
    let json = config.to_json();
    let mut h = History::new(Manifest::new(config, &json), Vec::new(), 1);
    for act in acts {
        h.act(*act);
    }
    for step in 0..=h.head().next_step() {
        let (_, child, version) = check_state(&h, step)?;
        check_continued(&h, step, &child, sizes)?;
        // A fork of some forks, at each of their steps.
        if (step + u64::from(sizes[0])) % 4 != 0 {
            continue;
        }
        let inherited = h.mixtures.iter().filter(|m| {
            (m.2 == Version::MAX || m.2 < version as u64)
                && child.mixture().id >= m.0
                && MixtureSpec::read(&child.mixture().spec)
                    .unwrap()
                    .mixtures
                    .iter()
                    .any(|kept| kept.id == m.0)
        });
        let inherited = inherited
            .map(|(id, from, _)| (*id, from.clone(), Version::MAX))
            .collect();
        let mut second = History::new(child, inherited, 1);
        for act in again {
            second.act(*act);
        }
        for step in step..=second.head().next_step() {
            let (_, child, _) = check_state(&second, step)?;
            check_continued(&second, step, &child, sizes)?;
        }
    }
    Ok(())
}

fn run(cases: u32) -> Result<(), String> {
    let acts = |most| proptest::collection::vec(any::<Act>(), 1..most);
    let sizes = proptest::collection::vec(any::<u8>(), 3);
    let order = prop_oneof![Just(StreamOrder::Arrival), Just(StreamOrder::Lanes)];
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    });
    let world = (order, acts(16), acts(7), sizes);
    let ran = runner.run(&world, |(order, first, again, sizes)| {
        check(order, &first, &again, &sizes)
    });
    ran.map_err(|why| why.to_string())
}

#[test]
fn a_fork_of_a_random_log_goes_on_where_the_parent_stood() {
    run(48).unwrap();
}

#[test]
fn each_mistake_in_forks_is_found() {
    for mutation in Mutation::FORKS {
        guards::set(Some(mutation));
        let found = run(400);
        guards::set(None);
        assert!(found.is_err(), "{mutation:?} was not found");
    }
}
