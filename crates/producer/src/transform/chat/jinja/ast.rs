//! The parts of a parsed template.

use std::sync::Arc;

/// A variable's number in the table of names.
pub(super) type Name = u32;

/// A statement, and the line where it begins.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) line: u32,
    pub(super) kind: StatementKind,
}

pub(super) type Body = Vec<Statement>;

#[derive(Debug)]
pub(super) enum StatementKind {
    Data(Arc<str>),
    Print(Expression),
    If {
        test: Expression,
        then: Body,
        otherwise: Body,
    },
    For(Arc<For>),
    Set(Target, Expression),
    SetBlock {
        target: Target,
        filters: Vec<Filter>,
        body: Body,
    },
    With {
        values: Vec<(Target, Expression)>,
        body: Body,
    },
    Macro(Arc<Macro>),
    Call {
        call: Expression,
        caller: Arc<Macro>,
    },
    FilterBlock {
        filters: Vec<Filter>,
        body: Body,
    },
    Generation(Body),
    Break,
    Continue,
}

#[derive(Debug)]
pub(super) struct For {
    pub(super) target: Target,
    pub(super) items: Expression,
    pub(super) test: Option<Expression>,
    pub(super) recursive: bool,
    pub(super) body: Body,
    pub(super) otherwise: Body,
}

#[derive(Debug)]
pub(super) struct Macro {
    pub(super) name: Arc<str>,
    pub(super) number: Name,
    pub(super) arguments: Vec<(Name, Arc<str>)>,
    /// Those of the last arguments.
    pub(super) defaults: Vec<Expression>,
    pub(super) body: Body,
    /// Which of the special names the body uses.
    pub(super) takes_more: bool,
    pub(super) takes_keywords: bool,
    pub(super) takes_caller: bool,
}

/// A place that takes a value.
#[derive(Debug)]
pub(super) enum Target {
    Name(Name),
    Attribute(Name, Arc<str>),
    Tuple(Vec<Target>),
}

/// A filter or a test with its arguments.
#[derive(Debug)]
pub(super) struct Filter {
    pub(super) name: Arc<str>,
    pub(super) arguments: Arguments,
}

#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) positional: Vec<Expression>,
    pub(super) keywords: Vec<(Arc<str>, Expression)>,
    pub(super) more: Option<Box<Expression>>,
    pub(super) more_keywords: Option<Box<Expression>>,
}

#[derive(Debug)]
pub(super) enum Expression {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Arc<str>),
    Name(Name),
    List(Vec<Expression>),
    Tuple(Vec<Expression>),
    Dict(Vec<(Expression, Expression)>),
    /// The value, the condition and the other value.
    Choice(Box<[Expression; 2]>, Option<Box<Expression>>),
    And(Box<[Expression; 2]>),
    Or(Box<[Expression; 2]>),
    Not(Box<Expression>),
    Negative(Box<Expression>),
    Positive(Box<Expression>),
    Binary(Operator, Box<[Expression; 2]>),
    Concat(Vec<Expression>),
    Compare(Box<Expression>, Vec<(Comparison, Expression)>),
    Attribute(Box<Expression>, Arc<str>),
    Item(Box<Expression>, Box<Expression>),
    Slice(Box<Expression>, Box<[Option<Expression>; 3]>),
    Call(Box<Expression>, Arguments),
    Filtered(Box<Expression>, Filter),
    Test(Box<Expression>, Filter),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Modulo,
    Power,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
    NotIn,
}
