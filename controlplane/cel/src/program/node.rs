//! Parts of a program.

use std::{collections::BTreeSet, sync::Arc};

use regex::Regex;

use crate::{
    function::{Count, Function},
    value::{EvalError, Evaluated, Key, Value},
};

/// What a program is made of.
pub(super) struct Plan {
    pub(super) root: Node,
    /// How many variables of loops there are at once.
    pub(super) locals: usize,
    /// Bytes of regular expressions.
    pub(super) patterns: usize,
    /// Fields of the composed variable that it asks for.
    pub(super) composed: Vec<usize>,
}

/// A part of a program.
#[derive(Debug)]
pub(super) enum Node {
    Const(Value<'static>),
    Attribute(Box<Attribute>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    NotStrictlyFalse(Box<Node>),
    Call(Box<Call>),
    /// A call with an expression that is written in it.
    Regex(Box<Call>, Regex),
    /// `x in [1, 2]`
    MemberOf(Box<Node>, Members),
    /// `a.or(b)`, and with `true` `a.orValue(b)`.
    OptionalOr(Box<[Node; 2]>, bool),
    /// Each element, and whether it is there only if it has a value.
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    Object(Arc<str>, Vec<(Arc<str>, Node, bool)>),
    Fold(Box<Fold>),
    /// `all` and `exists`, which carry nothing but whether it is decided.
    Quantifier(Box<Quantifier>),
    /// What a loop carries, with something added to it.
    Accumulate(Box<Accumulate>),
}

/// A value that is looked into: `a.b[c]`.
#[derive(Debug)]
pub(super) struct Attribute {
    pub(super) base: Base,
    pub(super) qualifiers: Vec<Qualifier>,
    /// Whether it is only asked if the last one is there.
    pub(super) test_only: bool,
}

impl Attribute {
    /// Whether it is just this variable of a loop.
    pub(super) fn is_local(&self, place: usize) -> bool {
        let is_it = matches!(self.base, Base::Local(own) if own == place);
        is_it && self.qualifiers.is_empty() && !self.test_only
    }
}

#[derive(Debug)]
pub(super) enum Base {
    Variable(usize),
    /// A field of the variable that is composed.
    Composed(usize),
    Local(usize),
    Value(Node),
    Conditional([Node; 3]),
}

#[derive(Debug)]
pub(super) struct Qualifier {
    pub(super) kind: QualifierKind,
    /// `.?a` or `[?a]`
    pub(super) optional: bool,
}

#[derive(Debug)]
pub(super) enum QualifierKind {
    Field(Arc<str>),
    Key(Value<'static>),
    Expr(Node),
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) name: &'static str,
    /// Those that it may be; the first that takes the arguments is.
    pub(super) functions: Vec<&'static Function>,
    /// What it costs; `None` for one unit whatever its arguments are.
    pub(super) cost: Option<Count>,
    pub(super) args: Vec<Node>,
}

/// What a list that is written in an expression has.
#[derive(Debug)]
pub(super) enum Members {
    Keys(BTreeSet<Key<'static>>),
    Values(Vec<Value<'static>>),
}

#[derive(Debug)]
pub(super) struct Fold {
    pub(super) range: Node,
    /// Places of the loop's variables.
    pub(super) first: usize,
    pub(super) second: Option<usize>,
    pub(super) accumulator: usize,
    pub(super) init: Node,
    pub(super) condition: Node,
    pub(super) step: Node,
    pub(super) result: Node,
}

#[derive(Debug)]
pub(super) struct Quantifier {
    pub(super) range: Node,
    /// Places of the loop's variables.
    pub(super) first: usize,
    pub(super) second: Option<usize>,
    pub(super) predicate: Node,
    /// What decides it: false of `all`, true of `exists`.
    pub(super) decides: bool,
}

#[derive(Debug)]
pub(super) struct Accumulate {
    pub(super) accumulator: usize,
    /// One element of a list, or key and value, or a map of entries.
    pub(super) parts: Vec<Node>,
    pub(super) insert: Option<&'static Function>,
}

/// Ends what cannot go on whatever comes, and hands on all else.
pub(super) fn uncancelled<'v>(value: Evaluated<'v>) -> Result<Evaluated<'v>, EvalError> {
    match value {
        Err(error) if error.is_cancelled() => Err(error),
        other => Ok(other),
    }
}
