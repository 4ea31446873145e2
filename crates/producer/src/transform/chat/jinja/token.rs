//! The tokens of a template.

use std::sync::Arc;

/// A token and the line where it begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) line: u32,
}

/// The kinds of tokens.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Data(Arc<str>),
    VariableBegin,
    VariableEnd,
    BlockBegin,
    BlockEnd,
    Name(Arc<str>),
    Text(String),
    Int(i128),
    Float(f64),
    Op(&'static str),
    End,
}
