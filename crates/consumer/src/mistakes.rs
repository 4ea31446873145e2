//! Deliberate mistakes of the daemon that its own tests find. In no other build can one be made.

/// A mistake that a guard of the daemon prevents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// A session that ends while its rank lives frees the frames that the rank holds.
    StoppedFrees,
    /// A rank has received what it says, whatever it was sent.
    BelievedRank,
    /// The stream ends a step later for ranks than in the log.
    EndElsewhere,
    /// Slices of a step go in one message, however many they are.
    OneMessage,
}

/// Whether this mistake is to be made: never.
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
