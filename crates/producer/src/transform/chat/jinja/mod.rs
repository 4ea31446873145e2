//! Templates in Jinja2's language, with Python's values, as the transformers library renders chat templates. Pure.
//!
//! A template prints, compares and computes as under Jinja2. Everything that is not written here fails by its name, and
//! nothing is rendered another way.
//!
//! - `lexer`, `literals` make each `token`; `parser`, `statements`, `expressions`, `suffixes` make the tree in `ast`;
//! - `analysis` finds the variables of which Jinja2 sees no value before they are set;
//! - `interpreter` renders statements, `evaluation` expressions, in the variables of `scope`; `calls` calls macros,
//!   functions and methods;
//! - `value`, `range`, `numbers`, `loops` are the values; `attributes`, `compare`, `operators` what is done with them;
//! - `text`, `json`, `percent`, `braces`, `number_format`, `dates`, `markup` write them;
//! - `names` lists what can be named; `methods`, `text_methods`, `words` are the methods of Python's types, and
//!   `callables`, `filters`, `sequences`, `keys`, `groups`, `numeric`, `predicates` the functions, filters and tests of
//!   Jinja2, with their `arguments`.

mod analysis;
mod arguments;
mod ast;
mod attributes;
mod bounds;
mod braces;
mod callables;
mod calls;
mod compare;
mod convert;
mod dates;
mod evaluation;
mod expressions;
mod filters;
mod groups;
mod interpreter;
mod json;
mod keys;
mod lexer;
mod literals;
mod loops;
mod markup;
mod methods;
mod names;
mod number_format;
mod numbers;
mod numeric;
mod operators;
mod parser;
mod percent;
mod predicates;
mod range;
mod scope;
mod sequences;
mod statements;
mod suffixes;
mod text;
mod text_methods;
mod token;
mod value;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;

use convert::Documents;
use interpreter::{Generated, Interpreter};
use parser::Program;
use value::{Fault, Value};

pub(super) use bounds::Bounds;
pub(super) use dates::Date;

use super::special_tokens::{ESCAPE, GENERATION_BEGINS, GENERATION_ENDS};

/// Returns whether a text is a date that `chat.date` takes.
pub(crate) fn is_date(text: &str) -> bool {
    Date::parse(text).is_some()
}

/// A template as a tree, ready to be rendered.
#[derive(Debug)]
pub(super) struct Jinja(Arc<Program>);

impl Jinja {
    /// Parses a template; the error says why and in which line.
    pub(super) fn parse(source: &str) -> Result<Self, String> {
        parser::parse(source).map(|program| Self(Arc::new(program)))
    }

    /// Returns whether the template has generation blocks.
    pub(super) fn marks_generation(&self) -> bool {
        self.0.marks
    }

    /// Renders the template with these variables. Returns its text, with marks around its generation blocks.
    pub(super) fn render(
        &self,
        context: &BTreeMap<&str, minijinja::Value>,
        date: Option<Date>,
        bounds: Bounds,
    ) -> Result<String, String> {
        let mut documents = Documents::default();
        let text = self.rendered(context, &mut documents, date, bounds)?;
        if !documents.has_escapes {
            return Ok(text);
        }
        // A template that looks for a special token in a message would not find it there.
        let mut documents = Documents {
            unescapes: true,
            ..documents
        };
        let plain = self.rendered(context, &mut documents, date, bounds);
        let same = plain.is_ok_and(|plain| plain.chars().eq(text.chars().filter(|c| *c != ESCAPE)));
        if same {
            return Ok(text);
        }
        Err("its output depends on a special token that a message spells, which is text there; write the message without it".to_owned())
    }

    fn rendered(
        &self,
        context: &BTreeMap<&str, minijinja::Value>,
        documents: &mut Documents,
        date: Option<Date>,
        bounds: Bounds,
    ) -> Result<String, String> {
        let globals = self.globals(context, documents, date).map_err(described)?;
        let made = Interpreter::new(self.0.clone(), globals, bounds).run();
        let (text, generated) = made.map_err(described)?;
        marked(text, generated)
    }

    fn globals(
        &self,
        context: &BTreeMap<&str, minijinja::Value>,
        documents: &mut Documents,
        date: Option<Date>,
    ) -> Result<Vec<Option<Value>>, Fault> {
        let mut globals = Vec::with_capacity(self.0.names.len());
        for name in &self.0.names {
            let own = match context.get(&**name) {
                Some(turns) if &**name == "messages" => Some(documents.messages(turns)?),
                Some(value) => Some(documents.value(value)?),
                None => None,
            };
            globals.push(own.or_else(|| callables::function(name, date)));
        }
        Ok(globals)
    }
}

/// Returns the text with marks around its generation blocks. Their places are those that transformers takes: of a block
/// within a macro, the text may be at another one.
fn marked(text: String, generated: Vec<Generated>) -> Result<String, String> {
    if generated.is_empty() {
        return Ok(text);
    }
    let mut out = String::with_capacity(text.len() + 8 * generated.len());
    let mut at = 0;
    for Generated { range, text: own } in generated {
        let matches = own.is_none_or(|own| text.get(range.clone()) == Some(&own));
        if !matches || range.start < at {
            return Err(
                "it has a generation block within a macro or another block, and the text at its place is another \
                 one; write generation blocks outside of them"
                    .to_owned(),
            );
        }
        out.push_str(&text[at..range.start]);
        out.push(GENERATION_BEGINS);
        out.push_str(&text[range.clone()]);
        out.push(GENERATION_ENDS);
        at = range.end;
    }
    out.push_str(&text[at..]);
    Ok(out)
}

fn described(fault: Fault) -> String {
    match fault.line {
        0 => fault.text,
        line => format!("{} (line {line})", fault.text),
    }
}

#[cfg(test)]
mod tests;
