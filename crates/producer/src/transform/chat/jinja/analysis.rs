//! The variables of a template that are set before they are read, at its top level. Jinja2 takes them for its own: a
//! loop or a macro that reads one of them earlier finds it undefined, even where the context has such a name.

use std::collections::HashMap;

use super::ast::{Arguments, Body, Expression, Filter, Name, StatementKind, Target};

/// Returns the variables that a template sets at its top level before it reads them.
pub(super) fn set_first(body: &Body) -> Vec<Name> {
    let mut seen = Seen::default();
    seen.body(body);
    seen.set
        .into_iter()
        .filter(|(_, first)| *first)
        .map(|(name, _)| name)
        .collect()
}

/// Whether the first use of a name sets it.
#[derive(Default)]
struct Seen {
    set: HashMap<Name, bool>,
}

impl Seen {
    fn target(&mut self, target: &Target) {
        match target {
            Target::Name(name) => drop(self.set.entry(*name).or_insert(true)),
            Target::Attribute(name, _) => drop(self.set.entry(*name).or_insert(false)),
            Target::Tuple(all) => {
                for one in all {
                    self.target(one);
                }
            }
        }
    }

    fn body(&mut self, body: &Body) {
        for statement in body {
            match &statement.kind {
                StatementKind::Print(value) => self.value(value),
                StatementKind::If {
                    test,
                    then,
                    otherwise,
                } => {
                    self.value(test);
                    self.branches([then, otherwise]);
                }
                StatementKind::For(own) => self.value(&own.items),
                StatementKind::Set(target, value) => {
                    self.value(value);
                    self.target(target);
                }
                StatementKind::SetBlock { target, .. } => self.target(target),
                StatementKind::With { values, .. } => {
                    self.values(values.iter().map(|(_, value)| value));
                }
                StatementKind::Macro(own) => drop(self.set.entry(own.number).or_insert(true)),
                StatementKind::Call { call, .. } => self.value(call),
                StatementKind::FilterBlock { filters, .. } => self.filters(filters),
                _ => {}
            }
        }
    }

    /// A name that a branch sets may have the context's value.
    fn branches(&mut self, branches: [&Body; 2]) {
        for branch in branches {
            let mut inner = Self {
                set: self.set.clone(),
            };
            inner.body(branch);
            for name in inner.set.into_keys() {
                self.set.entry(name).or_insert(false);
            }
        }
    }

    fn filters(&mut self, filters: &[Filter]) {
        for filter in filters {
            self.arguments(&filter.arguments);
        }
    }

    fn arguments(&mut self, arguments: &Arguments) {
        let keywords = arguments.keywords.iter().map(|(_, value)| value);
        let more = arguments.more.iter().chain(&arguments.more_keywords);
        let all = arguments.positional.iter().chain(keywords);
        self.values(all.chain(more.map(|value| &**value)));
    }

    fn values<'a>(&mut self, all: impl IntoIterator<Item = &'a Expression>) {
        for value in all {
            self.value(value);
        }
    }

    fn value(&mut self, value: &Expression) {
        match value {
            Expression::Name(name) => drop(self.set.entry(*name).or_insert(false)),
            Expression::List(all) | Expression::Tuple(all) | Expression::Concat(all) => {
                self.values(all);
            }
            Expression::Dict(pairs) => {
                self.values(pairs.iter().flat_map(|(key, value)| [key, value]));
            }
            Expression::Choice(parts, other) => self.values(parts.iter().chain(other.as_deref())),
            Expression::And(parts) | Expression::Or(parts) | Expression::Binary(_, parts) => {
                self.values(parts.iter());
            }
            Expression::Not(own)
            | Expression::Negative(own)
            | Expression::Positive(own)
            | Expression::Attribute(own, _) => self.value(own),
            Expression::Compare(first, others) => {
                self.value(first);
                self.values(others.iter().map(|(_, other)| other));
            }
            Expression::Item(own, key) => self.values([&**own, &**key]),
            Expression::Slice(own, parts) => {
                self.value(own);
                self.values(parts.iter().flatten());
            }
            Expression::Call(own, arguments) => {
                self.value(own);
                self.arguments(arguments);
            }
            Expression::Filtered(own, filter) | Expression::Test(own, filter) => {
                self.value(own);
                self.arguments(&filter.arguments);
            }
            Expression::None
            | Expression::Bool(_)
            | Expression::Int(_)
            | Expression::Float(_)
            | Expression::Text(_) => {}
        }
    }
}
