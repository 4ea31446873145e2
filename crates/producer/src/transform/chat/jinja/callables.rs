//! Jinja2's functions.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::arguments::{int_of, text_of};
use super::dates::Date;
use super::range::Range;
use super::value::{Callable, Dict, Function, Given, Made, Value, fail, no_attribute};

/// Most items of a range, as in Jinja2's sandbox.
const RANGE_MAX: usize = 100_000;

/// Returns the function of this name, if there is one. `date` is that of `strftime_now`.
pub(super) fn function(name: &str, date: Option<Date>) -> Option<Value> {
    let kind = match name {
        "range" => Kind::Range,
        "dict" => Kind::Dict,
        "namespace" => Kind::Namespace,
        "cycler" => Kind::Cycler,
        "joiner" => Kind::Joiner,
        "raise_exception" => Kind::RaiseException,
        "strftime_now" => Kind::StrftimeNow(date),
        "lipsum" => Kind::Lipsum,
        _ => return None,
    };
    Some(called(kind))
}

/// Returns a value that a template can call.
pub(super) fn called(own: impl Function + 'static) -> Value {
    Value::Call(Rc::new(Callable::Function(Box::new(own))))
}

#[derive(Debug)]
enum Kind {
    Range,
    Dict,
    Namespace,
    Cycler,
    Joiner,
    RaiseException,
    StrftimeNow(Option<Date>),
    Lipsum,
}

impl Function for Kind {
    fn call(&self, given: Given) -> Made<Value> {
        match self {
            Self::Range => range(given),
            Self::Dict => dict(given).map(|dict| Value::Dict(Rc::new(dict))),
            Self::Namespace => namespace(given),
            Self::Cycler if given.positional.is_empty() => {
                fail("at least one item has to be provided")
            }
            Self::Cycler => Ok(called(Cycler {
                items: given.positional,
                at: Cell::new(0),
            })),
            Self::Joiner => {
                let [between] = given.bind("joiner", ["sep"], 0)?;
                Ok(called(Joiner {
                    between: between.unwrap_or_else(|| ", ".into()),
                    used: Cell::new(false),
                }))
            }
            Self::RaiseException => {
                let [message] = given.bind("raise_exception", ["message"], 1)?;
                fail(message.unwrap_or(Value::None).text()?)
            }
            Self::StrftimeNow(date) => {
                let [form] = given.bind("strftime_now", ["format"], 1)?;
                strftime_now(*date, &text_of(form, "strftime_now")?)
            }
            Self::Lipsum => fail("lipsum is random, so it is not supported"),
        }
    }
}

/// A cycler, which the function `cycler` makes.
#[derive(Debug)]
struct Cycler {
    items: Vec<Value>,
    at: Cell<usize>,
}

impl Function for Cycler {
    fn call(&self, _: Given) -> Made<Value> {
        fail("'Cycler' object is not callable")
    }

    fn methods(&self) -> &'static [&'static str] {
        &["next", "reset"]
    }

    fn method(&self, name: &str) -> Made<Value> {
        let at = self.at.get();
        if name == "reset" {
            self.at.set(0);
            return Ok(Value::None);
        }
        self.at.set((at + 1) % self.items.len());
        Ok(self.items[at].clone())
    }

    fn attribute(&self, name: &str) -> Made<Value> {
        match name {
            "current" => Ok(self.items[self.at.get()].clone()),
            _ => no_attribute(name),
        }
    }
}

/// A joiner, which the function `joiner` makes.
#[derive(Debug)]
struct Joiner {
    between: Value,
    used: Cell<bool>,
}

impl Function for Joiner {
    fn call(&self, _: Given) -> Made<Value> {
        Ok(if self.used.replace(true) {
            self.between.clone()
        } else {
            "".into()
        })
    }
}

/// Returns the configured date by a format.
fn strftime_now(date: Option<Date>, form: &str) -> Made<Value> {
    match date {
        Some(date) => date
            .strftime(form)
            .map_or_else(fail, |text| Ok(text.into())),
        None => fail(
            "it asks for today's date, so a replay would make other tokens; set chat.date to a fixed \
             one, as \"2026-11-27\"",
        ),
    }
}

/// Returns a namespace with these values.
fn namespace(given: Given) -> Made<Value> {
    let dict = dict(given)?;
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

/// Returns a dict of pairs and names, as Python's `dict(...)` makes it.
fn dict(given: Given) -> Made<Dict> {
    let mut made = Dict::default();
    if given.positional.len() > 1 {
        return fail("dict expected at most 1 argument");
    }
    match given.positional.into_iter().next() {
        None => {}
        Some(Value::Dict(dict)) => made = (*dict).clone(),
        Some(Value::Namespace(_)) => return fail("dict of a namespace is not supported"),
        Some(pairs) => {
            pairs.defined()?;
            for pair in pairs.items()? {
                match &pair.items()?[..] {
                    [key, value] => made.insert(key.clone(), value.clone())?,
                    _ => return fail("dict: an item is not a pair"),
                }
            }
        }
    }
    for (name, value) in given.keywords {
        made.insert(Value::Text(name), value)?;
    }
    Ok(made)
}
