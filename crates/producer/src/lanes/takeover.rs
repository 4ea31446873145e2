//! When a lane of another daemon is taken over (pure).
//!
//! Invariants: only the lane of the first missing step is taken, after it was the same for the whole time while no job
//! held this daemon back; a lane that was lost to another daemon is left to it for [`LEFT_ALONE`] times as long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use batchweave_core::ids::Step;

/// Two daemons that both believe a lane is theirs must not take it from each other again and again.
const LEFT_ALONE: u32 = 10;

/// The lanes of this daemon, and how long the stream has waited for another's. All times are since the daemon's start.
#[derive(Debug)]
pub(crate) struct Takeover {
    after: Duration,
    own: BTreeSet<String>,
    lost: BTreeMap<String, Duration>,
    awaited: Option<Awaited>,
}

/// The first missing step and its lane, and since when they are the same.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Awaited {
    lane: String,
    step: Step,
    since: Duration,
}

impl Takeover {
    /// Takes over a lane that is awaited for `after`.
    pub(crate) fn new(after: Duration) -> Self {
        Self {
            after,
            own: BTreeSet::new(),
            lost: BTreeMap::new(),
            awaited: None,
        }
    }

    /// This daemon runs `lane`.
    pub(crate) fn began(&mut self, lane: &str) {
        self.own.insert(lane.to_owned());
        self.awaited = None;
    }

    /// Another daemon took `lane` from this one.
    pub(crate) fn lost(&mut self, lane: &str, now: Duration) {
        self.own.remove(lane);
        self.lost.insert(lane.to_owned(), now);
    }

    /// Returns the lane to take over now. `awaited` is the lane of the first missing step; `held` is whether a job holds
    /// this daemon back, which would explain why nobody commits.
    pub(crate) fn look(
        &mut self,
        now: Duration,
        awaited: Option<(&str, Step)>,
        held: bool,
    ) -> Option<String> {
        let Some((lane, step)) = awaited.filter(|(lane, _)| !held && !self.own.contains(*lane))
        else {
            self.awaited = None;
            return None;
        };
        let same = self
            .awaited
            .as_ref()
            .filter(|a| a.lane == lane && a.step == step);
        let Some(same) = same else {
            self.awaited = Some(Awaited {
                lane: lane.to_owned(),
                step,
                since: now,
            });
            return None;
        };
        let lost = self.lost.get(lane);
        let left_alone = lost.is_some_and(|at| now.saturating_sub(*at) < self.after * LEFT_ALONE);
        let due = now.saturating_sub(same.since) >= self.after;
        (due && !left_alone).then(|| lane.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn with(own: &[&str]) -> Takeover {
        let mut takeover = Takeover::new(AFTER);
        for lane in own {
            takeover.began(lane);
        }
        takeover
    }

    #[test]
    fn a_lane_is_taken_when_one_step_waits_for_it_for_the_whole_time() {
        let mut takeover = with(&["a"]);
        assert_eq!(takeover.look(at(0), Some(("b", 7)), false), None);
        assert_eq!(takeover.look(at(9), Some(("b", 7)), false), None);
        assert_eq!(
            takeover.look(at(10), Some(("b", 7)), false),
            Some("b".into())
        );
        takeover.began("b");
        assert_eq!(
            takeover.look(at(90), Some(("b", 7)), false),
            None,
            "it is own now"
        );
    }

    #[test]
    fn progress_and_holds_begin_the_time_anew() {
        let mut takeover = with(&["a"]);
        for (now, awaited, held) in [
            (0, Some(("b", 7)), false),
            // The lane gave a step, and has the turn again.
            (9, Some(("b", 9)), false),
            (18, Some(("b", 9)), true),
            (19, Some(("b", 9)), false),
            (28, Some(("b", 9)), false),
            (29, None, false),
            (30, Some(("b", 9)), false),
            (39, Some(("a", 9)), false),
            (100, Some(("b", 9)), false),
        ] {
            assert_eq!(takeover.look(at(now), awaited, held), None, "at {now}");
        }
        assert_eq!(
            takeover.look(at(110), Some(("b", 9)), false),
            Some("b".into())
        );
    }

    #[test]
    fn a_lost_lane_is_left_alone_for_longer() {
        let mut takeover = with(&["a", "b"]);
        takeover.lost("b", at(5));
        assert_eq!(takeover.look(at(6), Some(("b", 7)), false), None);
        assert_eq!(takeover.look(at(104), Some(("b", 7)), false), None);
        assert_eq!(
            takeover.look(at(105), Some(("b", 7)), false),
            Some("b".into())
        );
    }
}
