//! Renders a program: its calls of macros, functions and methods.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::ast::{Expression, Macro};
use super::callables::{Callable, Function, Given};
use super::interpreter::Interpreter;
use super::methods::{self, int_of};
use super::scope::Scope;
use super::value::{Dict, Made, Range, Value, fail};

/// Most items of a range, as in Jinja2's sandbox.
const RANGE_MAX: usize = 100_000;

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
        let is_macro = |value: &Value| matches!(value, Value::Call(callable) if matches!(&**callable, Callable::Macro(..)));
        callee.defined()?;
        if !is_macro(&callee) {
            return fail("{% call %} of something that is not a macro is not supported");
        }
        self.call(&callee, given)
    }

    /// Calls a macro, a function, a method or a recursive loop.
    pub(super) fn call(self: &Rc<Self>, callee: &Value, given: Given) -> Made<Value> {
        callee.defined()?;
        match callee {
            Value::Call(callable) => match &**callable {
                Callable::Macro(own, scope) => self.macro_call(own, scope, given),
                Callable::Function(function) => self.function(*function, given),
                Callable::Method(value, name) => methods::call(value, name, given),
                Callable::Loop(state, "cycle") => state.cycle(&given.positional),
                Callable::Loop(state, _) => state.changed(given.positional).map(Value::Bool),
                Callable::Joiner(between, used) => Ok(if used.replace(true) {
                    between.clone()
                } else {
                    "".into()
                }),
                Callable::Cycler(..) => fail("'Cycler' object is not callable"),
            },
            Value::Loop(state) => self.recurse(state, given),
            other => fail(format!("'{}' object is not callable", other.type_name())),
        }
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

    /// Returns the configured date by a format.
    fn strftime_now(&self, form: &str) -> Made<Value> {
        match &self.date {
            Some(date) => date
                .strftime(form)
                .map_or_else(fail, |text| Ok(text.into())),
            None => fail(
                "it asks for today's date, so a replay would make other tokens; set chat.date to a fixed \
                 one, as \"2026-11-27\"",
            ),
        }
    }

    fn function(&self, function: Function, given: Given) -> Made<Value> {
        let made = |callable| Ok(Value::Call(Rc::new(callable)));
        match function {
            Function::Range => range(given),
            Function::Dict => methods::dict(given).map(|dict| Value::Dict(Rc::new(dict))),
            Function::Namespace => namespace(given),
            Function::Cycler if given.positional.is_empty() => {
                fail("at least one item has to be provided")
            }
            Function::Cycler => made(Callable::Cycler(given.positional, Cell::new(0))),
            Function::Joiner => {
                let [between] = given.bind("joiner", ["sep"], 0)?;
                made(Callable::Joiner(
                    between.unwrap_or_else(|| ", ".into()),
                    Cell::new(false),
                ))
            }
            Function::RaiseException => {
                let [message] = given.bind("raise_exception", ["message"], 1)?;
                fail(message.unwrap_or(Value::None).text()?)
            }
            Function::StrftimeNow => {
                let [form] = given.bind("strftime_now", ["format"], 1)?;
                let form = methods::text_of(form, "strftime_now")?;
                self.strftime_now(&form)
            }
            Function::Lipsum => fail("lipsum is random, so it is not supported"),
        }
    }
}

/// Takes the keyword argument `caller` of a call block, or an undefined value without one.
fn given_caller(given: &mut Given) -> Value {
    let mut names = given.keywords.iter().map(|(name, _)| name);
    let at = names.position(|name| &**name == "caller");
    let value = at.map(|at| given.keywords.remove(at).1);
    value.unwrap_or_else(|| Value::absent(&"caller".into()))
}

/// Returns a namespace with these values.
fn namespace(given: Given) -> Made<Value> {
    let dict = methods::dict(given)?;
    let hidden = dict
        .keys()
        .find(|key| key.as_text().is_some_and(|k| k.starts_with('_')));
    match hidden {
        Some(name) => fail(format!("a namespace can't hold {}", name.repr()?)),
        None => Ok(Value::Namespace(Rc::new(RefCell::new(dict)))),
    }
}

fn range(given: Given) -> Made<Value> {
    let [start, stop, step] = given.plain("range", 1)?;
    let (start, stop) = match stop {
        Some(stop) => (int_of(start, 0, "range")?, int_of(Some(stop), 0, "range")?),
        None => (0, int_of(start, 0, "range")?),
    };
    let step = int_of(step, 1, "range")?;
    if step == 0 {
        return fail("range() arg 3 must not be zero");
    }
    let far = |at: i128| at.abs() > 1 << 64;
    let range = Range { start, stop, step };
    if far(start) || far(stop) || far(step) || range.len() > RANGE_MAX {
        return fail(format!(
            "Range too big. The sandbox blocks ranges larger than {RANGE_MAX}."
        ));
    }
    Ok(Value::Range(range))
}
