//! The model in small: nothing is broken with all guards, something is without each of them.

use crate::config::{Config, FULL, named};
use crate::guard::Guard;
use crate::report;

const STATES_MAX: u64 = 3_000_000;

#[test]
fn in_small_configurations_nothing_is_broken() {
    let mut states = 0;
    println!("{}", report::head());
    for config in FULL.map(Config::short) {
        let run = report::run(config, None, 150_000);
        println!("{}", run.line());
        assert_eq!(run.violations(), 0, "\n{}", run.story());
        states += run.found.states;
    }
    assert!(states > 300_000, "{states}");
}

#[test]
fn without_each_guard_something_is_broken() {
    for &guard in Guard::all() {
        let (name, property) = guard.shows();
        let config = named(name).expect("it is there").short();
        let run = report::run(config, Some(guard), STATES_MAX);
        println!("{}", run.story());
        let found = run.found.counterexample;
        let found = found.map(|c| c.broken.property);
        assert_eq!(found, Some(property), "without {}", guard.name());
    }
}
