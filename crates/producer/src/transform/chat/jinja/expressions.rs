//! Jinja2's grammar of expressions.

use std::sync::Arc;

use super::ast::{Comparison, Expression, Operator};
use super::parser::{Parsed, Parser};
use super::token::Kind;

impl Parser {
    pub(super) fn expression(&mut self) -> Parsed<Expression> {
        self.nested(Self::choice)
    }

    fn choice(&mut self) -> Parsed<Expression> {
        let soft = self.soft;
        let mut value = self.or()?;
        while self.skip_name("if") {
            self.soft = true;
            let test = self.or()?;
            let other = if self.skip_name("else") {
                Some(Box::new(self.nested(Self::choice)?))
            } else {
                None
            };
            value = Expression::Choice(Box::new([value, test]), other);
        }
        self.soft = soft;
        Ok(value)
    }

    fn or(&mut self) -> Parsed<Expression> {
        let mut left = self.and()?;
        while self.skip_name("or") {
            left = Expression::Or(Box::new([left, self.and()?]));
        }
        Ok(left)
    }

    fn and(&mut self) -> Parsed<Expression> {
        let mut left = self.not()?;
        while self.skip_name("and") {
            left = Expression::And(Box::new([left, self.not()?]));
        }
        Ok(left)
    }

    fn not(&mut self) -> Parsed<Expression> {
        if self.skip_name("not") {
            let value = self.nested(Self::not)?;
            return Ok(Expression::Not(Box::new(value)));
        }
        self.compare()
    }

    fn compare(&mut self) -> Parsed<Expression> {
        let first = self.sum()?;
        let mut others = Vec::new();
        loop {
            let comparison = match self.kind() {
                Kind::Op("==") => Comparison::Equal,
                Kind::Op("!=") => Comparison::Unequal,
                Kind::Op("<") => Comparison::Less,
                Kind::Op("<=") => Comparison::LessEqual,
                Kind::Op(">") => Comparison::Greater,
                Kind::Op(">=") => Comparison::GreaterEqual,
                Kind::Name(name) if &**name == "in" => Comparison::In,
                Kind::Name(name) if &**name == "not" => match self.ahead() {
                    Kind::Name(next) if &**next == "in" => {
                        self.next();
                        Comparison::NotIn
                    }
                    _ => break,
                },
                _ => break,
            };
            self.next();
            others.push((comparison, self.sum()?));
        }
        if others.is_empty() {
            return Ok(first);
        }
        Ok(Expression::Compare(Box::new(first), others))
    }

    fn sum(&mut self) -> Parsed<Expression> {
        let mut left = self.concat()?;
        loop {
            let operator = match self.kind() {
                Kind::Op("+") => Operator::Add,
                Kind::Op("-") => Operator::Subtract,
                _ => return Ok(left),
            };
            self.next();
            left = Expression::Binary(operator, Box::new([left, self.concat()?]));
        }
    }

    fn concat(&mut self) -> Parsed<Expression> {
        let first = self.product()?;
        if !self.is_op("~") {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.skip_op("~") {
            all.push(self.product()?);
        }
        Ok(Expression::Concat(all))
    }

    fn product(&mut self) -> Parsed<Expression> {
        let mut left = self.power()?;
        loop {
            let operator = match self.kind() {
                Kind::Op("*") => Operator::Multiply,
                Kind::Op("/") => Operator::Divide,
                Kind::Op("//") => Operator::FloorDivide,
                Kind::Op("%") => Operator::Modulo,
                _ => return Ok(left),
            };
            self.next();
            left = Expression::Binary(operator, Box::new([left, self.power()?]));
        }
    }

    fn power(&mut self) -> Parsed<Expression> {
        let mut left = self.unary(true)?;
        while self.skip_op("**") {
            left = Expression::Binary(Operator::Power, Box::new([left, self.unary(true)?]));
        }
        Ok(left)
    }

    fn unary(&mut self, filtered: bool) -> Parsed<Expression> {
        let value = if self.skip_op("-") {
            let value = self.nested(|parser| parser.unary(false))?;
            Expression::Negative(Box::new(value))
        } else if self.skip_op("+") {
            let value = self.nested(|parser| parser.unary(false))?;
            Expression::Positive(Box::new(value))
        } else {
            self.primary()?
        };
        let value = self.postfix(value)?;
        if filtered {
            self.filtered(value)
        } else {
            Ok(value)
        }
    }

    /// Returns the constant or the variable of this name.
    fn named(&mut self, name: Arc<str>) -> Parsed<Expression> {
        Ok(match &*name {
            "true" | "True" => Expression::Bool(true),
            "false" | "False" => Expression::Bool(false),
            "none" | "None" => Expression::None,
            "self" | "super" => {
                return self.fail(&format!("{name:?} is not supported in a chat template"));
            }
            _ => {
                let number = self.names.number(&name);
                self.used.push(name);
                Expression::Name(number)
            }
        })
    }

    pub(super) fn primary(&mut self) -> Parsed<Expression> {
        match self.kind().clone() {
            Kind::Name(name) => {
                self.next();
                self.named(name)
            }
            Kind::Text(mut text) => {
                self.next();
                while let Kind::Text(more) = self.kind() {
                    text.push_str(more);
                    self.next();
                }
                Ok(Expression::Text(text.into()))
            }
            Kind::Int(value) => {
                self.next();
                Ok(Expression::Int(value))
            }
            Kind::Float(value) => {
                self.next();
                Ok(Expression::Float(value))
            }
            Kind::Op("(") => {
                self.next();
                let value = self.nested(Self::parenthesis)?;
                self.expect_op(")")?;
                Ok(value)
            }
            Kind::Op("[") => {
                self.next();
                let items = self.items("]")?;
                Ok(Expression::List(items))
            }
            Kind::Op("{") => {
                self.next();
                self.dict()
            }
            _ => self.unexpected("a value"),
        }
    }

    fn parenthesis(&mut self) -> Parsed<Expression> {
        if self.is_op(")") {
            return Ok(Expression::Tuple(Vec::new()));
        }
        self.tuple(true, &[])
    }

    fn items(&mut self, end: &'static str) -> Parsed<Vec<Expression>> {
        let mut items = Vec::new();
        while !self.is_op(end) {
            if !items.is_empty() {
                self.expect_op(",")?;
                if self.is_op(end) {
                    break;
                }
            }
            items.push(self.expression()?);
        }
        self.next();
        Ok(items)
    }

    fn dict(&mut self) -> Parsed<Expression> {
        let mut pairs = Vec::new();
        while !self.is_op("}") {
            if !pairs.is_empty() {
                self.expect_op(",")?;
                if self.is_op("}") {
                    break;
                }
            }
            let key = self.expression()?;
            self.expect_op(":")?;
            pairs.push((key, self.expression()?));
        }
        self.next();
        Ok(Expression::Dict(pairs))
    }

    /// Parses one expression, or several with commas between them, which are a tuple.
    pub(super) fn tuple(&mut self, choice: bool, ends: &[&str]) -> Parsed<Expression> {
        let mut all = Vec::new();
        let mut is_tuple = false;
        loop {
            if !all.is_empty() {
                self.expect_op(",")?;
            }
            let ended = matches!(
                self.kind(),
                Kind::VariableEnd | Kind::BlockEnd | Kind::Op(")")
            );
            if ended || ends.iter().any(|end| self.is_name(end)) {
                break;
            }
            all.push(if choice {
                self.expression()?
            } else {
                self.nested(Self::or)?
            });
            if !self.is_op(",") {
                break;
            }
            is_tuple = true;
        }
        match all.pop() {
            Some(one) if !is_tuple => Ok(one),
            Some(last) => {
                all.push(last);
                Ok(Expression::Tuple(all))
            }
            None => self.unexpected("a value"),
        }
    }
}
