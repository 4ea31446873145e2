//! The variable `loop`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::compare::equal;
use super::value::{Given, LoopContext, Made, Value, fail};

/// The items of a loop that were not reached yet: those of its iterable, taken through its condition.
pub(super) type Source = dyn FnMut() -> Made<Option<Value>>;

/// Runs a recursive loop with other items, in this depth. Returns its text.
pub(super) type Recursion = dyn Fn(Value, usize) -> Made<Value>;

/// A running loop. The condition of a loop is asked when its item is needed, and not before.
pub(super) struct Loop {
    source: RefCell<Box<Source>>,
    /// Items that were looked at ahead of their turn.
    ahead: RefCell<VecDeque<Value>>,
    index: Cell<usize>,
    length: Cell<Option<usize>>,
    before: RefCell<Option<Value>>,
    current: RefCell<Option<Value>>,
    changed: RefCell<Option<Vec<Value>>>,
    depth: usize,
    recursive: Option<Box<Recursion>>,
}

impl std::fmt::Debug for Loop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loop")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

impl Loop {
    pub(super) fn new(
        source: Box<Source>,
        length: Option<usize>,
        depth: usize,
        recursive: Option<Box<Recursion>>,
    ) -> Self {
        Self {
            source: RefCell::new(source),
            ahead: RefCell::default(),
            index: Cell::new(0),
            length: Cell::new(length),
            before: RefCell::default(),
            current: RefCell::default(),
            changed: RefCell::default(),
            depth,
            recursive,
        }
    }

    fn pull(&self) -> Made<Option<Value>> {
        (self.source.borrow_mut())()
    }

    /// Moves to the next item.
    pub(super) fn advance(&self) -> Made<Option<Value>> {
        let ahead = { self.ahead.borrow_mut().pop_front() };
        let next = match ahead {
            Some(next) => Some(next),
            None => self.pull()?,
        };
        if let Some(next) = &next {
            self.index.set(self.index.get() + 1);
            *self.before.borrow_mut() = self.current.replace(Some(next.clone()));
        }
        Ok(next)
    }

    fn peek(&self) -> Made<Option<Value>> {
        if self.ahead.borrow().is_empty() {
            let next = self.pull()?;
            self.ahead.borrow_mut().extend(next);
        }
        Ok(self.ahead.borrow().front().cloned())
    }

    fn cycle(&self, values: &[Value]) -> Made<Value> {
        if values.is_empty() {
            return fail("no items for cycling given");
        }
        let at = (self.index.get().max(1) - 1) % values.len();
        Ok(values[at].clone())
    }

    /// Returns whether `values` differ from those of the last call.
    fn changed(&self, values: Vec<Value>) -> Made<bool> {
        let mut last = self.changed.borrow_mut();
        if let Some(last) = &*last {
            let mut same = last.len() == values.len();
            for (one, other) in last.iter().zip(&values) {
                same = same && equal(one, other)?;
            }
            if same {
                return Ok(false);
            }
        }
        *last = Some(values);
        Ok(true)
    }
}

impl LoopContext for Loop {
    fn length(&self) -> Made<usize> {
        if let Some(length) = self.length.get() {
            return Ok(length);
        }
        while let Some(next) = self.pull()? {
            self.ahead.borrow_mut().push_back(next);
        }
        let length = self.index.get() + self.ahead.borrow().len();
        self.length.set(Some(length));
        Ok(length)
    }

    fn attribute(&self, name: &str) -> Made<Option<Value>> {
        let index = self.index.get();
        Ok(Some(match name {
            "index" => Value::size(index),
            "index0" => Value::Int(index as i128 - 1),
            "length" => Value::size(self.length()?),
            "revindex" => Value::Int(self.length()? as i128 - index as i128 + 1),
            "revindex0" => Value::Int(self.length()? as i128 - index as i128),
            "first" => Value::Bool(index == 1),
            "last" => Value::Bool(self.peek()?.is_none()),
            "depth" => Value::size(self.depth + 1),
            "depth0" => Value::size(self.depth),
            "previtem" => match &*self.before.borrow() {
                Some(before) => before.clone(),
                None => Value::Undefined(Some("loop.previtem".into())),
            },
            "nextitem" => match self.peek()? {
                Some(next) => next,
                None => Value::Undefined(Some("loop.nextitem".into())),
            },
            _ => return Ok(None),
        }))
    }

    fn method(&self, name: &str, given: Given) -> Made<Value> {
        match name {
            "cycle" => self.cycle(&given.positional),
            _ => self.changed(given.positional).map(Value::Bool),
        }
    }

    fn is_recursive(&self) -> bool {
        self.recursive.is_some()
    }

    fn call(&self, given: Given) -> Made<Value> {
        let Some(run) = &self.recursive else {
            return fail("The loop must have the 'recursive' marker to be called recursively.");
        };
        let [items] = given.plain("loop", 1)?;
        run(items.unwrap_or(Value::None), self.depth + 1)
    }
}
