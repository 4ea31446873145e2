//! Functions that templates written for Python's Jinja expect: `tojson` as `json.dumps` writes, `raise_exception`.
//! There is no clock on purpose: the same documents must give the same tokens on every day.

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
        let text = "the template asks for today's date, so a replay would make other tokens; write a fixed date";
        Err(Error::new(ErrorKind::InvalidOperation, text))
    });
}

/// Returns `json.dumps(value, ensure_ascii=False, indent=indent)`, as Python writes it.
fn tojson(value: Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // Accepted, as by Python, and without effect.
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
        None => value.serialize(&mut Serializer::with_formatter(&mut out, Python(OneLine))),
        Some(indent) => {
            let indent = " ".repeat(indent.min(16));
            let formatter = Python(PrettyFormatter::with_indent(indent.as_bytes()));
            value.serialize(&mut Serializer::with_formatter(&mut out, formatter))
        }
    };
    let failed = |e: String| Error::new(ErrorKind::BadSerialization, e);
    written.map_err(|e| failed(e.to_string()))?;
    String::from_utf8(out)
        .map(Value::from)
        .map_err(|e| failed(e.to_string()))
}

/// One line, with a space after each comma and colon.
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

/// The layout of another formatter, with fractions as Python writes them.
struct Python<F>(F);

macro_rules! layout_of_the_other {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        fn $name<W: ?Sized + io::Write>(&mut self, out: &mut W, $($argument: $type),*) -> io::Result<()> {
            self.0.$name(out, $($argument),*)
        }
    )*};
}

impl<F: Formatter> Formatter for Python<F> {
    layout_of_the_other! {
        begin_array();
        end_array();
        begin_array_value(first: bool);
        end_array_value();
        begin_object();
        end_object();
        begin_object_key(first: bool);
        end_object_key();
        begin_object_value();
        end_object_value();
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        out.write_all(repr(value).as_bytes())
    }
}

/// Returns Python's `repr` of a finite float: the shortest digits that are this number, as Rust finds them. Below
/// 0.0001 and from 1e16 on they have an exponent of at least two digits with a sign.
fn repr(value: f64) -> String {
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    // Rust's own form without an exponent has the same digits.
    let plain = value.to_string();
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_written_as_python_writes_them() {
        for expected in FLOATS.split_whitespace() {
            let value: f64 = expected.parse().unwrap();
            assert_eq!(repr(value), expected);
        }
        let mut env = Environment::new();
        add(&mut env);
        let value: serde_json::Value =
            serde_json::from_str(r#"{"a":[1e-5,{"b":1.0}],"c":1e16}"#).unwrap();
        let text = |template: &str| {
            env.render_str(template, minijinja::context! { v => &value })
                .unwrap()
        };
        assert_eq!(
            text("{{ v | tojson }}"),
            r#"{"a": [1e-05, {"b": 1.0}], "c": 1e+16}"#
        );
        let pretty =
            "{\n  \"a\": [\n    1e-05,\n    {\n      \"b\": 1.0\n    }\n  ],\n  \"c\": 1e+16\n}";
        assert_eq!(text("{{ v | tojson(indent=2) }}"), pretty);
    }

    /// Python's `repr` of edge cases and of random numbers.
    const FLOATS: &str = "
        0.0 -0.0 1.0 -1.5 0.1 0.30000000000000004 1000000000000000.0 1e+16 1e+17
        123456789012345.6 1234567890123456.8 9999999999999998.0 9007199254740992.0 0.0001
        0.00012345 1e-05 1e-05 9.999e-05 1e-07 5e-324 1.7976931348623157e+308
        2.2250738585072014e-308 1e+22 1e+23 1e+100 1e-100 100.0 3.14159 10928588.983213553
        1.4186613525849614e+134 -7.571968556055867e-74 -1.4074705188261364e+113
        -3.3339745473042614e-121 -1.2342180766211395e-271 -5.126864004244935e+111
        -2.1520217579844227e+32 0.1399601630397701 1.01853664031722e-244 2.9704598186234577e-115
        3.0534183338726823e+150 -2.3027782228163463e+146 3.56409621163656e+161
        6.352929017207453e-183 0.3146575865605324 -1.2761724801771812e-23
        2.0868668176225336e+195 3.66898827745704e-84 -1.389122273370197e+145
        0.005314509032582835 5.23850855188772e-06 -722465163202.1937 -0.00011032862772495712
        -9.964502755949306e-08 -0.05810872350097643 0.009202542004349992 74.48155308736037
        -0.03726972645300928 7844693774162.126 0.0025146039135425548 881952002175998.1
        -60624.19121479348 -4024.222042922645 -0.00017018657675450967 -472.37612210005955 ";
}
