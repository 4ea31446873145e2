//! Without mistakes nothing is broken; each mistake is found.

use super::*;
use crate::checker::{Found, explore};

fn run(mistake: Option<Mistake>) -> Found {
    let found = explore(&mut Bundles { mistake }, 20_000_000);
    println!(
        "without {mistake:?}: {} states, {} complete, {:#?}",
        found.states, found.complete, found.counterexample
    );
    found
}

#[test]
fn who_reads_bundles_has_a_prefix_of_the_log_and_at_last_all_of_it() {
    let found = run(None);
    assert!(found.counterexample.is_none() && !found.cut);
    assert!(found.complete > 0);
}

#[test]
fn each_mistake_with_bundles_is_found() {
    use Mistake::*;
    for (mistake, property) in [
        (BundleUnknown, Property::Fold),
        (NoChain, Property::Fold),
        (SkipGap, Property::Fold),
        (NoDigest, Property::Fold),
        (NoFallback, Property::Stuck),
    ] {
        let found = run(Some(mistake)).counterexample;
        let property_found = found.map(|c| c.broken.property);
        assert_eq!(property_found, Some(property), "{mistake:?}");
    }
}
