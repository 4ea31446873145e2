//! Faults: at random by a specification, or injected one by one by a test.

mod spec;

use std::sync::{Mutex, PoisonError};

use rand::RngExt;
use rand::rngs::StdRng;

use crate::Op;
pub use spec::FaultSpec;

/// A way for a request to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// 500 before the request is carried out.
    Error,
    /// 503 `SlowDown` before the request is carried out.
    Slow,
    /// 409 before a conditional write is carried out; other requests never draw this.
    Conflict,
    /// No answer; the request is not carried out.
    Stall,
    /// The connection is reset before the request is carried out.
    Reset,
    /// The request is carried out, then the connection is reset.
    Lost,
    /// A read returns one wrong bit; other requests never draw this or the next six.
    Flip,
    /// A read lacks its last byte.
    Short,
    /// A read has a newline after its last byte.
    Long,
    /// This read and all later ones over the same connection return one wrong bit.
    Spoil,
    /// A read returns the bytes of another object of the same folder.
    Foreign,
    /// A read returns its bytes in another order: the end first.
    Rotate,
    /// A read returns the older version of the key: 404. An object is created once, so it has no other.
    Absent,
}

impl Fault {
    /// Every fault, in the order in which they are drawn.
    pub const ALL: [Self; 13] = [
        Self::Error,
        Self::Slow,
        Self::Conflict,
        Self::Stall,
        Self::Reset,
        Self::Lost,
        Self::Flip,
        Self::Short,
        Self::Long,
        Self::Spoil,
        Self::Foreign,
        Self::Rotate,
        Self::Absent,
    ];

    /// Returns the name in specifications and statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Slow => "slow",
            Self::Conflict => "conflict",
            Self::Stall => "stall",
            Self::Reset => "reset",
            Self::Lost => "lost",
            Self::Flip => "flip",
            Self::Short => "short",
            Self::Long => "long",
            Self::Spoil => "spoil",
            Self::Foreign => "foreign",
            Self::Rotate => "rotate",
            Self::Absent => "absent",
        }
    }

    /// Returns true if the fault makes a read return wrong bytes.
    pub fn is_wrong_read(self) -> bool {
        matches!(
            self,
            Self::Flip
                | Self::Short
                | Self::Long
                | Self::Spoil
                | Self::Foreign
                | Self::Rotate
                | Self::Absent
        )
    }

    /// Returns true if the fault can happen to this request.
    fn suits(self, subject: Subject<'_>) -> bool {
        (self != Self::Conflict || subject.conditional)
            && (!self.is_wrong_read() || subject.op == Op::Get)
    }
}

/// A fault that a test injects into the next requests of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injection {
    pub fault: Fault,
    /// The kind of request; `None` for all.
    pub op: Option<Op>,
    /// The text that the key must contain.
    pub key_contains: String,
    /// The number of requests.
    pub times: u32,
}

/// The faults from now on, shared by the server and the tests that drive it.
#[derive(Debug)]
pub struct Faults {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    spec: FaultSpec,
    rng: StdRng,
    down: bool,
    injections: Vec<Injection>,
    /// The wrong read: the number of reads before it, and its kind.
    wrong_read: Option<(u64, Fault)>,
}

/// The request fields that faults depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub op: Op,
    pub key: &'a str,
    pub conditional: bool,
}

impl Faults {
    pub(crate) fn new(spec: FaultSpec, rng: StdRng) -> Self {
        let state = State {
            spec,
            rng,
            down: false,
            injections: Vec::new(),
            wrong_read: None,
        };
        Self {
            state: Mutex::new(state),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the random faults; `FaultSpec::default()` ends them.
    pub fn set(&self, spec: FaultSpec) {
        self.with(|state| state.spec = spec);
    }

    /// Switches the whole store off (every request and connection is reset) or on again.
    pub fn set_down(&self, down: bool) {
        self.with(|state| state.down = down);
    }

    /// Returns true if the store is switched off.
    pub fn is_down(&self) -> bool {
        self.with(|state| state.down)
    }

    /// Injects a fault into the next matching requests, before random ones.
    pub fn inject(&self, injection: Injection) {
        self.with(|state| state.injections.push(injection));
    }

    /// Loses the answers of the next `times` puts of a key that contains `key_contains`.
    pub fn lose_next_puts(&self, key_contains: &str, times: u32) {
        self.inject(Injection {
            fault: Fault::Lost,
            op: Some(Op::Put),
            key_contains: key_contains.to_owned(),
            times,
        });
    }

    /// Answers one GET, the one after `reads` others, with wrong bytes.
    pub fn wrong_read_after(&self, reads: u64, how: Fault) {
        self.with(|state| state.wrong_read = Some((reads, how)));
    }

    /// Returns the number of injected faults that have not happened yet.
    pub fn pending(&self) -> u32 {
        self.with(|state| {
            state
                .injections
                .iter()
                .map(|injection| injection.times)
                .sum()
        })
    }

    /// Drops injected faults that have not happened yet.
    pub fn clear_injections(&self) {
        self.with(|state| state.injections.clear());
    }

    /// Decides the fault of a request.
    pub(crate) fn decide(&self, subject: Subject<'_>) -> Option<Fault> {
        self.with(|state| {
            if state.down {
                return Some(Fault::Reset);
            }
            let wrong = state.wrong_read(subject);
            wrong
                .or_else(|| state.injected(subject))
                .or_else(|| state.random(subject))
        })
    }
}

impl State {
    fn wrong_read(&mut self, subject: Subject<'_>) -> Option<Fault> {
        if subject.op != Op::Get {
            return None;
        }
        match &mut self.wrong_read {
            Some((0, how)) => {
                let how = *how;
                self.wrong_read = None;
                Some(how)
            }
            Some((reads, _)) => {
                *reads -= 1;
                None
            }
            None => None,
        }
    }

    fn injected(&mut self, subject: Subject<'_>) -> Option<Fault> {
        let at = self.injections.iter().position(|injection| {
            injection.op.is_none_or(|op| op == subject.op)
                && subject.key.contains(&injection.key_contains)
        })?;
        let injection = self.injections.get_mut(at)?;
        let fault = injection.fault;
        injection.times = injection.times.saturating_sub(1);
        if injection.times == 0 {
            self.injections.remove(at);
        }
        Some(fault)
    }

    /// Draws once per request, so that the sequence of draws depends only on the order of requests.
    fn random(&mut self, subject: Subject<'_>) -> Option<Fault> {
        if self.spec.is_empty() {
            return None;
        }
        let mut drawn: f64 = self.rng.random();
        for fault in Fault::ALL {
            let chance = self.spec.chance(subject.op, fault);
            if drawn < chance {
                return fault.suits(subject).then_some(fault);
            }
            drawn -= chance;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn faults(spec: &str, seed: u64) -> Faults {
        Faults::new(spec.parse().unwrap(), StdRng::seed_from_u64(seed))
    }

    fn put(key: &str) -> Subject<'_> {
        Subject {
            op: Op::Put,
            key,
            conditional: true,
        }
    }

    #[test]
    fn frequencies_are_as_specified() {
        let faults = faults("error=0.1,put.lost=0.2", 3);
        let mut counts = [0; 2];
        for _ in 0..10_000 {
            match faults.decide(put("k")) {
                Some(Fault::Error) => counts[0] += 1,
                Some(Fault::Lost) => counts[1] += 1,
                _ => {}
            }
        }
        assert!(
            (900..1100).contains(&counts[0]) && (1850..2150).contains(&counts[1]),
            "{counts:?}"
        );
    }

    #[test]
    fn the_same_seed_fails_the_same_requests() {
        let run = |seed| {
            let faults = faults("slow=0.3", seed);
            (0..100)
                .map(|_| faults.decide(put("k")))
                .collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn injections_come_first_and_run_out() {
        let faults = faults("", 0);
        faults.lose_next_puts("log/", 2);
        assert_eq!(faults.decide(put("data/x")), None);
        assert_eq!(
            faults.decide(Subject {
                op: Op::Get,
                ..put("log/1")
            }),
            None
        );
        assert_eq!(faults.pending(), 2);
        assert_eq!(faults.decide(put("log/1")), Some(Fault::Lost));
        assert_eq!(faults.decide(put("log/1")), Some(Fault::Lost));
        assert_eq!(faults.decide(put("log/1")), None);
        assert_eq!(faults.pending(), 0);
    }

    #[test]
    fn down_resets_everything_until_up() {
        let faults = faults("", 0);
        faults.set_down(true);
        assert_eq!(faults.decide(put("k")), Some(Fault::Reset));
        faults.set_down(false);
        assert_eq!(faults.decide(put("k")), None);
    }

    #[test]
    fn only_reads_lie() {
        let faults = faults("flip=0.5,short=0.5", 0);
        assert_eq!(faults.decide(put("k")), None);
        let get = Subject {
            op: Op::Get,
            ..put("k")
        };
        assert!(faults.decide(get).is_some_and(Fault::is_wrong_read));
    }

    #[test]
    fn one_read_lies_after_a_given_number_of_others() {
        let faults = faults("", 0);
        faults.wrong_read_after(1, Fault::Short);
        let get = Subject {
            op: Op::Get,
            ..put("k")
        };
        assert_eq!(faults.decide(get), None);
        assert_eq!(faults.decide(put("k")), None);
        assert_eq!(faults.decide(get), Some(Fault::Short));
        assert_eq!(faults.decide(get), None);
    }

    #[test]
    fn only_conditional_writes_conflict() {
        let faults = faults("conflict=1", 0);
        assert_eq!(faults.decide(put("k")), Some(Fault::Conflict));
        assert_eq!(
            faults.decide(Subject {
                conditional: false,
                ..put("k")
            }),
            None
        );
    }
}
