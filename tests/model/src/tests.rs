//! Small bounds: no property breaks with all guards, and one breaks without each of them.

use crate::config::{Config, FULL, named};
use crate::guard::Guard;
use crate::report;

const STATES_MAX: u64 = 3_000_000;
/// The states of each configuration that are explored, in `make test` and with `BATCHWEAVE_LONG=1`.
const EXPLORED: [u64; 2] = [60_000, 150_000];

#[test]
fn in_small_configurations_nothing_is_broken() {
    let long = std::env::var_os("BATCHWEAVE_LONG").is_some();
    let explored = EXPLORED[usize::from(long)];
    let mut states = 0;
    println!("{}", report::table_header());
    for config in FULL.map(Config::short) {
        let run = report::explore(config, None, explored);
        println!("{}", run.line());
        assert_eq!(run.violations(), 0, "\n{}", run.counterexample_text());
        states += run.found.states;
    }
    assert!(states > 2 * explored, "{states}");
}

#[test]
fn without_each_guard_something_is_broken() {
    for &guard in Guard::all() {
        let (name, property) = guard.needed_by();
        let config = named(name).expect("it is there").short();
        let run = report::explore(config, Some(guard), STATES_MAX);
        println!("{}", run.counterexample_text());
        let found = run.found.counterexample.map(|c| c.broken.property);
        assert_eq!(found, Some(property), "without {}", guard.name());
    }
}
