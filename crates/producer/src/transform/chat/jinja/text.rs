//! Values as Python's `str` and `repr` write them.

use super::range::Range;
use super::value::{Dict, LoopContext, Made, Value, View, fail};

/// Most levels of nested values.
const DEPTH_MAX: u32 = 150;

/// Returns whether Python's `isspace` holds.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

impl Value {
    /// Adds what Python's `str` makes of the value.
    pub(super) fn write_text(&self, out: &mut String) -> Made<()> {
        match self {
            Self::Undefined(_) => Ok(()),
            Self::Text(text) | Self::Markup(text) => {
                out.push_str(text);
                Ok(())
            }
            _ => self.write_repr(out, DEPTH_MAX),
        }
    }

    /// Returns what Python's `str` makes of the value.
    pub(super) fn text(&self) -> Made<String> {
        let mut out = String::new();
        self.write_text(&mut out)?;
        Ok(out)
    }

    /// Returns what Python's `repr` makes of the value.
    pub(super) fn repr(&self) -> Made<String> {
        let mut out = String::new();
        self.write_repr(&mut out, DEPTH_MAX)?;
        Ok(out)
    }

    fn write_repr(&self, out: &mut String, depth: u32) -> Made<()> {
        let Some(depth) = depth.checked_sub(1) else {
            return fail("a value is nested too deeply to be printed");
        };
        match self {
            Self::Undefined(_) => out.push_str("Undefined"),
            Self::None => out.push_str("None"),
            Self::Bool(true) => out.push_str("True"),
            Self::Bool(false) => out.push_str("False"),
            Self::Int(value) => out.push_str(&value.to_string()),
            Self::Float(value) => out.push_str(&float(*value)),
            Self::Text(text) => quoted(text, out),
            Self::Markup(text) => {
                out.push_str("Markup(");
                quoted(text, out);
                out.push(')');
            }
            Self::List(items) => {
                out.push('[');
                write_all(items, out, depth)?;
                out.push(']');
            }
            Self::Tuple(items) | Self::Group(items) => write_tuple(items, out, depth)?,
            Self::Dict(dict) => write_dict(dict, out, depth)?,
            Self::View(view, dict) => {
                out.push_str(self.type_name());
                write_view(*view, dict, out, depth)?;
            }
            Self::Range(range) => out.push_str(&range_text(range)),
            Self::Namespace(values) => write_namespace(&values.borrow(), out, depth)?,
            Self::Loop(state) => out.push_str(&loop_text(&**state)?),
            Self::Generator(_) | Self::Call(_) => {
                return fail(format!("printing a {} is not supported", self.type_name()));
            }
        }
        Ok(())
    }
}

fn range_text(range: &Range) -> String {
    match range.step {
        1 => format!("range({}, {})", range.start, range.stop),
        step => format!("range({}, {}, {step})", range.start, range.stop),
    }
}

fn loop_text(state: &dyn LoopContext) -> Made<String> {
    let index = state.attribute("index")?;
    let of = state.length()?.to_string();
    let at = index.unwrap_or(Value::None).text()?;
    Ok(["<LoopContext ", &at, "/", &of, ">"].concat())
}

fn write_namespace(values: &Dict, out: &mut String, depth: u32) -> Made<()> {
    out.push_str("<Namespace ");
    let dict = Value::Dict(std::rc::Rc::new(values.clone()));
    dict.write_repr(out, depth)?;
    out.push('>');
    Ok(())
}

fn write_dict(dict: &Dict, out: &mut String, depth: u32) -> Made<()> {
    out.push('{');
    for (n, (key, value)) in dict.entries.iter().enumerate() {
        if n > 0 {
            out.push_str(", ");
        }
        key.write_repr(out, depth)?;
        out.push_str(": ");
        value.write_repr(out, depth)?;
    }
    out.push('}');
    Ok(())
}

fn write_view(view: View, dict: &Dict, out: &mut String, depth: u32) -> Made<()> {
    out.push_str("([");
    for (n, (key, value)) in dict.entries.iter().enumerate() {
        if n > 0 {
            out.push_str(", ");
        }
        match view {
            View::Keys => key.write_repr(out, depth)?,
            View::Values => value.write_repr(out, depth)?,
            View::Items => write_tuple(&[key.clone(), value.clone()], out, depth)?,
        }
    }
    out.push_str("])");
    Ok(())
}

fn write_all(items: &[Value], out: &mut String, depth: u32) -> Made<()> {
    for (n, item) in items.iter().enumerate() {
        if n > 0 {
            out.push_str(", ");
        }
        item.write_repr(out, depth)?;
    }
    Ok(())
}

fn write_tuple(items: &[Value], out: &mut String, depth: u32) -> Made<()> {
    out.push('(');
    write_all(items, out, depth)?;
    if items.len() == 1 {
        out.push(',');
    }
    out.push(')');
    Ok(())
}

/// Returns whether Python's `repr` leaves the character as it is.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    // Rust's table is by the same categories. Only at the beginning of a text it has more exceptions.
    let text = ['a', c].iter().collect::<String>();
    text.escape_debug().nth(1) == Some(c)
}

/// Adds a string in quotes, as Python's `repr` has it.
fn quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if c == quote => {
                out.push('\\');
                out.push(c);
            }
            _ if is_printable(c) => out.push(c),
            _ => {
                let code = u32::from(c);
                let escaped = match code {
                    0..=0xff => format!("\\x{code:02x}"),
                    0x100..=0xffff => format!("\\u{code:04x}"),
                    _ => format!("\\U{code:08x}"),
                };
                out.push_str(&escaped);
            }
        }
    }
    out.push(quote);
}

/// Returns Python's `repr` of a float: the shortest digits that are this number, as Rust finds them. Below
/// 0.0001 and from 1e16 on they have an exponent of at least two digits with a sign.
pub(super) fn float(value: f64) -> String {
    if !value.is_finite() {
        let name = if value.is_nan() { "nan" } else { "inf" };
        return if value < 0.0 {
            format!("-{name}")
        } else {
            name.to_owned()
        };
    }
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
