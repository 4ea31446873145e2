//! Renders a program: its calls of macros, functions and methods.

use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::ast::{Expression, Macro};
use super::callables::called;
use super::interpreter::Interpreter;
use super::methods;
use super::scope::Scope;
use super::value::{Callable, Dict, Function, Given, Made, Value, fail};

impl Interpreter {
    /// Calls what a call block calls, with the block itself as `caller`.
    pub(super) fn call_with(
        self: &Rc<Self>,
        call: &Expression,
        caller: Value,
        scope: &Rc<Scope>,
    ) -> Made<Value> {
        let Expression::Call(callee, arguments) = call else {
            return fail("{% call %} without a call");
        };
        let callee = self.value(callee, scope)?;
        let mut given = self.arguments(arguments, scope)?;
        given.keywords.push(("caller".into(), caller));
        let is_macro = |value: &Value| match value {
            Value::Call(callable) => match &**callable {
                Callable::Function(function) => function.is_macro(),
                Callable::Method(..) => false,
            },
            _ => false,
        };
        callee.defined()?;
        if !is_macro(&callee) {
            return fail("{% call %} of something that is not a macro is not supported");
        }
        Self::call(&callee, given)
    }

    /// Calls a macro, a function, a method or a recursive loop.
    pub(super) fn call(callee: &Value, given: Given) -> Made<Value> {
        callee.defined()?;
        match callee {
            Value::Call(callable) => match &**callable {
                Callable::Method(value, name) => methods::call(value, name, given),
                Callable::Function(function) => function.call(given),
            },
            Value::Loop(state) => state.call(given),
            other => fail(format!("'{}' object is not callable", other.type_name())),
        }
    }

    /// Returns a macro as a value.
    pub(super) fn macro_value(self: &Rc<Self>, own: &Arc<Macro>, scope: &Rc<Scope>) -> Value {
        called(Defined {
            with: Rc::downgrade(self),
            own: own.clone(),
            scope: scope.clone(),
        })
    }

    fn macro_call(
        self: &Rc<Self>,
        own: &Arc<Macro>,
        scope: &Rc<Scope>,
        mut given: Given,
    ) -> Made<Value> {
        let scope = Scope::within(scope);
        let [_, caller, varargs, kwargs] = self.program.special;
        let more = given
            .positional
            .split_off(given.positional.len().min(own.arguments.len()));
        self.bind_arguments(own, &mut given, &scope)?;
        if own.takes_caller {
            scope.set(caller, given_caller(&mut given));
        }
        if own.takes_keywords {
            let named = given.keywords.drain(..);
            let pairs = named.map(|(name, value)| (Value::Text(name), value));
            let dict = Dict::from_pairs(pairs.collect())?;
            scope.set(kwargs, Value::Dict(Rc::new(dict)));
        }
        if let Some((name, _)) = given.keywords.first() {
            return fail(format!(
                "macro {:?} takes no keyword argument {name:?}",
                own.name
            ));
        }
        if own.takes_more {
            scope.set(varargs, Value::tuple(more));
        } else if !more.is_empty() {
            let most = own.arguments.len();
            return fail(format!(
                "macro {:?} takes not more than {most} argument(s)",
                own.name
            ));
        }
        let text = self.called(|| self.captured(|| self.body(&own.body, &scope)))?;
        Ok(text.into())
    }

    /// Sets the declared arguments of a macro in its scope: the given ones, else the defaults.
    fn bind_arguments(
        self: &Rc<Self>,
        own: &Macro,
        given: &mut Given,
        scope: &Rc<Scope>,
    ) -> Made<()> {
        let mut positional = std::mem::take(&mut given.positional).into_iter();
        let first = own.arguments.len() - own.defaults.len();
        for (n, (number, name)) in own.arguments.iter().enumerate() {
            let at = given.keywords.iter().position(|(given, _)| given == name);
            let value = match (positional.next(), at) {
                (Some(value), None) => value,
                (Some(_), Some(_)) => return fail(format!("{:?} got {name:?} twice", own.name)),
                (None, Some(at)) => given.keywords.remove(at).1,
                (None, None) if n >= first => self.value(&own.defaults[n - first], scope)?,
                (None, None) => Value::absent(name),
            };
            scope.set(*number, value);
        }
        Ok(())
    }
}

/// A macro and the scope around it.
struct Defined {
    /// The rendering that defined it. It holds scopes that hold this, so this does not hold it.
    with: Weak<Interpreter>,
    own: Arc<Macro>,
    scope: Rc<Scope>,
}

impl fmt::Debug for Defined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Macro")
            .field("name", &self.own.name)
            .finish_non_exhaustive()
    }
}

impl Function for Defined {
    fn call(&self, given: Given) -> Made<Value> {
        match self.with.upgrade() {
            Some(with) => with.macro_call(&self.own, &self.scope, given),
            None => fail("a macro outlives its rendering"),
        }
    }

    fn is_macro(&self) -> bool {
        true
    }
}

/// Takes the keyword argument `caller` of a call block, or an undefined value without one.
fn given_caller(given: &mut Given) -> Value {
    let mut names = given.keywords.iter().map(|(name, _)| name);
    let at = names.position(|name| &**name == "caller");
    let value = at.map(|at| given.keywords.remove(at).1);
    value.unwrap_or_else(|| Value::absent(&"caller".into()))
}
