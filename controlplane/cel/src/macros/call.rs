//! A macro's call, and the names in it.

use std::sync::Arc;

use crate::{
    ast::{Expr, ExprKind},
    build::{ACCUMULATOR, Builder},
};

/// A macro's call.
pub(super) struct Call<'a> {
    pub(super) open: u32,
    pub(super) function: &'a str,
    pub(super) target: Expr,
    pub(super) args: Vec<Expr>,
}

/// The expression, or where it went wrong; the issue is told.
pub(super) type Expanded = Result<Expr, u32>;

/// The name of a loop's variable.
pub(super) fn variable(build: &mut Builder, arg: &Expr, otherwise: &str) -> Result<Arc<str>, u32> {
    let at = build.offset(arg);
    match &arg.kind {
        ExprKind::Ident(name) if !name.starts_with('.') => {
            if **name == *ACCUMULATOR || &**name == "__result__" {
                build.error(at, "iteration variable overwrites accumulator variable");
                return Err(at);
            }
            Ok(name.clone())
        }
        _ => {
            build.error(at, otherwise);
            Err(at)
        }
    }
}
