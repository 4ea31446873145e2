//! The filter `tojson`, which is Python's `json.dumps` in chat templates.

use super::arguments::truth;
use super::compare::order;
use super::numbers::{Number, number};
use super::text::float;
use super::value::{Dict, Given, Made, Value, fail};

/// Most levels of nested values.
const DEPTH_MAX: usize = 150;

struct Layout {
    ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort: bool,
}

/// Returns the text of `json.dumps(value, ...)` of Python.
pub(super) fn dumps(value: &Value, given: Given) -> Made<Value> {
    let names = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let [ascii, indent, separators, sort] = given.bind("tojson", names, 0)?;
    let indent = match indent {
        None | Some(Value::None) => None,
        Some(Value::Text(text)) => Some(text.to_string()),
        Some(other) => match number(&other) {
            Some(Number::Int(count @ ..=64)) => {
                Some(" ".repeat(usize::try_from(count).unwrap_or(0)))
            }
            _ => return fail("tojson: an indent that is neither a small number nor a text"),
        },
    };
    let (item, key) = match separators {
        None | Some(Value::None) => {
            let item = if indent.is_some() { "," } else { ", " };
            (item.to_owned(), ": ".to_owned())
        }
        Some(other) => match &other.items()?[..] {
            [Value::Text(item), Value::Text(key)] => (item.to_string(), key.to_string()),
            _ => return fail("tojson: the separators are not two texts"),
        },
    };
    let layout = Layout {
        ascii: truth(ascii)?,
        indent,
        item,
        key,
        sort: truth(sort)?,
    };
    let mut out = String::new();
    layout.write(value, 0, &mut out)?;
    Ok(out.into())
}

impl Layout {
    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Made<()> {
        if depth > DEPTH_MAX {
            return fail("tojson: a value is nested too deeply");
        }
        match value {
            Value::None => out.push_str("null"),
            Value::Bool(true) => out.push_str("true"),
            Value::Bool(false) => out.push_str("false"),
            Value::Int(value) => out.push_str(&value.to_string()),
            Value::Float(value) => out.push_str(&json_float(*value)),
            Value::Text(text) | Value::Markup(text) => self.write_text(text, out),
            Value::List(items) | Value::Tuple(items) | Value::Group(items) => {
                out.push('[');
                for (n, item) in items.iter().enumerate() {
                    self.begin_item(n, depth + 1, out);
                    self.write(item, depth + 1, out)?;
                }
                self.end(items.is_empty(), depth, out);
                out.push(']');
            }
            Value::Dict(dict) => self.write_dict(dict, depth, out)?,
            other => {
                return fail(format!(
                    "Object of type {} is not JSON serializable",
                    other.type_name()
                ));
            }
        }
        Ok(())
    }

    fn write_dict(&self, dict: &Dict, depth: usize, out: &mut String) -> Made<()> {
        let mut entries: Vec<&(Value, Value)> = dict.entries.iter().collect();
        if self.sort {
            let mut fault = None;
            entries.sort_by(|left, right| order(&left.0, &right.0, &mut fault));
            if let Some(fault) = fault {
                return Err(fault);
            }
        }
        out.push('{');
        for (n, (key, value)) in entries.into_iter().enumerate() {
            self.begin_item(n, depth + 1, out);
            let key = match key {
                Value::Text(text) | Value::Markup(text) => text.to_string(),
                Value::None => "null".to_owned(),
                Value::Bool(value) => value.to_string(),
                Value::Int(value) => value.to_string(),
                Value::Float(value) => json_float(*value),
                other => {
                    return fail(format!(
                        "keys must be str, int, float, bool or None, not {}",
                        other.type_name()
                    ));
                }
            };
            self.write_text(&key, out);
            out.push_str(&self.key);
            self.write(value, depth + 1, out)?;
        }
        self.end(dict.entries.is_empty(), depth, out);
        out.push('}');
        Ok(())
    }

    fn begin_item(&self, n: usize, depth: usize, out: &mut String) {
        if n > 0 {
            out.push_str(&self.item);
        }
        self.line(depth, out);
    }

    fn end(&self, empty: bool, depth: usize, out: &mut String) {
        if !empty {
            self.line(depth, out);
        }
    }

    fn line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn write_text(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\x08' => out.push_str("\\b"),
                '\x0c' => out.push_str("\\f"),
                '\0'..='\x1f' => out.push_str(&escape(u32::from(c))),
                // Python's pattern of what it escapes ends at "~".
                _ if self.ascii && !(' '..='~').contains(&c) => {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        out.push_str(&escape(u32::from(*unit)));
                    }
                }
                _ => out.push(c),
            }
        }
        out.push('"');
    }
}

fn escape(unit: u32) -> String {
    format!("\\u{unit:04x}")
}

fn json_float(value: f64) -> String {
    match float(value).as_str() {
        "nan" => "NaN".to_owned(),
        "inf" => "Infinity".to_owned(),
        "-inf" => "-Infinity".to_owned(),
        other => other.to_owned(),
    }
}
