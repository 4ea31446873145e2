//! Renders a program: its expressions.

use std::rc::Rc;

use super::ast::{Arguments, Comparison, Expression, Filter, Name};
use super::compare::holds;
use super::interpreter::Interpreter;
use super::operators::{binary, signed};
use super::scope::Scope;
use super::value::{Dict, Given, Made, Value, fail};
use super::{attributes, filters, predicates};

impl Interpreter {
    pub(super) fn name(&self, name: Name, scope: &Rc<Scope>) -> Value {
        let place = name as usize;
        let found = scope
            .get(name)
            .or_else(|| self.globals.get(place).cloned().flatten());
        found.unwrap_or_else(|| match self.program.names.get(place) {
            Some(name) => Value::absent(name),
            None => Value::Undefined(None),
        })
    }

    pub(super) fn value(
        self: &Rc<Self>,
        expression: &Expression,
        scope: &Rc<Scope>,
    ) -> Made<Value> {
        self.step()?;
        Ok(match expression {
            Expression::None => Value::None,
            Expression::Bool(value) => Value::Bool(*value),
            Expression::Int(value) => Value::Int(*value),
            Expression::Float(value) => Value::Float(*value),
            Expression::Text(text) => Value::Text(text.clone()),
            Expression::Name(name) => self.name(*name, scope),
            Expression::List(items) => Value::list(self.values(items, scope)?),
            Expression::Tuple(items) => Value::tuple(self.values(items, scope)?),
            Expression::Dict(pairs) => self.dict(pairs, scope)?,
            Expression::Choice(parts, other) => self.choice(parts, other.as_deref(), scope)?,
            Expression::And(parts) => self.decided_by(false, parts, scope)?,
            Expression::Or(parts) => self.decided_by(true, parts, scope)?,
            Expression::Not(value) => Value::Bool(!self.value(value, scope)?.is_true()?),
            Expression::Negative(value) => signed(&self.value(value, scope)?, true)?,
            Expression::Positive(value) => signed(&self.value(value, scope)?, false)?,
            Expression::Binary(operator, parts) => {
                let left = self.value(&parts[0], scope)?;
                binary(*operator, &left, &self.value(&parts[1], scope)?)?
            }
            Expression::Concat(parts) => self.concatenated(parts, scope)?,
            Expression::Compare(first, others) => self.compared(first, others, scope)?,
            Expression::Attribute(value, name) => {
                attributes::attribute(&self.value(value, scope)?, name)?
            }
            Expression::Item(value, key) => {
                let value = self.value(value, scope)?;
                attributes::item(&value, &self.value(key, scope)?)?
            }
            Expression::Slice(value, parts) => self.slice(value, parts, scope)?,
            Expression::Call(callee, arguments) => {
                let callee = self.value(callee, scope)?;
                Self::call(&callee, self.arguments(arguments, scope)?)?
            }
            Expression::Filtered(value, filter) => self.filter(value, filter, scope)?,
            Expression::Test(value, test) => Value::Bool(self.test(value, test, scope)?),
        })
    }

    fn dict(self: &Rc<Self>, pairs: &[(Expression, Expression)], scope: &Rc<Scope>) -> Made<Value> {
        let mut dict = Dict::default();
        for (key, value) in pairs {
            let key = self.value(key, scope)?;
            dict.insert(key, self.value(value, scope)?)?;
        }
        Ok(Value::Dict(Rc::new(dict)))
    }

    /// Returns the first part if the second one is true, else the value after `else`.
    fn choice(
        self: &Rc<Self>,
        parts: &[Expression; 2],
        other: Option<&Expression>,
        scope: &Rc<Scope>,
    ) -> Made<Value> {
        if self.value(&parts[1], scope)?.is_true()? {
            self.value(&parts[0], scope)
        } else if let Some(other) = other {
            self.value(other, scope)
        } else {
            Ok(Value::Undefined(None))
        }
    }

    fn concatenated(self: &Rc<Self>, parts: &[Expression], scope: &Rc<Scope>) -> Made<Value> {
        let mut out = String::new();
        for part in self.values(parts, scope)? {
            part.write_text(&mut out)?;
        }
        Ok(out.into())
    }

    fn filter(
        self: &Rc<Self>,
        value: &Expression,
        filter: &Filter,
        scope: &Rc<Scope>,
    ) -> Made<Value> {
        let value = self.value(value, scope)?;
        let given = self.arguments(&filter.arguments, scope)?;
        filters::apply(&filter.name, &value, given)
    }

    fn test(self: &Rc<Self>, value: &Expression, test: &Filter, scope: &Rc<Scope>) -> Made<bool> {
        let value = self.value(value, scope)?;
        let given = self.arguments(&test.arguments, scope)?;
        predicates::apply(&test.name, &value, given)
    }

    /// Returns the first of two values if its truth is `decisive`, else the second, which is not made before.
    fn decided_by(
        self: &Rc<Self>,
        decisive: bool,
        parts: &[Expression; 2],
        scope: &Rc<Scope>,
    ) -> Made<Value> {
        let left = self.value(&parts[0], scope)?;
        if left.is_true()? == decisive {
            return Ok(left);
        }
        self.value(&parts[1], scope)
    }

    fn slice(
        self: &Rc<Self>,
        value: &Expression,
        bounds: &[Option<Expression>; 3],
        scope: &Rc<Scope>,
    ) -> Made<Value> {
        let value = self.value(value, scope)?;
        let [start, stop, step] = bounds;
        let part = |part: &Option<Expression>| match part {
            Some(part) => self.value(part, scope),
            None => Ok(Value::None),
        };
        attributes::slice(&value, &[part(start)?, part(stop)?, part(step)?])
    }

    fn values(self: &Rc<Self>, all: &[Expression], scope: &Rc<Scope>) -> Made<Vec<Value>> {
        all.iter().map(|one| self.value(one, scope)).collect()
    }

    fn compared(
        self: &Rc<Self>,
        first: &Expression,
        others: &[(Comparison, Expression)],
        scope: &Rc<Scope>,
    ) -> Made<Value> {
        let mut left = self.value(first, scope)?;
        for (comparison, right) in others {
            let right = self.value(right, scope)?;
            if !holds(*comparison, &left, &right)? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    pub(super) fn arguments(
        self: &Rc<Self>,
        arguments: &Arguments,
        scope: &Rc<Scope>,
    ) -> Made<Given> {
        let mut given = Given {
            positional: self.values(&arguments.positional, scope)?,
            keywords: Vec::new(),
        };
        for (name, value) in &arguments.keywords {
            given
                .keywords
                .push((name.clone(), self.value(value, scope)?));
        }
        if let Some(more) = &arguments.more {
            let more = self.value(more, scope)?;
            given.positional.extend(more.items()?);
        }
        if let Some(more) = &arguments.more_keywords {
            let Value::Dict(dict) = self.value(more, scope)? else {
                return fail("argument after ** must be a mapping");
            };
            for (name, value) in &dict.entries {
                let Value::Text(name) = name else {
                    return fail("keywords must be strings");
                };
                if given.keywords.iter().any(|(own, _)| own == name) {
                    return fail(format!("got multiple values for keyword argument {name:?}"));
                }
                given.keywords.push((name.clone(), value.clone()));
            }
        }
        Ok(given)
    }
}
