//! Jinja2's grammar of what follows a value: attributes, items, calls, filters and tests.

use std::sync::Arc;

use super::ast::{Arguments, Expression, Filter};
use super::names;
use super::parser::{Parsed, Parser};
use super::token::Kind;

impl Parser {
    pub(super) fn postfix(&mut self, mut value: Expression) -> Parsed<Expression> {
        loop {
            value = match self.kind() {
                Kind::Op(".") => {
                    self.next();
                    match self.kind().clone() {
                        Kind::Name(name) => {
                            self.next();
                            Expression::Attribute(Box::new(value), name)
                        }
                        Kind::Int(index) => {
                            self.next();
                            Expression::Item(Box::new(value), Box::new(Expression::Int(index)))
                        }
                        _ => return self.unexpected("a name or a number"),
                    }
                }
                Kind::Op("[") => {
                    self.next();
                    self.nested(|parser| parser.subscript(value))?
                }
                Kind::Op("(") => Expression::Call(Box::new(value), self.arguments()?),
                _ => return Ok(value),
            };
        }
    }

    fn subscript(&mut self, value: Expression) -> Parsed<Expression> {
        let value = Box::new(value);
        let mut keys = Vec::new();
        let mut parts: [Option<Expression>; 3] = [None, None, None];
        let mut slices = false;
        while !self.is_op("]") {
            if !keys.is_empty() {
                self.expect_op(",")?;
            }
            if !self.is_op(":") {
                let key = self.expression()?;
                if !self.is_op(":") {
                    keys.push(key);
                    continue;
                }
                parts[0] = Some(key);
            }
            if !keys.is_empty() {
                return self.fail("a slice beside other keys");
            }
            slices = true;
            self.slice_ends(&mut parts)?;
        }
        self.next();
        if slices {
            return Ok(Expression::Slice(value, Box::new(parts)));
        }
        let last = keys.pop();
        Ok(match last {
            Some(only) if keys.is_empty() => Expression::Item(value, Box::new(only)),
            last => {
                keys.extend(last);
                Expression::Item(value, Box::new(Expression::Tuple(keys)))
            }
        })
    }

    /// Reads a slice from its first colon to the closing bracket.
    fn slice_ends(&mut self, parts: &mut [Option<Expression>; 3]) -> Parsed<()> {
        self.next();
        if !self.is_op("]") && !self.is_op(":") {
            parts[1] = Some(self.expression()?);
        }
        if self.skip_op(":") && !self.is_op("]") {
            parts[2] = Some(self.expression()?);
        }
        if !self.is_op("]") {
            return self.unexpected("\"]\"");
        }
        Ok(())
    }

    fn arguments(&mut self) -> Parsed<Arguments> {
        self.expect_op("(")?;
        let mut made = Arguments::default();
        let mut first = true;
        while !self.is_op(")") {
            if !std::mem::take(&mut first) {
                self.expect_op(",")?;
                if self.is_op(")") {
                    break;
                }
            }
            let ended = made.more.is_some() || made.more_keywords.is_some();
            if self.skip_op("**") {
                if made.more_keywords.is_some() {
                    return self.fail("two ** arguments");
                }
                made.more_keywords = Some(Box::new(self.expression()?));
            } else if self.skip_op("*") {
                if ended {
                    return self.fail("an argument after ** arguments");
                }
                made.more = Some(Box::new(self.expression()?));
            } else if let (Kind::Name(name), Kind::Op("=")) = (self.kind(), self.ahead()) {
                if made.more_keywords.is_some() {
                    return self.fail("an argument after ** arguments");
                }
                let name = name.clone();
                self.keyword(name, &mut made.keywords)?;
            } else {
                if ended || !made.keywords.is_empty() {
                    return self.fail("an argument without a name after one with it");
                }
                made.positional.push(self.expression()?);
            }
        }
        self.next();
        Ok(made)
    }

    /// Reads a keyword argument of this name.
    fn keyword(
        &mut self,
        name: Arc<str>,
        keywords: &mut Vec<(Arc<str>, Expression)>,
    ) -> Parsed<()> {
        self.next();
        self.next();
        if keywords.iter().any(|(other, _)| *other == name) {
            return self.fail(&format!("the argument {name:?} twice"));
        }
        let value = self.expression()?;
        keywords.push((name, value));
        Ok(())
    }

    pub(super) fn filtered(&mut self, mut value: Expression) -> Parsed<Expression> {
        loop {
            value = if self.skip_op("|") {
                Expression::Filtered(Box::new(value), self.filter()?)
            } else if self.skip_name("is") {
                self.test(value)?
            } else if self.is_op("(") {
                Expression::Call(Box::new(value), self.arguments()?)
            } else {
                return Ok(value);
            };
        }
    }

    /// Parses the name of a filter or a test.
    fn dotted(&mut self) -> Parsed<Arc<str>> {
        let mut name = self.expect_name()?;
        while self.skip_op(".") {
            name = format!("{name}.{}", self.expect_name()?).into();
        }
        Ok(name)
    }

    pub(super) fn filter(&mut self) -> Parsed<Filter> {
        let name = self.dotted()?;
        if !names::is_filter(&name) && !self.soft {
            return self.fail(&format!("no filter named {name:?}"));
        }
        let arguments = if self.is_op("(") {
            self.arguments()?
        } else {
            Arguments::default()
        };
        Ok(Filter { name, arguments })
    }

    fn test(&mut self, value: Expression) -> Parsed<Expression> {
        let negated = self.skip_name("not");
        let name = self.dotted()?;
        if !names::is_test(&name) && !self.soft {
            return self.fail(&format!("no test named {name:?}"));
        }
        let begins = match self.kind() {
            Kind::Name(name) => !["else", "or", "and"].contains(&&**name),
            Kind::Text(_) | Kind::Int(_) | Kind::Float(_) => true,
            Kind::Op(op) => ["[", "{"].contains(op),
            _ => false,
        };
        let arguments = if self.is_op("(") {
            self.arguments()?
        } else if begins {
            if self.is_name("is") {
                return self.fail("a test after a test");
            }
            let argument = self.primary()?;
            Arguments {
                positional: vec![self.postfix(argument)?],
                ..Arguments::default()
            }
        } else {
            Arguments::default()
        };
        let test = Expression::Test(Box::new(value), Filter { name, arguments });
        Ok(if negated {
            Expression::Not(Box::new(test))
        } else {
            test
        })
    }
}
