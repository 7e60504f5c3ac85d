//! Expressions as they are parsed, with macros expanded.

use std::sync::Arc;

use crate::source::Source;

/// A number for each expression of a tree, from 1 on.
pub type ExprId = u32;

/// The deepest tree. Upstream bounds each rule of the grammar by 250; parser, checker and evaluator
/// recurse along the tree, and this much fits the stack of a worker.
pub(crate) const MAX_DEPTH: u16 = 400;

/// What stands in the text itself.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// `null`
    Null,
    /// `true`
    Bool(bool),
    /// `-1`
    Int(i64),
    /// `1u`
    Uint(u64),
    /// `1.5`
    Double(f64),
    /// `'a'`
    String(Arc<str>),
    /// `b'a'`
    Bytes(Arc<[u8]>),
}

/// An expression.
#[derive(Debug, Clone)]
pub struct Expr {
    /// Its number.
    pub id: ExprId,
    /// 1 for a leaf.
    pub depth: u16,
    /// What it is.
    pub kind: ExprKind,
}

/// What an expression is.
#[derive(Debug, Clone)]
pub enum ExprKind {
    /// A value.
    Literal(Literal),
    /// A name, with a leading dot if the text has one.
    Ident(Arc<str>),
    /// `operand.field`
    Select {
        /// Of what.
        operand: Box<Expr>,
        /// Which field.
        field: Arc<str>,
        /// Whether it is only asked if the field is there: `has(operand.field)`.
        test_only: bool,
    },
    /// A function or an operator.
    Call {
        /// Its name; operators have names like `_+_`.
        function: Arc<str>,
        /// Before the dot.
        target: Option<Box<Expr>>,
        /// Between the parentheses.
        args: Vec<Expr>,
    },
    /// `[a, b]`
    List {
        /// Each element, and whether it was written `?a`.
        elements: Vec<(Expr, bool)>,
    },
    /// `{a: b}`
    Map {
        /// Key, value, and whether it was written `?a: b`.
        entries: Vec<(Expr, Expr, bool)>,
    },
    /// `Type{field: value}`
    Struct {
        /// The type as written.
        type_name: Arc<str>,
        /// Number for messages, field, value, and whether it was written `?field: value`.
        fields: Vec<(ExprId, Arc<str>, Expr, bool)>,
    },
    /// What macros become.
    Comprehension(Box<Comprehension>),
}

/// A loop over a list or the keys of a map.
#[derive(Debug, Clone)]
pub struct Comprehension {
    /// Over what.
    pub iter_range: Expr,
    /// An element or a key.
    pub iter_var: Arc<str>,
    /// With two variables the first is the index or key and this is the value.
    pub iter_var2: Option<Arc<str>>,
    /// What is carried from step to step.
    pub accu_var: Arc<str>,
    /// Its first value.
    pub accu_init: Expr,
    /// Goes on while it is true.
    pub loop_condition: Expr,
    /// Its next value.
    pub loop_step: Expr,
    /// What it is all worth.
    pub result: Expr,
}

/// A parsed expression with its text.
#[derive(Debug, Clone)]
pub struct Ast {
    /// The text.
    pub source: Source,
    /// The tree.
    pub root: Expr,
    /// Offset in the text by [`ExprId`].
    pub(crate) positions: Vec<u32>,
}

impl Ast {
    /// Where an expression begins, or its operator stands.
    pub fn offset(&self, id: ExprId) -> u32 {
        self.positions.get(id as usize).copied().unwrap_or(0)
    }
}

impl Expr {
    /// How many expressions it is made of.
    pub(crate) fn count(&self) -> usize {
        let parts: usize = match &self.kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) => 0,
            ExprKind::Select { operand, .. } => operand.count(),
            ExprKind::Call { target, args, .. } => {
                let parts = target.iter().map(|target| &**target).chain(args);
                parts.map(Self::count).sum()
            }
            ExprKind::List { elements } => elements.iter().map(|(part, _)| part.count()).sum(),
            ExprKind::Map { entries } => {
                let entries = entries.iter();
                entries.map(|(key, of, _)| key.count() + of.count()).sum()
            }
            ExprKind::Struct { fields, .. } => {
                fields.iter().map(|(_, _, value, _)| value.count()).sum()
            }
            ExprKind::Comprehension(fold) => {
                let ends = fold.iter_range.count() + fold.accu_init.count() + fold.result.count();
                ends + fold.loop_condition.count() + fold.loop_step.count()
            }
        };
        parts + 1
    }

    /// `a.b.c`, if that is all it is.
    pub(crate) fn qualified(&self) -> Option<String> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name.to_string()),
            ExprKind::Select {
                operand,
                field,
                test_only: false,
            } => Some(format!("{}.{field}", operand.qualified()?)),
            _ => None,
        }
    }
}

impl ExprKind {
    /// How deep a tree of this kind is.
    pub(crate) fn depth(&self) -> u16 {
        let below = match self {
            Self::Literal(_) | Self::Ident(_) => 0,
            Self::Select { operand, .. } => operand.depth,
            Self::Call { target, args, .. } => {
                let target = target.as_ref().map_or(0, |target| target.depth);
                args.iter()
                    .map(|arg| arg.depth)
                    .fold(target, std::cmp::Ord::max)
            }
            Self::List { elements } => max(elements.iter().map(|(element, _)| element)),
            Self::Map { entries } => max(entries
                .iter()
                .flat_map(|(key, value, _)| [key, value].into_iter())),
            Self::Struct { fields, .. } => max(fields.iter().map(|(_, _, value, _)| value)),
            Self::Comprehension(fold) => max([
                &fold.iter_range,
                &fold.accu_init,
                &fold.loop_condition,
                &fold.loop_step,
                &fold.result,
            ]
            .into_iter()),
        };
        below.saturating_add(1)
    }
}

fn max<'a>(exprs: impl Iterator<Item = &'a Expr>) -> u16 {
    exprs.map(|expr| expr.depth).max().unwrap_or(0)
}
