//! The rules by which conversations become tokens, by their age. A producer goes on by the rules that it began with:
//! its cursor names them. Nothing is rendered by old rules for ever, though. A producer of an earlier dialect has
//! every conversation made by its own rules and by those of today, and stops at the first one that differs.

use std::sync::atomic::{AtomicU8, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::sources::Reason;

/// The key of the dialect among the settings of a cursor; a cursor without it is of the first one.
pub(crate) const KEY: &str = "chat.dialect";

/// The rules for templates, messages and pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Dialect {
    /// Templates nearly as Jinja2 has them.
    First = 1,
    /// Templates as Jinja2 has them.
    #[default]
    Second = 2,
}

impl Dialect {
    /// Returns the dialect in the settings of a cursor.
    pub(crate) fn of_cursor(settings: &Map<String, Value>) -> Self {
        match settings.get(KEY) {
            None => Self::First,
            Some(_) => Self::Second,
        }
    }

    /// Returns whether the producer began by these rules, so that a difference must stop it.
    pub(crate) fn is_earlier(self) -> bool {
        self == Self::First
    }

    /// Returns an error that stops the producer where an earlier dialect meets something that has another meaning by
    /// now. `detail` names it: "the conversation has ...".
    pub(crate) fn refuse_if_earlier(self, detail: impl FnOnce() -> String) -> Result<(), Reason> {
        if self.is_earlier() {
            return Err(Reason::Changed { detail: detail() });
        }
        Ok(())
    }
}

/// The dialect of a transform, which is known when the cursor is read.
#[derive(Debug)]
pub(super) struct CurrentDialect(AtomicU8);

impl Default for CurrentDialect {
    fn default() -> Self {
        Self(AtomicU8::new(Dialect::default() as u8))
    }
}

impl CurrentDialect {
    pub(super) fn get(&self) -> Dialect {
        if self.0.load(Ordering::Relaxed) == Dialect::First as u8 {
            Dialect::First
        } else {
            Dialect::Second
        }
    }

    pub(super) fn set(&self, dialect: Dialect) {
        self.0.store(dialect as u8, Ordering::Relaxed);
    }
}
