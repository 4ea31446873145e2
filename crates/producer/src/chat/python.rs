//! What templates written for Python's Jinja expect: `tojson` as `json.dumps` writes, `raise_exception`.
//! The clock is missing on purpose: the same documents must give the same tokens on every day.

use std::io;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

pub(super) fn add(env: &mut Environment<'_>) {
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.add_filter("tojson", tojson);
    env.add_function(
        "raise_exception",
        |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        },
    );
    env.add_function("strftime_now", |_: Value| -> Result<Value, Error> {
        let text = "the template asks for today's date, so that a replay would make other tokens; write a fixed one";
        Err(Error::new(ErrorKind::InvalidOperation, text))
    });
}

/// `json.dumps(value, ensure_ascii=False, indent=indent)`.
fn tojson(value: Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // Templates may pass what Python takes too.
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    if value.kind() == ValueKind::Undefined {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "tojson of an undefined value",
        ));
    }
    let mut out = Vec::new();
    let written = match indent {
        None => value.serialize(&mut Serializer::with_formatter(&mut out, OneLine)),
        Some(indent) => {
            let indent = " ".repeat(indent.min(16));
            let formatter = PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut out, formatter))
        }
    };
    let failed = |e: String| Error::new(ErrorKind::BadSerialization, e);
    written.map_err(|e| failed(e.to_string()))?;
    String::from_utf8(out)
        .map(Value::from)
        .map_err(|e| failed(e.to_string()))
}

/// With a space after each comma and colon.
struct OneLine;

impl OneLine {
    fn comma<W: ?Sized + io::Write>(out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }
}

impl Formatter for OneLine {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        Self::comma(out, first)
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        Self::comma(out, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}
