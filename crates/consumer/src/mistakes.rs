//! Deliberate mistakes of the daemon, and the tests that find them: `make mutations` runs these.

use std::panic::catch_unwind;

use batchweave_core::mutation::{Mutation, set};

/// Fails unless `test` fails with the mistake and passes without.
pub(crate) fn is_found(mutation: Mutation, test: fn()) {
    set(Some(mutation));
    let outcome = catch_unwind(test);
    set(None);
    assert!(outcome.is_err(), "{mutation:?} is not found");
    test();
}
