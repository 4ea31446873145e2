//! Renders a program: its statements.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::ast::{Body, Expression, Filter, For, Macro, Statement, StatementKind, Target};
use super::bounds::Bounds;
use super::filters;
use super::loops::{Loop, Recursion, Source};
use super::parser::Program;
use super::scope::Scope;
use super::value::{Made, Value, fail};

/// Most calls of macros within each other; Python's limit of recursion ends Jinja2 near that.
const CALLS_MAX: u32 = 150;

/// The state of one rendering.
pub(super) struct Interpreter {
    pub(super) program: Arc<Program>,
    /// The values of names outside of all scopes.
    pub(super) globals: Vec<Option<Value>>,
    fuel: Cell<u64>,
    /// Most bytes of the text.
    most: u64,
    calls: Cell<u32>,
    /// The text, and above it the texts that macros and blocks make.
    out: RefCell<Vec<String>>,
    generated: RefCell<Vec<Generated>>,
    /// Scopes that hold macros, which hold them.
    holders: RefCell<Vec<Rc<Scope>>>,
}

/// The text of a generation block.
pub(super) struct Generated {
    pub(super) range: Range<usize>,
    /// The text, where another text may be at its place.
    pub(super) text: Option<String>,
}

/// The way on after a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    Break,
    Continue,
}

impl Interpreter {
    pub(super) fn new(
        program: Arc<Program>,
        globals: Vec<Option<Value>>,
        bounds: Bounds,
    ) -> Rc<Self> {
        Rc::new(Self {
            program,
            globals,
            fuel: Cell::new(bounds.fuel),
            most: bounds.bytes,
            calls: Cell::new(0),
            out: RefCell::new(vec![String::new()]),
            generated: RefCell::default(),
            holders: RefCell::default(),
        })
    }

    /// Renders the program. Returns its text and those of its generation blocks.
    pub(super) fn run(self: &Rc<Self>) -> Made<(String, Vec<Generated>)> {
        let scope = Rc::new(Scope::default());
        let program = self.program.clone();
        for &name in &program.set_first {
            scope.set(
                name,
                Value::Undefined(program.names.get(name as usize).cloned()),
            );
        }
        let flow = self.body(&program.body, &scope);
        for holder in self.holders.take() {
            holder.clear();
        }
        flow?;
        Ok((
            self.out.take().pop().unwrap_or_default(),
            self.generated.take(),
        ))
    }

    /// Takes one step of work.
    pub(super) fn step(&self) -> Made<()> {
        match self.fuel.get().checked_sub(1) {
            Some(left) => {
                self.fuel.set(left);
                Ok(())
            }
            None => fail("it ran out of fuel: it takes too many steps"),
        }
    }

    pub(super) fn write(&self, text: &str) -> Made<()> {
        let mut out = self.out.borrow_mut();
        let Some(last) = out.last_mut() else {
            return Ok(());
        };
        if (last.len() + text.len()) as u64 > self.most {
            return fail(format!(
                "it writes more than {} bytes (source.max_document_bytes)",
                self.most
            ));
        }
        last.push_str(text);
        Ok(())
    }

    /// Returns the text that `work` writes.
    pub(super) fn captured(&self, work: impl FnOnce() -> Made<Flow>) -> Made<String> {
        self.out.borrow_mut().push(String::new());
        let flow = work();
        let text = self.out.borrow_mut().pop().unwrap_or_default();
        flow?;
        Ok(text)
    }

    /// Runs `work` within one more call.
    pub(super) fn called<T>(&self, work: impl FnOnce() -> Made<T>) -> Made<T> {
        if self.calls.get() >= CALLS_MAX {
            return fail(format!("more than {CALLS_MAX} calls within each other"));
        }
        self.calls.set(self.calls.get() + 1);
        let made = work();
        self.calls.set(self.calls.get() - 1);
        made
    }

    pub(super) fn body(self: &Rc<Self>, body: &Body, scope: &Rc<Scope>) -> Made<Flow> {
        for statement in body {
            let flow = self.statement(statement, scope).map_err(|mut fault| {
                if fault.line == 0 {
                    fault.line = statement.line;
                }
                fault
            })?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn statement(self: &Rc<Self>, statement: &Statement, scope: &Rc<Scope>) -> Made<Flow> {
        self.step()?;
        match &statement.kind {
            StatementKind::Data(text) => self.write(text)?,
            StatementKind::Print(value) => self.print(&self.value(value, scope)?)?,
            StatementKind::If {
                test,
                then,
                otherwise,
            } => {
                let holds = self.value(test, scope)?.is_true()?;
                return self.body(if holds { then } else { otherwise }, scope);
            }
            StatementKind::For(own) => {
                let items = self.value(&own.items, scope)?;
                return self.for_loop(own, items, scope, 0);
            }
            StatementKind::Set(target, value) => {
                let value = self.value(value, scope)?;
                self.assign(target, value, scope)?;
            }
            StatementKind::SetBlock {
                target,
                filters,
                body,
            } => {
                let text = self.inner(body, scope)?;
                let value = self.filtered(text.into(), filters, scope)?;
                self.assign(target, value, scope)?;
            }
            StatementKind::With { values, body } => return self.with(values, body, scope),
            StatementKind::Macro(own) => self.define(own, scope),
            StatementKind::Call { call, caller } => {
                let made = self.call_with(call, self.macro_value(caller, scope), scope)?;
                self.write(&made.text()?)?;
            }
            StatementKind::FilterBlock { filters, body } => {
                let text = self.inner(body, scope)?;
                let value = self.filtered(text.into(), filters, scope)?;
                self.write(&value.text()?)?;
            }
            StatementKind::Generation(body) => self.generation(body, scope)?,
            StatementKind::Break => return Ok(Flow::Break),
            StatementKind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn print(&self, value: &Value) -> Made<()> {
        match value {
            Value::Text(text) | Value::Markup(text) => self.write(text),
            other => self.write(&other.text()?),
        }
    }

    /// Runs a body in which these targets have the values.
    fn with(
        self: &Rc<Self>,
        values: &[(Target, Expression)],
        body: &Body,
        scope: &Rc<Scope>,
    ) -> Made<Flow> {
        let inner = Scope::within(scope);
        for (target, value) in values {
            let value = self.value(value, scope)?;
            self.assign(target, value, &inner)?;
        }
        self.body(body, &inner)
    }

    /// Sets the variable of a macro in its scope. Such a scope holds itself, so it is noted, to be cleared at the end.
    fn define(self: &Rc<Self>, own: &Arc<Macro>, scope: &Rc<Scope>) {
        scope.set(own.number, self.macro_value(own, scope));
        self.holders.borrow_mut().push(scope.clone());
    }

    /// Returns the text of a body with a scope of its own.
    fn inner(self: &Rc<Self>, body: &Body, scope: &Rc<Scope>) -> Made<String> {
        self.captured(|| self.body(body, &Scope::within(scope)))
    }

    fn filtered(
        self: &Rc<Self>,
        mut value: Value,
        filters: &[Filter],
        scope: &Rc<Scope>,
    ) -> Made<Value> {
        for filter in filters {
            let given = self.arguments(&filter.arguments, scope)?;
            value = filters::apply(&filter.name, &value, given)?;
        }
        Ok(value)
    }

    /// Writes a generation block, and notes its place as transformers does: after the text that is written so far,
    /// whatever a macro around it holds.
    fn generation(self: &Rc<Self>, body: &Body, scope: &Rc<Scope>) -> Made<()> {
        let text = self.called(|| self.inner(body, scope))?;
        let (start, certain) = {
            let out = self.out.borrow();
            (out.first().map_or(0, String::len), out.len() == 1)
        };
        self.generated.borrow_mut().push(Generated {
            range: start..start + text.len(),
            text: (!certain).then(|| text.clone()),
        });
        self.write(&text)
    }

    pub(super) fn for_loop(
        self: &Rc<Self>,
        own: &Arc<For>,
        items: Value,
        scope: &Rc<Scope>,
        depth: usize,
    ) -> Made<Flow> {
        let source = self.source(own, &items, scope)?;
        let length = match (&own.test, &items) {
            (None, Value::Generator(_)) | (Some(_), _) => None,
            (None, items) => Some(items.len()?),
        };
        let recursive = own.recursive.then(|| self.recursion(own, scope));
        let state = Rc::new(Loop::new(source, length, depth, recursive));
        let mut ran = false;
        while let Some(item) = state.advance()? {
            self.step()?;
            let inner = Scope::within(scope);
            self.assign(&own.target, item, &inner)?;
            inner.set(self.program.special[0], Value::Loop(state.clone()));
            match self.body(&own.body, &inner)? {
                Flow::Break => break,
                // As in Jinja2, an iteration counts when it reaches its end.
                Flow::Next => ran = true,
                Flow::Continue => {}
            }
        }
        if !ran {
            return self.body(&own.otherwise, &Scope::within(scope));
        }
        Ok(Flow::Next)
    }

    /// Returns the items one after another, those that the loop's condition lets pass.
    fn source(
        self: &Rc<Self>,
        own: &Arc<For>,
        items: &Value,
        scope: &Rc<Scope>,
    ) -> Made<Box<Source>> {
        let mut next = one_by_one(items)?;
        if own.test.is_none() {
            return Ok(next);
        }
        let (with, own, scope) = (self.clone(), own.clone(), scope.clone());
        Ok(Box::new(move || {
            while let Some(item) = next()? {
                with.step()?;
                let inner = Scope::within(&scope);
                with.assign(&own.target, item.clone(), &inner)?;
                let Some(test) = &own.test else {
                    return Ok(Some(item));
                };
                if with.value(test, &inner)?.is_true()? {
                    return Ok(Some(item));
                }
            }
            Ok(None)
        }))
    }

    pub(super) fn assign(&self, target: &Target, value: Value, scope: &Rc<Scope>) -> Made<()> {
        match target {
            Target::Name(name) => {
                scope.set(*name, value);
                Ok(())
            }
            Target::Attribute(name, attribute) => {
                let Value::Namespace(values) = self.name(*name, scope) else {
                    return fail("cannot assign attribute on non-namespace object");
                };
                if attribute.starts_with('_') {
                    return fail(format!("a namespace can't hold {attribute:?}"));
                }
                let key = Value::Text(attribute.clone());
                values.borrow_mut().insert(key, value)
            }
            Target::Tuple(targets) => {
                value.defined()?;
                let items = value.items()?;
                if items.len() != targets.len() {
                    return fail(format!(
                        "{} values for {} names",
                        items.len(),
                        targets.len()
                    ));
                }
                for (target, item) in targets.iter().zip(items) {
                    self.assign(target, item, scope)?;
                }
                Ok(())
            }
        }
    }

    /// Returns what runs a recursive loop with the items of a level below.
    fn recursion(self: &Rc<Self>, own: &Arc<For>, scope: &Rc<Scope>) -> Box<Recursion> {
        // A rendering may hold the scopes that hold this, so this does not hold it.
        let with = Rc::downgrade(self);
        let (own, scope) = (own.clone(), scope.clone());
        Box::new(move |items, depth| {
            let Some(with) = with.upgrade() else {
                return fail("a loop outlives its rendering");
            };
            let run = || with.captured(|| with.for_loop(&own, items, &scope, depth));
            with.called(run).map(Value::from)
        })
    }
}

/// Returns the items of a value one after another.
fn one_by_one(items: &Value) -> Made<Box<Source>> {
    Ok(match items {
        Value::List(items) => {
            let (items, mut at) = (items.clone(), 0);
            Box::new(move || {
                at += 1;
                Ok(items.get(at - 1).cloned())
            })
        }
        Value::Generator(items) => {
            let items = items.clone();
            Box::new(move || Ok(items.borrow_mut().pop_front()))
        }
        other => {
            let mut items = other.items()?.into_iter();
            Box::new(move || Ok(items.next()))
        }
    })
}
