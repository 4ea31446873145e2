//! Under `lanes` the order is a function of what each lane holds: for any interleaving, restarts and seals.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::ids::{ProducerName, Seq, Version};

/// The TGBs of each lane, and whether it has finished.
type Contents = Vec<(u64, bool)>;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// The order by the definition, turn by turn; and the lane that stops it.
fn by_definition(contents: &Contents) -> (Vec<(usize, Seq)>, Option<usize>) {
    let (mut order, mut taken) = (Vec::new(), vec![0; contents.len()]);
    let ended =
        |taken: &[u64]| (0..contents.len()).all(|l| contents[l].1 && taken[l] == contents[l].0);
    for turn in (0..contents.len()).cycle() {
        if ended(&taken) {
            return (order, None);
        }
        let (count, finished) = contents[turn];
        if taken[turn] < count {
            order.push((turn, taken[turn]));
            taken[turn] += 1;
        } else if !finished {
            return (order, Some(turn));
        }
    }
    unreachable!("a cycle has no end")
}

struct Play {
    b: Bench,
    left: Vec<(u64, bool)>,
    steps: Vec<(usize, Seq)>,
    /// Turn by turn: since which version the same lane is awaited for the same step.
    since: Version,
}

fn lane_of(name: &ProducerName) -> usize {
    NAMES.iter().position(|n| *n == name.as_str()).unwrap()
}

impl Play {
    fn new(contents: &Contents) -> Self {
        let mut b = Bench::new(StreamOrder::Lanes, &NAMES[..contents.len()]);
        for name in &NAMES[..contents.len()] {
            b.one(b.opened(name)).unwrap();
        }
        Self {
            b,
            left: contents.clone(),
            steps: Vec::new(),
            since: 0,
        }
    }

    fn fold(&mut self, entries: Vec<Entry>) {
        let m = &self.b.m;
        let before = (m.awaited_lane().cloned(), m.next_step());
        let version = m.next_version();
        let folded = self.b.fold(entries);
        assert!(folded.entries.iter().all(Result::is_ok), "{folded:?}");
        let placed = folded.placed.iter();
        self.steps
            .extend(placed.map(|s| (lane_of(&s.producer), s.seq)));
        let m = &self.b.m;
        let Some(awaited) = m.awaited() else { return };
        if before != (Some(awaited.lane.clone()), m.next_step()) && before.0.is_some() {
            self.since = version;
        }
        assert_eq!(
            awaited.since, self.since,
            "since when {} is awaited",
            awaited.lane
        );
    }

    /// One move of a lane: some TGBs, a restart, or its finish once it has given all.
    fn act(&mut self, lane: usize, tgbs: u64, restart: bool) {
        let name = NAMES[lane];
        let (left, finishes) = self.left[lane];
        if restart && !self.b.m.producer(&super::name(name)).unwrap().finished {
            self.fold(vec![self.b.opened(name)]);
        }
        let tgbs = tgbs.min(left);
        if tgbs > 0 {
            self.fold(vec![Entry::Batch(self.b.batch(name, tgbs))]);
            self.left[lane].0 -= tgbs;
        } else if left == 0 && finishes {
            self.fold(vec![self.b.finish(name)]);
            self.left[lane].1 = false;
        }
    }

    fn play_on(mut self, moves: &[(usize, u64, bool)]) -> Self {
        for &(lane, tgbs, restart) in moves {
            self.act(lane % self.left.len(), tgbs, restart);
            let (version, bytes) = self.b.m.snapshot().unwrap();
            let stream = std::sync::Arc::new(self.b.m.stream().clone());
            assert_eq!(
                Manifest::from_snapshot(stream, &bytes, version).unwrap(),
                self.b.m
            );
        }
        // The TGBs that the moves have left, the last lane first.
        for lane in (0..self.left.len()).rev() {
            while self.left[lane].0 > 0 || self.left[lane].1 {
                self.act(lane, 3, false);
            }
        }
        self
    }
}

fn moves() -> impl Strategy<Value = Vec<(usize, u64, bool)>> {
    prop::collection::vec((0..5_usize, 0..4_u64, prop::bool::weighted(0.1)), 0..40)
}

proptest! {
    #[test]
    fn the_order_is_a_function_of_the_content_of_the_lanes(
        contents in prop::collection::vec((0..9_u64, any::<bool>()), 1..5),
        moves in moves(),
    ) {
        let (order, stops) = by_definition(&contents);
        let play = Play::new(&contents).play_on(&moves);
        prop_assert_eq!(&play.steps, &order);
        let m = &play.b.m;
        let total: u64 = contents.iter().map(|(count, _)| count).sum();
        prop_assert_eq!(m.waiting() as u64, total - order.len() as u64);
        if let Some(lane) = stops {
            prop_assert_eq!(m.awaited_lane(), Some(&name(NAMES[lane])));
            prop_assert_eq!(m.end(), None);
        } else {
            prop_assert_eq!(m.awaited(), None);
            prop_assert_eq!(m.end(), Some(total), "the last finish ends the stream");
        }
    }

    /// As long as no lane finishes, it is known which batches of each lane come from a step on.
    #[test]
    fn the_first_batches_from_a_step_on_are_foreseen(
        contents in prop::collection::vec((0..9_u64, any::<bool>()), 1..5),
        moves in moves(),
        ahead in 0..40_u64,
    ) {
        let mut play = Play::new(&contents).play_on(&moves);
        let step = play.b.m.next_step() + ahead;
        let foreseen = play.b.m.first_seqs_from(step).unwrap();
        let mut firsts = BTreeMap::new();
        for (lane, _) in contents.iter().enumerate().filter(|(_, (_, finished))| !finished) {
            for placed in play.b.commit(NAMES[lane], 60).placed {
                if placed.step >= step {
                    firsts.entry(placed.producer.clone()).or_insert(placed.seq);
                }
            }
        }
        for (name, first) in firsts {
            prop_assert_eq!(foreseen[&name], first, "{} from step {}", name, step);
        }
        let taken = play.b.m.next_step().checked_sub(1);
        prop_assert_eq!(taken.and_then(|step| play.b.m.first_seqs_from(step)), None);
    }

    /// A seal at any moment ends the stream at the first undecided turn; undone, nothing is lost.
    #[test]
    fn a_seal_stops_at_the_contiguous_head_and_can_be_undone(
        contents in prop::collection::vec((0..9_u64, any::<bool>()), 1..5),
        moves in moves(),
        at in any::<prop::sample::Index>(),
    ) {
        let mut play = Play::new(&contents);
        let at = at.index(moves.len() + 1);
        for &(lane, tgbs, _) in &moves[..at] {
            play.act(lane % contents.len(), tgbs, false);
        }
        let committed = play.b.m.waiting() as u64 + play.b.m.next_step();
        if play.b.m.end().is_none() {
            let head = play.b.m.next_step();
            play.b.one(Entry::Sealed(Sealed { request: request(1), reason: String::new() })).unwrap();
            prop_assert_eq!(play.b.m.end(), Some(head));
            prop_assert_eq!(play.b.m.awaited(), None, "nobody is waited for");
            // Finishing is still possible, and places nothing.
            for (lane, text) in NAMES.iter().enumerate().take(contents.len()) {
                if play.left[lane] == (0, true) {
                    play.fold(vec![play.b.finish(text)]);
                    play.left[lane].1 = false;
                }
            }
            prop_assert_eq!(play.b.m.next_step(), head);
            let version = play.b.m.next_version();
            let undone = play.b.fold(vec![Entry::Unsealed(Unsealed { request: request(2), reason: String::new() })]);
            play.steps.extend(undone.placed.iter().map(|s| (lane_of(&s.producer), s.seq)));
            play.since = play.b.m.awaited().map_or(play.since, |awaited| awaited.since);
            prop_assert!(play.since <= version);
            prop_assert_eq!(play.b.m.waiting() as u64 + play.b.m.next_step(), committed);
        }
        let play = play.play_on(&moves[at..]);
        prop_assert_eq!(play.steps, by_definition(&contents).0);
    }
}

#[test]
fn a_slow_lane_is_named_with_the_version_since_which_it_is_awaited() {
    let mut b = Bench::new(StreamOrder::Lanes, &["a", "b"]);
    b.one(b.opened("a")).unwrap();
    b.one(b.opened("b")).unwrap();
    let awaited = |b: &Bench| b.m.awaited().map(|a| (a.lane.to_string(), a.since));
    assert_eq!(awaited(&b), Some(("a".into(), 0)), "from the beginning");
    b.commit("b", 1);
    assert_eq!(awaited(&b), Some(("a".into(), 0)));
    b.commit("a", 3);
    assert_eq!(awaited(&b), Some(("b".into(), 3)));
    b.commit("a", 5);
    b.one(b.opened("b")).unwrap();
    assert_eq!(
        awaited(&b),
        Some(("b".into(), 3)),
        "taking it over changes nothing"
    );
    b.one(b.finish("b")).unwrap();
    assert_eq!(
        awaited(&b),
        Some(("a".into(), 6)),
        "passed over from here on"
    );
    assert_eq!(b.m.waiting(), 0);
}

/// Thousands of lanes that have finished are not walked for each step of the last one.
#[test]
fn finished_lanes_are_passed_over_at_once() {
    let names: Vec<String> = (0..4096).map(|n| format!("l{n}")).collect();
    let refs: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut b = Bench::new(StreamOrder::Lanes, &refs);
    for some in refs.chunks(512) {
        let entries = some.iter().map(|n| b.opened(n)).collect();
        b.fold(entries);
    }
    for some in refs[1..].chunks(512) {
        let entries = some.iter().map(|n| b.finish(n)).collect();
        b.fold(entries);
    }
    let lanes: BTreeSet<_> = (0..20)
        .flat_map(|_| b.commit("l0", 200).placed)
        .map(|s| s.producer.clone())
        .collect();
    assert_eq!((b.m.next_step(), lanes.len()), (4000, 1));
    b.one(b.finish("l0")).unwrap();
    assert_eq!(b.m.end(), Some(4000));
}
