//! A call and its arguments as an estimate knows them.

use std::sync::Arc;

use crate::{
    ast::{Expr, ExprKind, Literal},
    range::Range,
    types::Type,
};

/// Where a value is: a variable's name, then fields, `@items`, `@keys`, `@values` and `@indices`.
pub type Path = Vec<Arc<str>>;

/// Tells the size of what is at a path, if it knows. A path is empty if a value is of no variable.
pub type Sizes<'a> = dyn Fn(&[Arc<str>], &Type) -> Option<Range> + 'a;

/// An argument of a call.
pub(super) struct Argument<'a> {
    pub(super) path: Path,
    pub(super) of: Type,
    pub(super) expr: Option<&'a Expr>,
    pub(super) size: Option<Range>,
}

/// What a call costs besides its arguments, and the size of its value.
pub(super) struct Estimate {
    pub(super) cost: Range,
    pub(super) size: Option<Range>,
}

impl Estimate {
    pub(super) fn cost(cost: Range) -> Option<Self> {
        Some(Self { cost, size: None })
    }

    pub(super) fn sized(cost: Range, size: Range) -> Option<Self> {
        Some(Self {
            cost,
            size: Some(size),
        })
    }
}

/// A call of an overload.
pub(super) struct Called<'c, 'a> {
    pub(super) expr: &'c Expr,
    pub(super) name: &'static str,
    pub(super) overload: &'c str,
    pub(super) target: Option<&'c Argument<'a>>,
    pub(super) args: &'c [Argument<'a>],
}

impl Called<'_, '_> {
    /// The size of an argument as far as the expression says.
    pub(super) fn size(&self, at: usize) -> Range {
        self.args
            .get(at)
            .and_then(|arg| arg.size)
            .unwrap_or(Range::UNKNOWN)
    }

    /// An argument that is a number in the text.
    pub(super) fn number(&self, at: usize) -> Option<u64> {
        match &self.args.get(at)?.expr?.kind {
            ExprKind::Literal(Literal::Int(int)) => u64::try_from(*int).ok(),
            _ => None,
        }
    }
}

/// The type of elements, for what is known of a list.
pub(super) fn element(of: &Type) -> Option<&Type> {
    match of {
        Type::List(element) => Some(element),
        Type::Map(entry) => Some(&entry.0),
        other => other.optional_value(),
    }
}
