//! Breadth-first search through all states of a model.
//!
//! States are known by their fingerprints, each with that of the state it was first reached from, so
//! that the shortest path to a broken property can be reconstructed.

use std::collections::HashMap;
use std::hash::Hash;

use crate::fingerprint::{self, ThroughBuild};
use crate::property::Broken;

/// A system to explore.
pub trait System {
    /// A state of the system.
    type State: Copy + Hash;
    /// An event that may change the state.
    type Action: Copy;

    /// Returns the first state.
    fn first(&mut self) -> Self::State;
    /// Adds all actions that may be possible in a state; `next` may reject some.
    fn actions(&self, state: &Self::State, into: &mut Vec<Self::Action>);
    /// Returns the state after an action and the property that it breaks, or `None` if the action
    /// is impossible.
    fn next(
        &mut self,
        state: &Self::State,
        action: Self::Action,
    ) -> Option<(Self::State, Option<Broken>)>;
    /// Classifies a state in which nothing more happens.
    fn at_rest(&self, state: &Self::State) -> Rest;
    /// Returns an action in words.
    fn describe(&self, state: &Self::State, action: Self::Action) -> String;
}

/// The meaning of a state in which nothing more happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// All work is done.
    Complete,
    /// All processes stopped or died.
    Stopped,
    /// A running process has work left.
    Wanting,
}

/// The result of a search.
#[derive(Debug, Clone)]
pub struct Found {
    /// The number of different states.
    pub states: u64,
    /// The number of transitions followed.
    pub transitions: u64,
    /// The length of the longest shortest path to a state.
    pub depth: u32,
    /// States in which all work was done; 0 would mean that the model shows nothing.
    pub complete: u64,
    /// True if the limit on states ended the search.
    pub cut: bool,
    /// The first broken property and the path to it.
    pub counterexample: Option<Counterexample>,
}

/// A shortest path to a broken property.
#[derive(Debug, Clone)]
pub struct Counterexample {
    pub broken: Broken,
    /// The actions, in order.
    pub trace: Vec<String>,
}

/// The predecessor of each state, by fingerprint; the first state is its own.
type Known = HashMap<u64, u64, ThroughBuild>;

/// Explores until no state is new, a property is broken, or `states_max` states are known.
pub fn explore<S: System>(system: &mut S, states_max: u64) -> Found {
    let first = system.first();
    let mut known = Known::default();
    let print = fingerprint::of(&first);
    known.insert(print, print);
    let mut found = Found {
        states: 1,
        transitions: 0,
        depth: 0,
        complete: 0,
        cut: false,
        counterexample: None,
    };
    let mut level = vec![(print, first)];
    let mut next = Vec::new();
    let mut actions = Vec::new();
    while !level.is_empty() && !found.cut {
        for (print, state) in level.drain(..) {
            let new = Reached {
                known: &mut known,
                next: &mut next,
                actions: &mut actions,
            };
            if let Some((broken, action)) = visit(system, print, &state, new, &mut found) {
                let mut trace = walk(system, &known, print);
                trace.extend(action.map(|action| system.describe(&state, action)));
                found.counterexample = Some(Counterexample { broken, trace });
                return found;
            }
        }
        found.states = known.len() as u64;
        found.cut = found.states >= states_max && !next.is_empty();
        found.depth += u32::from(!next.is_empty());
        std::mem::swap(&mut level, &mut next);
    }
    found
}

struct Reached<'a, S: System> {
    known: &'a mut Known,
    next: &'a mut Vec<(u64, S::State)>,
    actions: &'a mut Vec<S::Action>,
}

/// Adds the successors of one state. Returns the property that one of them breaks.
fn visit<S: System>(
    system: &mut S,
    print: u64,
    state: &S::State,
    reached: Reached<'_, S>,
    found: &mut Found,
) -> Option<(Broken, Option<S::Action>)> {
    let Reached {
        known,
        next,
        actions,
    } = reached;
    let rest = system.at_rest(state);
    found.complete += u64::from(rest == Rest::Complete);
    actions.clear();
    system.actions(state, actions);
    let mut moved = false;
    for &action in actions.iter() {
        let Some((after, broken)) = system.next(state, action) else {
            continue;
        };
        moved = true;
        found.transitions += 1;
        if let Some(broken) = broken {
            found.states = known.len() as u64;
            return Some((broken, Some(action)));
        }
        let after_print = fingerprint::of(&after);
        if let std::collections::hash_map::Entry::Vacant(place) = known.entry(after_print) {
            place.insert(print);
            next.push((after_print, after));
        }
    }
    (!moved && rest == Rest::Wanting).then(|| (Broken::stuck(), None))
}

/// Returns the actions from the first state to the one with this fingerprint, in words.
fn walk<S: System>(system: &mut S, known: &Known, to: u64) -> Vec<String> {
    let mut way = vec![to];
    while let Some(&before) = way.last().and_then(|last| known.get(last)) {
        if way.last() == Some(&before) {
            break;
        }
        way.push(before);
    }
    let mut state = system.first();
    let mut trace = Vec::new();
    for &wanted in way.iter().rev().skip(1) {
        let mut actions = Vec::new();
        system.actions(&state, &mut actions);
        for action in actions {
            let Some((after, _)) = system.next(&state, action) else {
                continue;
            };
            if fingerprint::of(&after) == wanted {
                trace.push(system.describe(&state, action));
                state = after;
                break;
            }
        }
    }
    trace
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::property::Property;

    /// Two counters below `size`, with a property of their sum.
    struct Counters {
        size: u8,
        bad_sum: u8,
    }

    impl System for Counters {
        type State = [u8; 2];
        type Action = usize;
        fn first(&mut self) -> [u8; 2] {
            [0; 2]
        }
        fn actions(&self, _: &[u8; 2], into: &mut Vec<usize>) {
            into.extend([0, 1]);
        }
        fn next(&mut self, state: &[u8; 2], at: usize) -> Option<([u8; 2], Option<Broken>)> {
            let mut after = *state;
            after[at] += 1;
            let bad = after.iter().sum::<u8>() == self.bad_sum;
            let broken = bad.then(|| Broken::new(Property::ExactlyOnce, String::new()));
            (after[at] < self.size).then_some((after, broken))
        }
        fn at_rest(&self, state: &[u8; 2]) -> Rest {
            match state {
                [a, b] if a + b == 2 * (self.size - 1) => Rest::Complete,
                _ => Rest::Wanting,
            }
        }
        fn describe(&self, _: &[u8; 2], action: usize) -> String {
            format!("counter {action}")
        }
    }

    #[test]
    fn counts_all_states_once() {
        let (size, bad_sum) = (7, 99);
        let found = explore(&mut Counters { size, bad_sum }, u64::MAX);
        assert_eq!((found.states, found.depth, found.complete), (49, 12, 1));
        assert_eq!(found.transitions, 2 * 6 * 7);
        assert!(found.counterexample.is_none() && !found.cut);
    }

    #[test]
    fn finds_a_shortest_way() {
        let (size, bad_sum) = (7, 4);
        let found = explore(&mut Counters { size, bad_sum }, u64::MAX);
        let counterexample = found.counterexample.expect("the sum is reached");
        assert_eq!(counterexample.trace.len(), 4, "{counterexample:?}");
    }

    #[test]
    fn stops_at_a_bound() {
        let (size, bad_sum) = (100, 255);
        assert!(explore(&mut Counters { size, bad_sum }, 50).cut);
    }
}
