//! The arguments of calls: by their parameters, and as what they must be.

use super::numbers::{Number, number};
use super::value::{Given, Made, Value, fail};

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

/// Returns a text argument.
pub(super) fn text_of(value: Option<Value>, function: &str) -> Made<String> {
    match value {
        Some(Value::Text(text)) => Ok(text.to_string()),
        Some(other) => {
            other.defined()?;
            fail(format!(
                "{function}: a text is needed, not a {}",
                other.type_name()
            ))
        }
        None => fail(format!("{function} lacks an argument")),
    }
}

/// Returns a text argument that may be absent.
pub(super) fn text_or(default: &str, value: Option<Value>, function: &str) -> Made<String> {
    match value {
        None => Ok(default.to_owned()),
        given => text_of(given, function),
    }
}

/// Returns a whole number that an argument gives.
pub(super) fn int_of(value: Option<Value>, default: i128, function: &str) -> Made<i128> {
    match value {
        None => Ok(default),
        Some(value) => {
            if let Some(Number::Int(value)) = number(&value) {
                return Ok(value);
            }
            value.defined()?;
            fail(format!(
                "{function}: a whole number is needed, not a {}",
                value.type_name()
            ))
        }
    }
}

/// Returns an argument unless it is `None`.
pub(super) fn is_given(value: Option<Value>) -> Option<Value> {
    value.filter(|value| !matches!(value, Value::None))
}

/// Returns the truth of an argument; one that is absent is false.
pub(super) fn truth(value: Option<Value>) -> Made<bool> {
    value.map_or(Ok(false), |value| value.is_true())
}
