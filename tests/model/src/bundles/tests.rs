//! Without mistakes nothing is broken; each mistake is found.

use super::*;
use crate::checker::{Found, explore};

/// Faults of the network and of the store, as without an enemy.
const FAULTY: Bundles = Bundles {
    mistake: None,
    versions: 4,
    writers: 2,
    faults: true,
    forged: 0,
    planted: 0,
    set_backs: 0,
};
/// A forger who stores bundles, and a log that is set back.
const FORGED: Bundles = Bundles {
    mistake: None,
    versions: 3,
    writers: 1,
    faults: false,
    forged: 2,
    planted: 0,
    set_backs: 1,
};
/// A forger who also plants a record ahead of the log's end.
const PLANTED: Bundles = Bundles {
    writers: 2,
    forged: 1,
    planted: 1,
    set_backs: 0,
    ..FORGED
};

/// All of it against one writer.
const TOGETHER: Bundles = Bundles {
    writers: 1,
    set_backs: 1,
    ..PLANTED
};

fn run(mut bundles: Bundles) -> Found {
    let found = explore(&mut bundles, 20_000_000);
    println!(
        "{bundles:?}: {} states, {} complete, {:#?}",
        found.states, found.complete, found.counterexample
    );
    found
}

#[test]
fn a_reader_of_bundles_has_a_prefix_of_the_log_and_at_last_all_of_it() {
    for bundles in [FAULTY, FORGED, PLANTED, TOGETHER] {
        let found = run(bundles);
        assert!(found.counterexample.is_none() && !found.cut);
        assert!(found.complete > 0);
    }
}

#[test]
fn each_mistake_with_bundles_is_found() {
    use Mistake::*;
    for (bundles, mistake, property) in [
        (FAULTY, SkipGap, Property::Fold),
        (FAULTY, NoDigest, Property::Fold),
        (FAULTY, NoFallback, Property::Stuck),
        (FAULTY, LeaveForeign, Property::KeptOut),
        (FORGED, NoChain, Property::Fold),
        (FORGED, NoAnchor, Property::Fold),
        (FORGED, AnchorFirst, Property::Fold),
        (FORGED, AnchorExists, Property::Fold),
        (FORGED, AnchorNotYet, Property::Fold),
        (FORGED, AnchorEarly, Property::Fold),
        (PLANTED, NoRepairs, Property::Stuck),
    ] {
        let mistake = Some(mistake);
        let found = run(Bundles { mistake, ..bundles }).counterexample;
        let property_found = found.map(|c| c.broken.property);
        assert_eq!(property_found, Some(property), "{mistake:?}");
    }
}
