//! The values of templates, as Python has them. Lists and dicts never change, as in Jinja2's immutable sandbox.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use super::range::Range;

/// The reason why a template fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) text: String,
    /// The line of the template; 0 until it is known.
    pub(super) line: u32,
}

pub(super) type Made<T> = Result<T, Fault>;

/// Returns an error with this text.
pub(super) fn fail<T>(why: impl Into<String>) -> Made<T> {
    let text = why.into();
    Err(Fault { text, line: 0 })
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Holds the name that has no value.
    Undefined(Option<Arc<str>>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Arc<str>),
    /// Text that `escape` or `safe` made.
    Markup(Arc<str>),
    List(Rc<Vec<Value>>),
    Tuple(Rc<Vec<Value>>),
    /// A pair of `groupby`: its key and its items.
    Group(Rc<Vec<Value>>),
    Dict(Rc<Dict>),
    View(View, Rc<Dict>),
    Range(Range),
    Generator(Rc<RefCell<VecDeque<Value>>>),
    Namespace(Rc<RefCell<Dict>>),
    Loop(Rc<dyn LoopContext>),
    Call(Rc<Callable>),
}

/// Anything that a template can call by a name.
#[derive(Debug)]
pub(super) enum Callable {
    /// A method of a value, by its name.
    Method(Value, Arc<str>),
    Function(Box<dyn Function>),
}

/// A function, a macro, or an object that can be called.
pub(super) trait Function: fmt::Debug {
    fn call(&self, given: Given) -> Made<Value>;

    /// Returns whether a call block can call it.
    fn is_macro(&self) -> bool {
        false
    }

    /// Returns the names of its methods.
    fn methods(&self) -> &'static [&'static str] {
        &[]
    }

    /// Calls one of its methods.
    fn method(&self, _name: &str) -> Made<Value> {
        fail("the method of a function is not supported")
    }

    /// Returns a value among its attributes.
    fn attribute(&self, name: &str) -> Made<Value> {
        no_attribute(name)
    }
}

/// Fails for an attribute that a function does not have here.
pub(super) fn no_attribute(name: &str) -> Made<Value> {
    fail(format!(
        "the attribute {name:?} of a function is not supported"
    ))
}

/// The variable `loop` of a running loop.
pub(super) trait LoopContext: fmt::Debug {
    /// Returns the number of items.
    fn length(&self) -> Made<usize>;

    /// Returns a value among its attributes; `None` without one of this name.
    fn attribute(&self, name: &str) -> Made<Option<Value>>;

    /// Calls one of its methods, `cycle` and `changed`.
    fn method(&self, name: &str, given: Given) -> Made<Value>;

    fn is_recursive(&self) -> bool;

    /// Runs the loop with the items of a level below.
    fn call(&self, given: Given) -> Made<Value>;
}

/// The arguments of a call.
#[derive(Debug, Default, Clone)]
pub(super) struct Given {
    pub(super) positional: Vec<Value>,
    pub(super) keywords: Vec<(Arc<str>, Value)>,
}

/// A part of a dict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Keys,
    Values,
    Items,
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl Value {
    pub(super) fn list(items: Vec<Self>) -> Self {
        Self::List(Rc::new(items))
    }

    pub(super) fn tuple(items: Vec<Self>) -> Self {
        Self::Tuple(Rc::new(items))
    }

    pub(super) fn generator(items: Vec<Self>) -> Self {
        Self::Generator(Rc::new(RefCell::new(items.into())))
    }

    pub(super) fn size(count: usize) -> Self {
        Self::Int(count as i128)
    }

    /// Returns the undefined value of `name`.
    pub(super) fn absent(name: &Arc<str>) -> Self {
        Self::Undefined(Some(name.clone()))
    }

    pub(super) fn as_text(&self) -> Option<&Arc<str>> {
        match self {
            Self::Text(text) | Self::Markup(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the name of the type, as Python has it.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Undefined(_) => "Undefined",
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "str",
            Self::Markup(_) => "Markup",
            Self::List(_) => "list",
            Self::Tuple(_) | Self::Group(_) => "tuple",
            Self::Dict(_) => "dict",
            Self::View(View::Keys, _) => "dict_keys",
            Self::View(View::Values, _) => "dict_values",
            Self::View(View::Items, _) => "dict_items",
            Self::Range(_) => "range",
            Self::Generator(_) => "generator",
            Self::Namespace(_) => "Namespace",
            Self::Loop(_) => "LoopContext",
            Self::Call(_) => "function",
        }
    }

    /// Returns an error where the value is undefined.
    pub(super) fn defined(&self) -> Made<()> {
        match self {
            Self::Undefined(Some(name)) => fail(format!("{name:?} is undefined")),
            Self::Undefined(None) => fail("a value is undefined"),
            _ => Ok(()),
        }
    }

    pub(super) fn is_true(&self) -> Made<bool> {
        Ok(match self {
            Self::Undefined(_) | Self::None => false,
            Self::Bool(value) => *value,
            Self::Int(value) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::Text(text) | Self::Markup(text) => !text.is_empty(),
            Self::List(items) | Self::Tuple(items) | Self::Group(items) => !items.is_empty(),
            Self::Dict(dict) | Self::View(_, dict) => !dict.entries.is_empty(),
            Self::Range(range) => range.len() > 0,
            Self::Loop(state) => state.length()? > 0,
            Self::Generator(_) | Self::Namespace(_) | Self::Call(_) => true,
        })
    }

    /// Returns all items of something iterable; those of a generator are used up.
    pub(super) fn items(&self) -> Made<Vec<Self>> {
        Ok(match self {
            Self::Undefined(_) => Vec::new(),
            Self::Text(text) => text.chars().map(|c| c.to_string().into()).collect(),
            Self::List(items) | Self::Tuple(items) | Self::Group(items) => items.to_vec(),
            Self::Dict(dict) | Self::View(View::Keys, dict) => dict.keys().cloned().collect(),
            Self::View(View::Values, dict) => dict.entries.iter().map(|e| e.1.clone()).collect(),
            Self::View(View::Items, dict) => {
                let pair =
                    |(key, value): &(Self, Self)| Self::tuple(vec![key.clone(), value.clone()]);
                dict.entries.iter().map(pair).collect()
            }
            Self::Range(range) => range.numbers().map(Self::Int).collect(),
            Self::Generator(items) => items.borrow_mut().drain(..).collect(),
            Self::Markup(_) | Self::Loop(_) => {
                return fail(format!(
                    "iteration over {} is not supported",
                    self.type_name()
                ));
            }
            _ => return fail(format!("'{}' object is not iterable", self.type_name())),
        })
    }

    pub(super) fn is_iterable(&self) -> bool {
        !matches!(
            self,
            Self::None
                | Self::Bool(_)
                | Self::Int(_)
                | Self::Float(_)
                | Self::Namespace(_)
                | Self::Call(_)
        )
    }

    pub(super) fn len(&self) -> Made<usize> {
        Ok(match self {
            Self::Undefined(_) => 0,
            Self::Text(text) | Self::Markup(text) => text.chars().count(),
            Self::List(items) | Self::Tuple(items) | Self::Group(items) => items.len(),
            Self::Dict(dict) | Self::View(_, dict) => dict.entries.len(),
            Self::Range(range) => range.len(),
            Self::Loop(state) => state.length()?,
            _ => {
                return fail(format!(
                    "object of type '{}' has no len()",
                    self.type_name()
                ));
            }
        })
    }
}

/// A key of a dict: numbers of equal value are one key, as in Python.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    None,
    Int(i128),
    Float(u64),
    Text(Arc<str>),
    Tuple(Vec<Key>),
}

impl Key {
    fn from_value(value: &Value) -> Made<Self> {
        Ok(match value {
            Value::None => Self::None,
            Value::Bool(value) => Self::Int(i128::from(*value)),
            Value::Int(value) => Self::Int(*value),
            Value::Float(value) => match whole(*value) {
                Some(whole) => Self::Int(whole),
                None => Self::Float(value.to_bits()),
            },
            Value::Text(text) | Value::Markup(text) => Self::Text(text.clone()),
            Value::Tuple(items) | Value::Group(items) => {
                Self::Tuple(items.iter().map(Self::from_value).collect::<Made<_>>()?)
            }
            other => return fail(format!("unhashable type: '{}'", other.type_name())),
        })
    }
}

/// Returns a float without a fraction as a whole number.
#[expect(clippy::cast_possible_truncation, reason = "the bound is within i128")]
pub(super) fn whole(value: f64) -> Option<i128> {
    (value.fract() == 0.0 && value.abs() < 1e38).then_some(value as i128)
}

/// Number of entries from which a dict has an index.
const INDEX_FROM: usize = 12;

/// A dict in the order of its insertions.
#[derive(Clone, Default)]
pub(super) struct Dict {
    pub(super) entries: Vec<(Value, Value)>,
    index: Option<HashMap<Key, usize>>,
}

impl fmt::Debug for Dict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.entries.iter().map(|e| (&e.0, &e.1)))
            .finish()
    }
}

impl Dict {
    pub(super) fn from_pairs(pairs: Vec<(Value, Value)>) -> Made<Self> {
        let mut dict = Self::default();
        for (key, value) in pairs {
            dict.insert(key, value)?;
        }
        Ok(dict)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Value> {
        self.entries.iter().map(|entry| &entry.0)
    }

    fn place(&self, key: &Value) -> Made<Option<usize>> {
        if let (None, Value::Text(text) | Value::Markup(text)) = (&self.index, key) {
            return Ok(self.place_of_text(text));
        }
        let key = Key::from_value(key)?;
        if let Some(index) = &self.index {
            return Ok(index.get(&key).copied());
        }
        for (at, (own, _)) in self.entries.iter().enumerate() {
            if Key::from_value(own)? == key {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn place_of_text(&self, text: &Arc<str>) -> Option<usize> {
        if let Some(index) = &self.index {
            return index.get(&Key::Text(text.clone())).copied();
        }
        self.keys()
            .position(|own| own.as_text().is_some_and(|own| own == text))
    }

    pub(super) fn get(&self, key: &Value) -> Made<Option<&Value>> {
        Ok(self.place(key)?.map(|at| &self.entries[at].1))
    }

    pub(super) fn get_text(&self, key: &Arc<str>) -> Option<&Value> {
        self.place_of_text(key).map(|at| &self.entries[at].1)
    }

    pub(super) fn insert(&mut self, key: Value, value: Value) -> Made<()> {
        if let Some(at) = self.place(&key)? {
            self.entries[at].1 = value;
            return Ok(());
        }
        let at = self.entries.len();
        if let Some(index) = &mut self.index {
            index.insert(Key::from_value(&key)?, at);
        }
        self.entries.push((key, value));
        if self.index.is_none() && self.entries.len() >= INDEX_FROM {
            let keys = self
                .keys()
                .map(Key::from_value)
                .collect::<Made<Vec<Key>>>()?;
            self.index = Some(keys.into_iter().zip(0..).collect());
        }
        Ok(())
    }
}
