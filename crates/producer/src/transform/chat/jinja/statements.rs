//! Jinja2's grammar of tags.

use std::sync::Arc;

use super::ast::{Expression, Filter, For, Macro, Name, Statement, StatementKind, Target};
use super::parser::{Parsed, Parser};
use super::token::Kind;

/// The arguments of a macro, and the defaults of the last ones.
type Signature = (Vec<(Name, Arc<str>)>, Vec<Expression>);

impl Parser {
    pub(super) fn statement(&mut self) -> Parsed<StatementKind> {
        let name = self.expect_name()?;
        match &*name {
            "for" => self.for_loop(),
            "if" => self.condition(),
            "set" => self.set(),
            "with" => self.with(),
            "macro" => self.named_macro(),
            "call" => self.call_block(),
            "print" => {
                let mut all = Vec::new();
                while *self.kind() != Kind::BlockEnd {
                    if !all.is_empty() {
                        self.expect_op(",")?;
                    }
                    all.push(self.expression()?);
                }
                Ok(StatementKind::Print(Expression::Concat(all)))
            }
            "filter" => {
                let filters = self.filters(true)?;
                let body = self.scope("endfilter", false)?;
                Ok(StatementKind::FilterBlock { filters, body })
            }
            "generation" => {
                self.marks = true;
                let body = self.scope("endgeneration", false)?;
                Ok(StatementKind::Generation(body))
            }
            "break" | "continue" if !self.in_loop => {
                self.fail(&format!("{name:?} outside of a loop"))
            }
            "break" => Ok(StatementKind::Break),
            "continue" => Ok(StatementKind::Continue),
            "block" | "extends" | "include" | "import" | "from" | "autoescape" => self.fail(
                &format!("{{% {name} %}} is not supported in a chat template"),
            ),
            _ => self.fail(&format!("unknown tag {name:?}")),
        }
    }

    fn for_loop(&mut self) -> Parsed<StatementKind> {
        let target = self.targets(&["in"], false)?;
        if !self.skip_name("in") {
            return self.unexpected("\"in\"");
        }
        let items = self.tuple(false, &["recursive"])?;
        let before = (self.in_loop, self.soft);
        (self.in_loop, self.soft) = (true, false);
        let test = if self.skip_name("if") {
            Some(self.expression()?)
        } else {
            None
        };
        let recursive = self.skip_name("recursive");
        let body = self.block(&["endfor", "else"])?;
        self.in_loop = before.0;
        let otherwise = if self.skip_name("else") {
            self.block(&["endfor"])?
        } else {
            Vec::new()
        };
        self.soft = before.1;
        self.next();
        Ok(StatementKind::For(Arc::new(For {
            target,
            items,
            test,
            recursive,
            body,
            otherwise,
        })))
    }

    fn condition(&mut self) -> Parsed<StatementKind> {
        let soft = std::mem::replace(&mut self.soft, true);
        let test = self.tuple(false, &[])?;
        let then = self.block(&["elif", "else", "endif"])?;
        let otherwise = if self.is_name("elif") {
            let line = self.line();
            self.next();
            let kind = self.nested(Self::condition)?;
            vec![Statement { line, kind }]
        } else if self.skip_name("else") {
            let otherwise = self.block(&["endif"])?;
            self.next();
            otherwise
        } else {
            self.next();
            Vec::new()
        };
        self.soft = soft;
        Ok(StatementKind::If {
            test,
            then,
            otherwise,
        })
    }

    fn set(&mut self) -> Parsed<StatementKind> {
        let target = self.targets(&[], true)?;
        if self.skip_op("=") {
            return Ok(StatementKind::Set(target, self.tuple(true, &[])?));
        }
        let filters = self.filters(false)?;
        let body = self.scope("endset", false)?;
        Ok(StatementKind::SetBlock {
            target,
            filters,
            body,
        })
    }

    fn with(&mut self) -> Parsed<StatementKind> {
        let mut values = Vec::new();
        while *self.kind() != Kind::BlockEnd {
            if !values.is_empty() {
                self.expect_op(",")?;
            }
            let target = self.targets(&[], false)?;
            self.expect_op("=")?;
            values.push((target, self.expression()?));
        }
        let body = self.scope("endwith", self.in_loop)?;
        Ok(StatementKind::With { values, body })
    }

    fn named_macro(&mut self) -> Parsed<StatementKind> {
        let name = self.expect_name()?;
        self.assignable(&name)?;
        let signature = self.signature()?;
        let made = self.macro_rest(name, signature, "endmacro")?;
        Ok(StatementKind::Macro(Arc::new(made)))
    }

    fn call_block(&mut self) -> Parsed<StatementKind> {
        let outer = std::mem::take(&mut self.used);
        let (arguments, defaults) = if self.is_op("(") {
            self.signature()?
        } else {
            (Vec::new(), Vec::new())
        };
        let call = self.expression()?;
        if !matches!(call, Expression::Call(..)) {
            return self.fail("{% call %} without a call");
        }
        self.used = outer;
        let made = self.macro_rest("caller".into(), (arguments, defaults), "endcall")?;
        Ok(StatementKind::Call {
            call,
            caller: Arc::new(made),
        })
    }

    fn macro_rest(
        &mut self,
        name: Arc<str>,
        (arguments, defaults): Signature,
        end: &str,
    ) -> Parsed<Macro> {
        let mut outer = std::mem::take(&mut self.used);
        let body = self.scope(end, false)?;
        let uses = |wanted: &str| {
            self.used.iter().any(|used| &**used == wanted)
                && arguments.iter().all(|(_, name)| &**name != wanted)
        };
        let takes_more = uses("varargs");
        let takes_keywords = uses("kwargs");
        let takes_caller = uses("caller");
        outer.append(&mut self.used);
        self.used = outer;
        Ok(Macro {
            number: self.names.number(&name),
            name,
            arguments,
            defaults,
            body,
            takes_more,
            takes_keywords,
            takes_caller,
        })
    }

    fn signature(&mut self) -> Parsed<Signature> {
        let mut arguments = Vec::new();
        let mut defaults = Vec::new();
        self.expect_op("(")?;
        while !self.is_op(")") {
            if !arguments.is_empty() {
                self.expect_op(",")?;
            }
            let name = self.expect_name()?;
            self.assignable(&name)?;
            if self.skip_op("=") {
                defaults.push(self.expression()?);
            } else if !defaults.is_empty() {
                return self.fail("an argument without a default after one with it");
            }
            arguments.push((self.names.number(&name), name));
        }
        self.next();
        Ok((arguments, defaults))
    }

    fn assignable(&self, name: &str) -> Parsed<()> {
        if ["true", "false", "none", "True", "False", "None"].contains(&name) {
            return self.fail(&format!("{name:?} can't be assigned"));
        }
        Ok(())
    }

    /// Parses what takes a value: a name, an attribute of a namespace, or several.
    fn targets(&mut self, ends: &[&str], attributes: bool) -> Parsed<Target> {
        let mut all = Vec::new();
        let mut is_tuple = false;
        loop {
            if !all.is_empty() {
                self.expect_op(",")?;
            }
            let ended = matches!(self.kind(), Kind::BlockEnd | Kind::Op(")"));
            if ended || ends.iter().any(|end| self.is_name(end)) {
                break;
            }
            all.push(self.target(attributes)?);
            if !self.is_op(",") {
                break;
            }
            is_tuple = true;
        }
        match (is_tuple, all.pop()) {
            (false, Some(one)) => Ok(one),
            (true, Some(last)) => {
                all.push(last);
                Ok(Target::Tuple(all))
            }
            (_, None) => self.unexpected("a name"),
        }
    }

    fn target(&mut self, attributes: bool) -> Parsed<Target> {
        if self.skip_op("(") {
            let inner = self.nested(|parser| parser.targets(&[], attributes))?;
            self.expect_op(")")?;
            return Ok(inner);
        }
        let name = self.expect_name()?;
        let number = self.names.number(&name);
        if attributes && self.skip_op(".") {
            return Ok(Target::Attribute(number, self.expect_name()?));
        }
        self.assignable(&name)?;
        Ok(Target::Name(number))
    }

    /// Parses filters; the first one has no `|` before it where `inline`.
    fn filters(&mut self, inline: bool) -> Parsed<Vec<Filter>> {
        let mut all = Vec::new();
        while (inline && all.is_empty()) || self.skip_op("|") {
            all.push(self.filter()?);
        }
        Ok(all)
    }
}
