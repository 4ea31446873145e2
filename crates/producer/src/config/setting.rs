//! Facts of a key beside its type, its default and its words: its range, whether the batches' bytes depend on it, and the
//! rules that bind it to other keys. `table` has the keys.

use std::fmt::{self, Display, Formatter};

use batchweave_daemon::config::{ByteSize, Period, Problem};
use serde_json::Value;

use super::ProducerConfig;

/// A condition on other keys.
pub(super) type When = fn(&ProducerConfig) -> bool;

/// A key with its range.
pub(crate) struct Setting {
    pub(super) key: &'static str,
    range: Range,
    decides: Decides,
}

/// The values that a key takes.
enum Range {
    Any,
    /// A text or a list that is not empty.
    Given,
    Number(Bounds<u64>),
    Bytes(Bounds<ByteSize>),
    Time(Bounds<Period>),
}

struct Bounds<T> {
    least: Option<T>,
    most: Option<T>,
}

/// Whether the batches' bytes depend on a key, so that a cursor keeps its value.
enum Decides {
    Never,
    Always,
    /// Where the value is not the default: cursors that were written before the key existed stay as they are.
    WhereSet,
    /// In some modes of packing.
    In(When),
    /// In some modes, where the value is not the default.
    WhereSetIn(When),
}

/// A rule that binds a key to others.
pub(super) struct Rule {
    pub(super) key: &'static str,
    pub(super) broken: Broken,
    pub(super) why: &'static str,
}

pub(super) enum Broken {
    If(When),
    /// If the key is set, and the condition holds.
    Set(When),
}

impl Setting {
    pub(super) const fn new(key: &'static str) -> Self {
        Self {
            key,
            range: Range::Any,
            decides: Decides::Never,
        }
    }

    pub(super) const fn given(mut self) -> Self {
        self.range = Range::Given;
        self
    }

    pub(super) const fn number(mut self, least: u64, most: Option<u64>) -> Self {
        let least = if least > 0 { Some(least) } else { None };
        self.range = Range::Number(Bounds { least, most });
        self
    }

    pub(super) const fn bytes(mut self, least: Option<ByteSize>, most: Option<ByteSize>) -> Self {
        self.range = Range::Bytes(Bounds { least, most });
        self
    }

    pub(super) const fn at_most(mut self, most: Period) -> Self {
        let (least, most) = (None, Some(most));
        self.range = Range::Time(Bounds { least, most });
        self
    }

    pub(super) const fn decides(mut self) -> Self {
        self.decides = Decides::Always;
        self
    }

    pub(super) const fn decides_where_set(mut self) -> Self {
        self.decides = Decides::WhereSet;
        self
    }

    pub(super) const fn decides_in(mut self, modes: When) -> Self {
        self.decides = Decides::In(modes);
        self
    }

    pub(super) const fn decides_where_set_in(mut self, modes: When) -> Self {
        self.decides = Decides::WhereSetIn(modes);
        self
    }

    /// Returns what is wrong with the value.
    pub(super) fn fault(&self, value: &Value) -> Option<String> {
        let is_outside = match &self.range {
            Range::Any => false,
            Range::Given => match value {
                Value::String(text) => text.is_empty(),
                Value::Array(items) => items.is_empty(),
                _ => false,
            },
            Range::Number(bounds) => bounds.exclude(value.as_u64()),
            Range::Bytes(bounds) => bounds.exclude(value.as_str()?.parse().ok()),
            Range::Time(bounds) => bounds.exclude(value.as_str()?.parse().ok()),
        };
        is_outside.then(|| match self.range {
            Range::Given => "must not be empty".to_owned(),
            _ => format!("must be {}", self.range()),
        })
    }

    /// Returns the range in words, empty for any value of the key's type.
    pub(super) fn range(&self) -> String {
        match &self.range {
            Range::Any => String::new(),
            Range::Given => "not empty".to_owned(),
            Range::Number(bounds) => bounds.to_string(),
            Range::Bytes(bounds) => bounds.to_string(),
            Range::Time(bounds) => bounds.to_string(),
        }
    }

    /// Returns whether the batches' bytes depend on the value in some configuration.
    pub(super) fn can_decide(&self) -> bool {
        !matches!(self.decides, Decides::Never)
    }

    /// Returns whether the batches' bytes depend on the value.
    pub(super) fn is_decisive(&self, config: &ProducerConfig, is_set: bool) -> bool {
        match self.decides {
            Decides::Never => false,
            Decides::Always => true,
            Decides::WhereSet => is_set,
            Decides::In(modes) => modes(config),
            Decides::WhereSetIn(modes) => is_set && modes(config),
        }
    }
}

impl<T: PartialOrd> Bounds<T> {
    fn exclude(&self, value: Option<T>) -> bool {
        value.is_some_and(|value| {
            let below = self.least.as_ref().is_some_and(|least| value < *least);
            below || self.most.as_ref().is_some_and(|most| value > *most)
        })
    }
}

impl<T: Display> Display for Bounds<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (&self.least, &self.most) {
            (Some(least), Some(most)) => write!(f, "{least} to {most}"),
            (Some(least), None) => write!(f, "at least {least}"),
            (None, Some(most)) => write!(f, "at most {most}"),
            (None, None) => Ok(()),
        }
    }
}

/// A configuration as JSON, beside the defaults.
pub(super) struct Values {
    now: Value,
    default: Value,
}

impl Values {
    pub(super) fn of(config: &ProducerConfig) -> Self {
        let json = |config| serde_json::to_value(config).unwrap_or_default();
        Self {
            now: json(config),
            default: json(&ProducerConfig::default()),
        }
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: &str) -> &Value {
        at(&self.now, key)
    }

    /// Returns whether the value of a key is not the default.
    pub(super) fn is_set(&self, key: &str) -> bool {
        self.get(key) != at(&self.default, key)
    }
}

fn at<'v>(values: &'v Value, key: &str) -> &'v Value {
    let mut parts = key.split('.');
    parts
        .try_fold(values, |table, part| table.get(part))
        .unwrap_or(&Value::Null)
}

impl Rule {
    /// Returns the problem, if the configuration breaks the rule.
    pub(super) fn problem(&self, config: &ProducerConfig, values: &Values) -> Option<Problem> {
        let broken = match self.broken {
            Broken::If(when) => when(config),
            Broken::Set(when) => values.is_set(self.key) && when(config),
        };
        broken.then(|| Problem::new(self.key, self.why))
    }
}
