//! The functions that a template can call, and the arguments of a call.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::ast::Macro;
use super::loops::Loop;
use super::scope::Scope;
use super::value::{Made, Value, fail};

#[derive(Debug)]
pub(super) enum Callable {
    Macro(Arc<Macro>, Rc<Scope>),
    /// A function of this name.
    Function(Function),
    /// A method of a value.
    Method(Value, Arc<str>),
    Loop(Rc<Loop>, &'static str),
    Cycler(Vec<Value>, Cell<usize>),
    Joiner(Value, Cell<bool>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Range,
    Dict,
    Namespace,
    Cycler,
    Joiner,
    RaiseException,
    StrftimeNow,
    Lipsum,
}

/// The functions by their names.
pub(super) const FUNCTIONS: [(&str, Function); 8] = [
    ("range", Function::Range),
    ("dict", Function::Dict),
    ("namespace", Function::Namespace),
    ("cycler", Function::Cycler),
    ("joiner", Function::Joiner),
    ("raise_exception", Function::RaiseException),
    ("strftime_now", Function::StrftimeNow),
    ("lipsum", Function::Lipsum),
];

/// The arguments of a call.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) positional: Vec<Value>,
    pub(super) keywords: Vec<(Arc<str>, Value)>,
}

impl Given {
    /// Returns the arguments by the parameters `names`, of which the first `needed` must be given.
    pub(super) fn bind<const N: usize>(
        self,
        function: &str,
        names: [&str; N],
        needed: usize,
    ) -> Made<[Option<Value>; N]> {
        let mut bound = [const { None }; N];
        if self.positional.len() > N {
            return fail(format!("{function} takes at most {N} arguments"));
        }
        for (place, value) in bound.iter_mut().zip(self.positional) {
            *place = Some(value);
        }
        for (name, value) in self.keywords {
            match names.iter().position(|own| *own == &*name) {
                Some(at) if bound[at].is_none() => bound[at] = Some(value),
                Some(_) => return fail(format!("{function} got multiple values for {name:?}")),
                None => return fail(format!("{function} got an unexpected argument {name:?}")),
            }
        }
        match (0..needed).find(|at| bound[*at].is_none()) {
            Some(at) => fail(format!("{function} lacks its argument {:?}", names[at])),
            None => Ok(bound),
        }
    }

    /// Returns the arguments of a function that takes no names.
    pub(super) fn plain<const N: usize>(
        self,
        function: &str,
        needed: usize,
    ) -> Made<[Option<Value>; N]> {
        if let Some((name, _)) = self.keywords.first() {
            return fail(format!("{function} takes no argument named {name:?}"));
        }
        self.bind(function, [""; N], needed)
    }
}
