//! Deliberate mistakes of the daemon that its own tests must find. They exist only in builds of these tests.

/// A mistake that a guard of the daemon prevents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// A session that ends before its rank frees the frames that the rank holds.
    StoppedFrees,
    /// A rank's reported position is not limited to what it was sent.
    BelievedRank,
    /// Ranks are sent an end of the stream that is one step late.
    EndElsewhere,
    /// All slices of a step are sent in one message, regardless of their number.
    OneMessage,
    /// An attempt whose id the client drew ends one that runs.
    DrawnTakesOver,
    /// A job with restart points begins again at step 0 when its ranks forget their state.
    ForgottenState,
}

/// Whether to make this mistake: never in this build.
#[cfg(not(test))]
pub(crate) const fn is(_: Mistake) -> bool {
    false
}

#[cfg(test)]
pub(crate) use tests::{is, is_found};

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::panic::catch_unwind;

    use super::Mistake;

    thread_local! {
        static NOW: Cell<Option<Mistake>> = const { Cell::new(None) };
    }

    pub(crate) fn is(mistake: Mistake) -> bool {
        NOW.get() == Some(mistake)
    }

    /// Fails unless `test` fails with the mistake and passes without.
    pub(crate) fn is_found(mistake: Mistake, test: fn()) {
        NOW.set(Some(mistake));
        let outcome = catch_unwind(test);
        NOW.set(None);
        assert!(outcome.is_err(), "{mistake:?} is not found");
        test();
    }
}
