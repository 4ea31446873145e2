//! Templates by the rules of the first dialect, which were nearly Jinja2's. They only tell a producer that began by them
//! where today's rules render another text.

use std::collections::BTreeMap;
use std::io;

use minijinja::{Environment, Value};

use super::python_compat;
use super::special_tokens::{GENERATION_BEGINS, GENERATION_ENDS};

/// Most template instructions per conversation.
const FUEL: u64 = 10_000_000;
const NAME: &str = "chat";

/// A compiled template and its bounds.
#[derive(Debug)]
pub(super) struct Earlier {
    env: Environment<'static>,
    output_bytes_max: u64,
}

impl Earlier {
    pub(super) fn compile(source: &str, output_bytes_max: u64) -> Result<Self, String> {
        let mut env = environment();
        env.add_template_owned(NAME, with_marks(source))
            .map_err(|e| e.to_string())?;
        Ok(Self {
            env,
            output_bytes_max,
        })
    }

    /// Returns the text with these variables.
    pub(super) fn render(&self, context: &BTreeMap<&str, Value>) -> Result<String, String> {
        let template = self.env.get_template(NAME).map_err(|e| e.to_string())?;
        let mut out = Bounded {
            text: Vec::new(),
            left: self.output_bytes_max,
        };
        let rendered = template.render_captured_to(context, &mut out).map(drop);
        rendered.map_err(|e| e.to_string())?;
        String::from_utf8(out.text).map_err(|e| e.to_string())
    }
}

fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    // The settings with which the transformers library compiles templates.
    env.set_trim_blocks(true);
    env.set_lstrip_blocks(true);
    env.set_fuel(Some(FUEL));
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    python_compat::add(&mut env);
    env
}

/// Replaces `{% generation %}` and its end, which Jinja does not know, by marks with the same trimming of blanks
/// around them.
fn with_marks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        let end = tag.find("%}").map_or(tag.len(), |end| end + 2);
        let (tag, after) = tag.split_at(end);
        out.push_str(before);
        let inner = tag.trim_start_matches("{%").trim_end_matches("%}");
        let (left, inner) = control(inner, str::starts_with, |s| s.get(1..));
        let (right, inner) = control(inner, str::ends_with, |s| s.get(..s.len() - 1));
        let mark = match inner.trim() {
            "generation" => Some(GENERATION_BEGINS),
            "endgeneration" => Some(GENERATION_ENDS),
            _ => None,
        };
        match mark {
            Some(mark) => {
                let text = format!("{{%{left} if true %}}{{{{ \"{mark}\" }}}}{{% endif {right}%}}");
                out.push_str(&text);
            }
            None => out.push_str(tag),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Returns the sign of whitespace control at one end of a tag, and the tag without it.
fn control<'a>(
    tag: &'a str,
    has: impl Fn(&'a str, &'static str) -> bool,
    without: impl Fn(&'a str) -> Option<&'a str>,
) -> (&'static str, &'a str) {
    for sign in ["-", "+"] {
        if has(tag, sign) {
            return (sign, without(tag).unwrap_or_default());
        }
    }
    ("", tag)
}

/// A writer that fails beyond a number of bytes.
struct Bounded {
    text: Vec<u8>,
    left: u64,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(left) = self.left.checked_sub(bytes.len() as u64) else {
            self.left = 0;
            return Err(io::Error::other("too long"));
        };
        self.left = left;
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
