//! Variables, by scope. A macro keeps the scope around it.

use std::cell::RefCell;
use std::rc::Rc;

use super::ast::Name;
use super::value::Value;

#[derive(Debug, Default)]
pub(super) struct Scope {
    parent: Option<Rc<Scope>>,
    values: RefCell<Vec<(Name, Value)>>,
}

impl Scope {
    pub(super) fn within(parent: &Rc<Self>) -> Rc<Self> {
        Rc::new(Self {
            parent: Some(parent.clone()),
            values: RefCell::default(),
        })
    }

    pub(super) fn set(&self, name: Name, value: Value) {
        let mut values = self.values.borrow_mut();
        match values.iter_mut().find(|(own, _)| *own == name) {
            Some((_, own)) => *own = value,
            None => values.push((name, value)),
        }
    }

    /// Drops all values: a macro among them holds this scope.
    pub(super) fn clear(&self) {
        self.values.take();
    }

    pub(super) fn get(&self, name: Name) -> Option<Value> {
        let mut scope = self;
        loop {
            let found = {
                let values = scope.values.borrow();
                values
                    .iter()
                    .find(|(own, _)| *own == name)
                    .map(|(_, value)| value.clone())
            };
            match (found, &scope.parent) {
                (Some(value), _) => return Some(value),
                (None, Some(parent)) => scope = parent,
                (None, None) => return None,
            }
        }
    }
}
