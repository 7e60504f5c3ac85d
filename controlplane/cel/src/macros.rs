//! Macros: calls that the parser rewrites to loops, conditionals and tests.
//!
//! | macros | become |
//! |---|---|
//! | `has` | a field that is only tested |
//! | `all`, `exists`, `exists_one`, `map`, `filter` | loops over elements or keys |
//! | the same, `transformList`, `transformMap`, `transformMapEntry` | with two variables: index and value, or key and value |
//! | `optMap`, `optFlatMap` | a conditional on `hasValue()` |
//! | `sortBy` | a sort by keys that were mapped |
//!
//! Source: `parser/macro.go`, `ext/comprehensions.go`, `cel/library.go` and `ext/lists.go` of
//! cel-go.

mod call;
mod loops;
mod optionals;

use std::sync::Arc;

use self::call::{Call, Expanded};
use crate::{
    ast::{Expr, ExprKind},
    build::Builder,
};

/// A call, or what it becomes if it is a macro's. `open` is where its parenthesis opens.
pub(crate) fn expand(
    build: &mut Builder,
    open: u32,
    target: Option<Expr>,
    function: &str,
    mut args: Vec<Expr>,
) -> Expr {
    let Some(target) = target else {
        if function == "has" && args.len() == 1 {
            return has(build, open, args.remove(0));
        }
        return build.call(open, function, args);
    };
    let expand = match (function, args.len()) {
        ("all" | "exists" | "exists_one" | "existsOne" | "filter", 2) | ("map", 2 | 3) => {
            loops::one_variable
        }
        ("all" | "exists" | "exists_one" | "existsOne", 3)
        | ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => loops::two_variables,
        ("optMap" | "optFlatMap", 2) => optionals::map,
        ("sortBy", 2) => sort_by,
        _ => return build.member(open, target, function, args),
    };
    let call = Call {
        open,
        function,
        target,
        args,
    };
    match expand(build, call) {
        Ok(expr) => expr,
        Err(at) => build.bad(at),
    }
}

fn has(build: &mut Builder, open: u32, arg: Expr) -> Expr {
    let at = build.offset(&arg);
    match arg.kind {
        ExprKind::Select { operand, field, .. } => {
            let kind = ExprKind::Select {
                operand,
                field,
                test_only: true,
            };
            build.expr(open, kind)
        }
        _ => {
            build.error(at, "invalid argument to has() macro");
            build.bad(at)
        }
    }
}

/// `target.sortBy(e, key)`: the target, bound to a name, by its keys.
fn sort_by(build: &mut Builder, call: Call<'_>) -> Expanded {
    let Call {
        open, target, args, ..
    } = call;
    if matches!(
        target.kind,
        ExprKind::Literal(_) | ExprKind::Map { .. } | ExprKind::Struct { .. }
    ) {
        let at = build.offset(&target);
        let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        build.error(at, message);
        return Err(at);
    }
    let name: Arc<str> = "@__sortBy_input__".into();
    let mapped = Call {
        open,
        function: "map",
        target: build.ident(open, &name),
        args,
    };
    let keys = loops::one_variable(build, mapped)?;
    let input = build.ident(open, &name);
    let sorted = build.member(open, input, "@sortByAssociatedKeys", vec![keys]);
    Ok(build.bind(open, name, target, sorted))
}
