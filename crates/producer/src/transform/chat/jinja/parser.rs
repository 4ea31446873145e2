//! From tokens to bodies of statements, by Jinja2's grammar.

use std::collections::HashMap;
use std::sync::Arc;

use super::analysis::set_first;
use super::ast::{Body, Name, Statement, StatementKind};
use super::lexer::tokens;
use super::token::{Kind, Token};

/// Most levels of nesting. Python's own limit of recursion ends Jinja2's parser before.
const DEPTH_MAX: u32 = 100;

pub(super) type Parsed<T> = Result<T, String>;

/// The statements of a template and the names of its variables.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) body: Body,
    pub(super) names: Vec<Arc<str>>,
    /// The names that are set at the top level before they are read.
    pub(super) set_first: Vec<Name>,
    /// The numbers of `loop`, `caller`, `varargs` and `kwargs`.
    pub(super) special: [Name; 4],
    /// Whether it has generation blocks.
    pub(super) marks: bool,
}

/// Parses the source of a template into statements.
pub(super) fn parse(source: &str) -> Parsed<Program> {
    let mut parser = Parser {
        tokens: tokens(source)?,
        at: 0,
        names: Names::default(),
        depth: 0,
        in_loop: false,
        soft: false,
        used: Vec::new(),
        marks: false,
    };
    let body = parser.body(&[])?;
    let special =
        ["loop", "caller", "varargs", "kwargs"].map(|name| parser.names.number(&name.into()));
    Ok(Program {
        set_first: set_first(&body),
        body,
        special,
        names: parser.names.all,
        marks: parser.marks,
    })
}

/// The variables' names, each with a number.
#[derive(Debug, Default)]
pub(super) struct Names {
    all: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, Name>,
}

impl Names {
    pub(super) fn number(&mut self, name: &Arc<str>) -> Name {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = Name::try_from(self.all.len()).unwrap_or(Name::MAX);
        self.all.push(name.clone());
        self.numbers.insert(name.clone(), number);
        number
    }
}

pub(super) struct Parser {
    tokens: Vec<Token>,
    at: usize,
    pub(super) names: Names,
    depth: u32,
    /// Whether `break` and `continue` have a loop.
    pub(super) in_loop: bool,
    /// Whether unknown filters fail only when they are reached, as Jinja2 has it in conditions.
    pub(super) soft: bool,
    /// The names that expressions use, since the beginning of the innermost macro.
    pub(super) used: Vec<Arc<str>>,
    pub(super) marks: bool,
}

impl Parser {
    pub(super) fn kind(&self) -> &Kind {
        &self.tokens[self.at].kind
    }

    pub(super) fn ahead(&self) -> &Kind {
        let next = self.tokens.get(self.at + 1);
        next.map_or(&Kind::End, |token| &token.kind)
    }

    pub(super) fn line(&self) -> u32 {
        self.tokens[self.at].line
    }

    pub(super) fn next(&mut self) {
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
    }

    pub(super) fn fail<T>(&self, why: &str) -> Parsed<T> {
        Err(format!("{why} (line {})", self.line()))
    }

    pub(super) fn unexpected<T>(&self, wanted: &str) -> Parsed<T> {
        let found = match self.kind() {
            Kind::Data(_) => "text".to_owned(),
            Kind::Name(name) => format!("{name:?}"),
            Kind::Text(_) => "a string".to_owned(),
            Kind::Int(_) | Kind::Float(_) => "a number".to_owned(),
            Kind::Op(op) => format!("{op:?}"),
            Kind::VariableBegin => "\"{{\"".to_owned(),
            Kind::VariableEnd => "\"}}\"".to_owned(),
            Kind::BlockBegin => "\"{%\"".to_owned(),
            Kind::BlockEnd => "\"%}\"".to_owned(),
            Kind::End => "the end of the template".to_owned(),
        };
        self.fail(&format!("found {found}, expected {wanted}"))
    }

    /// Runs `work` one level deeper.
    pub(super) fn nested<T>(&mut self, work: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.fail("it is nested too deeply");
        }
        let made = work(self);
        self.depth -= 1;
        made
    }

    pub(super) fn is_op(&self, op: &str) -> bool {
        matches!(self.kind(), Kind::Op(found) if *found == op)
    }

    pub(super) fn is_name(&self, name: &str) -> bool {
        matches!(self.kind(), Kind::Name(found) if &**found == name)
    }

    pub(super) fn skip_op(&mut self, op: &str) -> bool {
        let found = self.is_op(op);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn skip_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn expect_op(&mut self, op: &str) -> Parsed<()> {
        if self.skip_op(op) {
            return Ok(());
        }
        self.unexpected(&format!("{op:?}"))
    }

    pub(super) fn expect_name(&mut self) -> Parsed<Arc<str>> {
        if let Kind::Name(name) = self.kind() {
            let name = name.clone();
            self.next();
            return Ok(name);
        }
        self.unexpected("a name")
    }

    fn expect(&mut self, kind: &Kind, wanted: &str) -> Parsed<()> {
        if self.kind() == kind {
            self.next();
            return Ok(());
        }
        self.unexpected(wanted)
    }

    /// Parses statements up to a tag of `ends`, whose name is the next token then.
    fn body(&mut self, ends: &[&str]) -> Parsed<Body> {
        let mut body = Vec::new();
        loop {
            let line = self.line();
            let kind = match self.kind().clone() {
                Kind::Data(text) => {
                    self.next();
                    StatementKind::Data(text)
                }
                Kind::VariableBegin => {
                    self.next();
                    let value = self.tuple(true, &[])?;
                    self.expect(&Kind::VariableEnd, "\"}}\"")?;
                    StatementKind::Print(value)
                }
                Kind::BlockBegin => {
                    self.next();
                    if ends.iter().any(|end| self.is_name(end)) {
                        return Ok(body);
                    }
                    let statement = self.nested(Self::statement)?;
                    self.expect(&Kind::BlockEnd, "\"%}\"")?;
                    statement
                }
                Kind::End if ends.is_empty() => return Ok(body),
                _ => {
                    let tags = ends.iter().map(|end| format!("{{% {end} %}}"));
                    return self.unexpected(&tags.collect::<Vec<_>>().join(" or "));
                }
            };
            body.push(Statement { line, kind });
        }
    }

    /// Parses the rest of a tag and the statements up to one of `ends`.
    pub(super) fn block(&mut self, ends: &[&str]) -> Parsed<Body> {
        self.skip_op(":");
        self.expect(&Kind::BlockEnd, "\"%}\"")?;
        self.body(ends)
    }

    /// Parses a block of its own scope, up to `end`.
    pub(super) fn scope(&mut self, end: &str, in_loop: bool) -> Parsed<Body> {
        let before = (self.in_loop, self.soft);
        (self.in_loop, self.soft) = (in_loop, false);
        let body = self.block(&[end])?;
        (self.in_loop, self.soft) = before;
        self.next();
        Ok(body)
    }
}
