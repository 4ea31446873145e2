//! A conversation that is wrong, as a bad document.

use crate::sources::Reason;

/// Returns the reason of a wrong conversation.
pub(super) fn wrong(detail: impl Into<String>) -> Reason {
    Reason::Chat {
        detail: detail.into(),
    }
}
