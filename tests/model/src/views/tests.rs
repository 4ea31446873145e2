//! Without mistakes nothing is broken; each mistake is found.

use super::*;
use crate::checker::{Found, explore};

fn run(poisonings: u8, skewed: bool, mistake: Option<Mistake>) -> Found {
    let mut views = Views {
        poisonings,
        skewed,
        mistake,
    };
    let found = explore(&mut views, 20_000_000);
    println!(
        "{poisonings} poisonings, skewed {skewed}, without {mistake:?}: {} states, {} complete, {:#?}",
        found.states, found.complete, found.counterexample
    );
    found
}

#[test]
fn two_folds_that_differ_are_brought_together_and_never_void_each_other() {
    for (poisonings, skewed) in [(0, false), (1, false), (1, true)] {
        let found = run(poisonings, skewed, None);
        assert!(found.counterexample.is_none() && !found.cut);
        assert!(found.complete > 0);
    }
}

#[test]
fn each_mistake_with_views_is_found() {
    use Mistake::*;
    let mistakes = [
        (VoidOtherViews, Property::Stuck),
        (NoDoubt, Property::Stuck),
        (NewestOnly, Property::Stuck),
        (NoLook, Property::Stuck),
        (NoConfirm, Property::Fold),
        (RepairAnything, Property::Acknowledged),
    ];
    for (mistake, property) in mistakes {
        let found = [(1, true), (1, false)]
            .into_iter()
            .find_map(|(n, skewed)| run(n, skewed, Some(mistake)).counterexample);
        assert_eq!(
            found.map(|c| c.broken.property),
            Some(property),
            "{mistake:?}"
        );
    }
}
