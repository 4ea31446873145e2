//! Drivers in histories of restarts, abandoned attempts and changes by people: the check passes every change of a correct
//! driver, and finds each deliberate mistake.

use proptest::prelude::*;

use super::stored::{entry, settings};
use super::*;
use crate::ids::{AttemptId, RequestId, Step};
use crate::manifest::Entry;
use crate::manifest::entry::{AttemptOpened, JobOpened, Mixture, Parent};
use crate::manifest::testing::{Bench, request};
use crate::proof::{History, JobRecord, Leg};
use crate::stream::StreamOrder;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// Goes on from the newest change, although its steps were abandoned.
    AbandonedChange,
    /// Uses steps of an attempt behind the checkpoint with which the next one went on.
    AbandonedSteps,
    /// Uses steps of the mixture before.
    OlderMixture,
    /// Uses the steps of the change before once more.
    Twice,
    /// Goes on with the rewards of the change before that.
    StaleReward,
    /// Says that it read fewer pairs of step and coordinate than there are.
    FewerPairs,
    /// Says that it leaves out more steps at the beginning than it did.
    LongerWarmUp,
    /// Gives a weight to a source that its reason does not have.
    AnotherSource,
}

/// One turn of a history.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Commit(u64),
    Train(u64),
    Restart(u64),
    Person(u64),
    Drive,
}

struct World {
    bench: Bench,
    history: History,
    mixtures: MixtureHistory,
    /// Steps that the newest attempt has trained.
    reached: Step,
    mistake: Mistake,
    changes: Vec<u64>,
}

impl World {
    fn new(mistake: Mistake) -> Self {
        let mut world = Self {
            bench: Bench::new(StreamOrder::Arrival, &[]),
            history: History::default(),
            mixtures: MixtureHistory::default(),
            reached: 0,
            mistake,
            changes: Vec::new(),
        };
        world.fold(Entry::JobOpened(JobOpened {
            request: request(1),
            job: "llm".parse().unwrap(),
            start: 0,
            keep: 2,
            holds: true,
            paces: true,
            lease_seconds: None,
        }));
        world.fold(world.bench.opened("p0"));
        world.attempt(None);
        world
    }

    fn fold(&mut self, entry: Entry) {
        let version = self.bench.m.next_version();
        let folded = self.bench.fold(vec![entry]);
        assert!(folded.entries[0].is_ok(), "{folded:?}");
        self.history.note(version, &folded);
        self.mixtures.note(version, &folded);
    }

    fn record(&self) -> &JobRecord {
        self.history.job(&"llm".parse().unwrap(), None).unwrap()
    }

    fn attempt(&mut self, from: Option<(u64, Step)>) {
        let attempts = &self.record().attempts;
        let opened = AttemptOpened {
            job: "llm".parse().unwrap(),
            opened: 0,
            attempt: AttemptId([attempts.len() as u8; 16]),
            predecessor: attempts.last().map(|a| a.state.id),
            parent: from.map(|(attempt, step)| Parent { attempt, step }),
            inherited: None,
            start: from.map_or(0, |(_, step)| step),
            dp_size: 1,
            mesh: Vec::new(),
        };
        self.fold(Entry::AttemptOpened(opened));
        self.reached = from.map_or(0, |(_, step)| step);
    }

    fn turn(&mut self, turn: Turn) {
        match turn {
            Turn::Commit(n) => {
                // An entry has batches of one mixture.
                for _ in 0..n {
                    let batch = self.bench.batch("p0", 1);
                    self.fold(Entry::Batch(batch));
                }
            }
            Turn::Train(n) => self.reached = (self.reached + n).min(self.bench.m.next_step()),
            Turn::Restart(back) => {
                let last = self.record().attempts.last().unwrap().state.clone();
                let step = self.reached.saturating_sub(back).max(last.start);
                self.attempt(Some((last.number, step)));
            }
            Turn::Person(after) => self.person(after),
            Turn::Drive => self.drive(),
        }
    }

    /// Returns a change that begins after some batches.
    fn entry(&self, after: u64, why: &Why) -> Mixture {
        let state = self.bench.m.producer(&"p0".parse().unwrap()).unwrap();
        let last = state.mixtures.keys().next_back().copied().unwrap_or(0);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.bench.m.next_version().to_le_bytes());
        Mixture {
            request: RequestId(id),
            ..entry(&self.bench, 1, (state.next_seq + after).max(last), why)
        }
    }

    fn person(&mut self, after: u64) {
        let set = Mixture {
            why: None,
            ..self.entry(after, &reason())
        };
        self.fold(Entry::Mixture(set));
    }

    fn drive(&mut self) {
        let settings = settings();
        let record = self.record().clone();
        let plan = Plan::new(&self.mixtures, &self.bench.m, &record, &settings);
        let Some((plan, steps)) = self.mistaken(plan, &record) else {
            return;
        };
        let mut sums = WindowSums::default();
        for step in steps.clone() {
            let attempt = plan.legs.iter().rev().find(|leg| leg.from <= step);
            sums.add(&[values(step, attempt.map_or(0, |leg| leg.attempt))]);
        }
        let known = [("web", 0.5), ("code", 0.25), ("math", 0.25)];
        let known: Vec<KnownSource> = (0..)
            .zip(known)
            .map(|(number, (name, share))| KnownSource {
                number,
                name: name.into(),
                share,
            })
            .collect();
        let read = steps.end - steps.start;
        let why = plan.reason(&settings, &record, &steps, &sums, read, &known);
        let mut why = why.unwrap();
        if self.mistake == Mistake::StaleReward
            && let Some((_, before)) = &plan.after
        {
            for (one, old) in why.sources.iter_mut().zip(&before.sources) {
                one.reward_before = old.reward_before;
            }
        }
        why.decide(BTreeMap::new()).unwrap();
        match self.mistake {
            Mistake::FewerPairs => (why.read, why.counted) = (1, 1),
            Mistake::LongerWarmUp => why.settings.warm_up = why.from + 1,
            _ => {}
        }
        let mut set = self.entry(2, &why);
        if self.mistake == Mistake::AnotherSource {
            let mut more = why.clone();
            more.sources.push(SourceWhy {
                name: "wiki".into(),
                ..why.sources[0].clone()
            });
            set.spec = self.entry(2, &more).spec;
        }
        self.changes.push(set.id);
        self.fold(Entry::Mixture(set));
    }

    /// Returns the plan and its steps, with the mistake of this world; `None` while the driver waits.
    fn mistaken(
        &self,
        plan: Result<Plan, PlanError>,
        record: &JobRecord,
    ) -> Option<(Plan, std::ops::Range<Step>)> {
        let every = settings().every;
        let newest = self.changes.last().map(|id| {
            let why = self.mixtures.mixture(*id).unwrap().why.clone().unwrap();
            (*id, Why::read(&why).unwrap())
        });
        let mut waiting = None;
        if self.mistake == Mistake::OlderMixture && plan.is_err() {
            let legs = record.lineage().unwrap();
            waiting = Some(Plan::forged(
                self.bench.m.mixture().id,
                legs,
                newest.clone(),
            ));
        }
        let mut plan = waiting.or(plan.ok())?;
        let mut from = plan.steps(0).start;
        match self.mistake {
            Mistake::AbandonedChange => plan.after = newest,
            Mistake::Twice => from = plan.after.as_ref().map_or(from, |(_, why)| why.from),
            Mistake::OlderMixture => from = plan.after.as_ref().map_or(from, |(_, why)| why.to),
            Mistake::AbandonedSteps if record.attempts.len() > 1 => {
                let before = &record.attempts[record.attempts.len() - 2].state;
                let leg = Leg {
                    attempt: before.number,
                    from: before.start,
                    to: None,
                };
                plan.legs = vec![leg];
                return Some((plan, from..from + every)).filter(|(_, steps)| {
                    steps.end <= self.bench.m.next_step() && steps.end > before.start
                });
            }
            _ => {}
        }
        let steps = from..from + every;
        (steps.end <= self.reached).then_some((plan, steps))
    }

    /// Returns the first fault of any change.
    fn fault(&self) -> Option<WhyFault> {
        let check = |id: &u64| self.mixtures.check(*id, self.record()).err();
        self.changes.iter().find_map(check)
    }
}

fn reason() -> Why {
    let record = World::new(Mistake::None);
    let plan = Plan::forged(0, record.record().lineage().unwrap(), None);
    let known = |(number, name): (u16, &str)| KnownSource {
        number,
        name: name.into(),
        share: 0.25,
    };
    let known = [(0, "web"), (1, "code"), (2, "math")].map(known);
    let sums = WindowSums::default();
    plan.reason(&settings(), record.record(), &(0..4), &sums, 4, &known)
        .unwrap()
}

/// Losses that differ from step to step and between attempts.
fn values(step: Step, attempt: u64) -> crate::values::CoordinateStep {
    let loss = |source: u64| 1.0 + ((step * 7 + attempt * 5 + source * 3) % 11) as f64;
    crate::values::CoordinateStep {
        step,
        dp_rank: 0,
        first_slice: 0,
        slices: 1,
        loss: crate::values::CoordinateLoss {
            sources: (0..3_u16).map(|n| (n, (loss(n.into()), 1.0))).collect(),
            ..crate::values::CoordinateLoss::default()
        },
    }
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = prop_oneof![
        4 => (1_u64..5).prop_map(Turn::Commit),
        4 => (1_u64..6).prop_map(Turn::Train),
        1 => (0_u64..12).prop_map(Turn::Restart),
        1 => (0_u64..3).prop_map(Turn::Person),
        4 => Just(Turn::Drive),
    ];
    proptest::collection::vec(turn, 30..90)
}

fn fault(mistake: Mistake, turns: &[Turn]) -> (Option<WhyFault>, usize) {
    let mut world = World::new(mistake);
    for turn in turns {
        world.turn(*turn);
    }
    (world.fault(), world.changes.len())
}

proptest! {
    #[test]
    fn every_change_of_a_correct_driver_passes_the_check(turns in turns()) {
        prop_assert_eq!(fault(Mistake::None, &turns).0, None);
    }
}

/// Returns turns with several changes, of which restarts abandon some.
fn long() -> Vec<Turn> {
    let mut turns = Vec::new();
    for n in 0..6 {
        let round = [Turn::Commit(9), Turn::Train(9), Turn::Drive];
        turns.extend(round.into_iter().cycle().take(9));
        turns.extend([Turn::Restart(6 + n), Turn::Train(12), Turn::Drive]);
    }
    turns
}

#[test]
fn every_mistake_of_a_driver_is_found() {
    let (none, changes) = fault(Mistake::None, &long());
    assert_eq!(none, None);
    assert!(changes > 6, "{changes}");
    type Expected = fn(&WhyFault) -> bool;
    let cases: [(Mistake, Expected); 8] = [
        (Mistake::AbandonedChange, |f| {
            matches!(f, WhyFault::WrongChain { .. })
        }),
        (Mistake::AbandonedSteps, |f| {
            matches!(
                f,
                WhyFault::NotInLineage { .. } | WhyFault::WrongChain { .. }
            )
        }),
        (Mistake::OlderMixture, |f| {
            matches!(f, WhyFault::OlderMixture { .. })
        }),
        (Mistake::Twice, |f| {
            matches!(
                f,
                WhyFault::OlderMixture { .. } | WhyFault::CountedTwice { .. }
            )
        }),
        (Mistake::StaleReward, |f| {
            matches!(f, WhyFault::WrongReward(_))
        }),
        (Mistake::FewerPairs, |f| {
            matches!(f, WhyFault::WrongPairs { .. })
        }),
        (Mistake::LongerWarmUp, |f| {
            matches!(f, WhyFault::TooEarly { .. })
        }),
        (
            Mistake::AnotherSource,
            |f| matches!(f, WhyFault::WrongWeight(name) if name == "wiki"),
        ),
    ];
    for (mistake, expected) in cases {
        let found = fault(mistake, &long()).0;
        assert!(
            found.as_ref().is_some_and(expected),
            "{mistake:?}: {found:?}"
        );
    }
}
