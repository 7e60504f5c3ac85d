//! Makes expressions for parser and macros: numbers, places, and the bound on depth.

use std::sync::Arc;

use crate::{
    ast::{Comprehension, Expr, ExprId, ExprKind, Literal, MAX_DEPTH},
    source::{Found, Issue},
};

/// What a comprehension carries from step to step. No text can name it.
pub(crate) const ACCUMULATOR: &str = "@result";

/// The most expressions that copies may make a tree of. Macros that take their target twice double
/// it, and a chain of them would have a tree of any size for a short text.
const MAX_COPIED: usize = 100_000;

/// Numbers expressions and notes their places and what is wrong.
pub(crate) struct Builder {
    pub(crate) positions: Vec<u32>,
    pub(crate) issues: Found,
    /// Whether the tree grew too deep; it is cut where it did.
    pub(crate) too_deep: bool,
    /// Whether it grew too large; what would have been copied is left out.
    pub(crate) too_large: bool,
}

impl Builder {
    pub(crate) fn new(issues: Found) -> Self {
        Self {
            positions: vec![0],
            issues,
            too_deep: false,
            too_large: false,
        }
    }

    pub(crate) fn id(&mut self, offset: u32) -> ExprId {
        self.positions.push(offset);
        u32::try_from(self.positions.len() - 1).unwrap_or(0)
    }

    pub(crate) fn offset(&self, expr: &Expr) -> u32 {
        self.positions[expr.id as usize]
    }

    pub(crate) fn error(&mut self, offset: u32, message: impl Into<String>) {
        self.issues.push(Issue {
            offset: Some(offset),
            message: message.into(),
        });
    }

    pub(crate) fn expr(&mut self, offset: u32, kind: ExprKind) -> Expr {
        let id = self.id(offset);
        let depth = kind.depth();
        if depth > MAX_DEPTH {
            // What is below is dropped here, so that nobody else meets a tree this deep.
            self.too_deep = true;
            return Expr {
                id,
                depth: 1,
                kind: ExprKind::Literal(Literal::Null),
            };
        }
        Expr { id, depth, kind }
    }

    /// Stands for what could not be parsed; there is an issue for it.
    pub(crate) fn bad(&mut self, offset: u32) -> Expr {
        self.literal(offset, Literal::Null)
    }

    pub(crate) fn literal(&mut self, offset: u32, literal: Literal) -> Expr {
        self.expr(offset, ExprKind::Literal(literal))
    }

    pub(crate) fn ident(&mut self, offset: u32, name: &str) -> Expr {
        self.expr(offset, ExprKind::Ident(name.into()))
    }

    pub(crate) fn accumulator(&mut self, offset: u32) -> Expr {
        self.ident(offset, ACCUMULATOR)
    }

    pub(crate) fn call(&mut self, offset: u32, function: &str, args: Vec<Expr>) -> Expr {
        let function = function.into();
        self.expr(
            offset,
            ExprKind::Call {
                function,
                target: None,
                args,
            },
        )
    }

    pub(crate) fn member(
        &mut self,
        offset: u32,
        target: Expr,
        function: &str,
        args: Vec<Expr>,
    ) -> Expr {
        let function = function.into();
        let target = Some(Box::new(target));
        self.expr(
            offset,
            ExprKind::Call {
                function,
                target,
                args,
            },
        )
    }

    pub(crate) fn list(&mut self, offset: u32, elements: Vec<Expr>) -> Expr {
        let elements = elements.into_iter().map(|element| (element, false));
        let elements = elements.collect();
        self.expr(offset, ExprKind::List { elements })
    }

    pub(crate) fn fold(&mut self, offset: u32, fold: Comprehension) -> Expr {
        self.expr(offset, ExprKind::Comprehension(Box::new(fold)))
    }

    /// `name` stands for `value` in `result`: a loop over nothing.
    pub(crate) fn bind(&mut self, offset: u32, name: Arc<str>, value: Expr, result: Expr) -> Expr {
        let fold = Comprehension {
            iter_range: self.list(offset, Vec::new()),
            iter_var: "#unused".into(),
            iter_var2: None,
            accu_init: value,
            loop_condition: self.literal(offset, Literal::Bool(false)),
            loop_step: self.ident(offset, &name),
            accu_var: name,
            result,
        };
        self.fold(offset, fold)
    }

    /// Operands of `&&` or `||` as a tree that is as flat as it can be.
    pub(crate) fn balanced(&mut self, function: &str, operands: Vec<Expr>, ops: &[u32]) -> Expr {
        let mut slots: Vec<Option<Expr>> = operands.into_iter().map(Some).collect();
        self.balance(function, &mut slots, ops)
    }

    fn balance(&mut self, function: &str, slots: &mut [Option<Expr>], ops: &[u32]) -> Expr {
        if let [one] = slots {
            return one.take().expect("each operand is taken once");
        }
        let middle = slots.len().div_ceil(2);
        let (left, right) = slots.split_at_mut(middle);
        let left = self.balance(function, left, &ops[..middle - 1]);
        let right = self.balance(function, right, &ops[middle..]);
        self.call(ops[middle - 1], function, vec![left, right])
    }

    /// The same expression again, with numbers of its own.
    pub(crate) fn copy(&mut self, expr: &Expr) -> Expr {
        if self.positions.len() + expr.count() > MAX_COPIED {
            self.too_large = true;
            return self.bad(self.offset(expr));
        }
        let mut copy = expr.clone();
        self.renumber(&mut copy);
        copy
    }

    fn renumber(&mut self, expr: &mut Expr) {
        expr.id = self.id(self.positions[expr.id as usize]);
        match &mut expr.kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select { operand, .. } => self.renumber(operand),
            ExprKind::Call { target, args, .. } => {
                for part in target.iter_mut().map(|target| &mut **target).chain(args) {
                    self.renumber(part);
                }
            }
            ExprKind::List { elements } => {
                for (element, _) in elements {
                    self.renumber(element);
                }
            }
            ExprKind::Map { entries } => {
                for (key, value, _) in entries {
                    self.renumber(key);
                    self.renumber(value);
                }
            }
            ExprKind::Struct { fields, .. } => {
                for (id, _, value, _) in fields {
                    *id = self.id(self.positions[*id as usize]);
                    self.renumber(value);
                }
            }
            ExprKind::Comprehension(fold) => {
                for part in [
                    &mut fold.iter_range,
                    &mut fold.accu_init,
                    &mut fold.loop_condition,
                    &mut fold.loop_step,
                    &mut fold.result,
                ] {
                    self.renumber(part);
                }
            }
        }
    }
}
