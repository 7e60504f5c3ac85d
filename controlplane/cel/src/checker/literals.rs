//! Literals that a function cannot take: durations, moments and regular expressions.
//!
//! Source: `cel/validator.go` of cel-go.

use std::collections::HashMap;

use crate::{
    ast::{Expr, ExprId, ExprKind, Literal},
    checked::Reference,
    patterns, time,
};

/// All literal arguments of an expression that cannot be, and why.
pub(super) fn refused(
    root: &Expr,
    references: &HashMap<ExprId, Reference>,
) -> Vec<(ExprId, String)> {
    let (mut refused, mut compiled) = (Vec::new(), 0);
    walk(root, &mut |expr| {
        let is_call = matches!(references.get(&expr.id), Some(Reference::Call { .. }));
        if is_call && let Some(issue) = call(expr, &mut compiled) {
            refused.push(issue);
        }
    });
    refused
}

fn walk(expr: &Expr, visit: &mut impl FnMut(&Expr)) {
    visit(expr);
    match &expr.kind {
        ExprKind::Literal(_) | ExprKind::Ident(_) => {}
        ExprKind::Select { operand, .. } => walk(operand, visit),
        ExprKind::Call { target, args, .. } => {
            for part in target.iter().map(|target| &**target).chain(args) {
                walk(part, visit);
            }
        }
        ExprKind::List { elements } => {
            for (element, _) in elements {
                walk(element, visit);
            }
        }
        ExprKind::Map { entries } => {
            for (key, value, _) in entries {
                walk(key, visit);
                walk(value, visit);
            }
        }
        ExprKind::Struct { fields, .. } => {
            for (_, _, value, _) in fields {
                walk(value, visit);
            }
        }
        ExprKind::Comprehension(fold) => {
            for part in [
                &fold.iter_range,
                &fold.accu_init,
                &fold.loop_condition,
                &fold.loop_step,
                &fold.result,
            ] {
                walk(part, visit);
            }
        }
    }
}

/// `compiled` counts the bytes of regular expressions: beyond what a program may have of them,
/// nobody needs to know more.
fn call(expr: &Expr, compiled: &mut usize) -> Option<(ExprId, String)> {
    let ExprKind::Call {
        function,
        target,
        args,
    } = &expr.kind
    else {
        return None;
    };
    let arg = match &**function {
        "duration" | "timestamp" => args.first(),
        "matches" | "find" | "findAll" => args.get(usize::from(target.is_none())),
        _ => None,
    }?;
    let ExprKind::Literal(Literal::String(text)) = &arg.kind else {
        return None;
    };
    let fits = match &**function {
        "duration" => time::duration(text).is_some(),
        "timestamp" => time::timestamp(text).is_some(),
        _ if *compiled > patterns::MOST => true,
        _ => {
            let made = patterns::compile(text);
            *compiled += made.as_ref().map_or(patterns::LARGEST, |made| made.size);
            made.is_ok()
        }
    };
    (!fits).then(|| (arg.id, format!("invalid {function} argument")))
}
