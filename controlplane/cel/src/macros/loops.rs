//! Macros that loop.

use std::sync::Arc;

use super::call::{Call, Expanded, variable};
use crate::{
    ast::{Comprehension, Expr, ExprKind, Literal},
    build::{ACCUMULATOR, Builder},
};

/// `target.all(x, predicate)` and its like.
pub(super) fn one_variable(build: &mut Builder, call: Call<'_>) -> Expanded {
    let otherwise = match call.function {
        "map" | "filter" => "argument is not an identifier",
        _ => "argument must be a simple name",
    };
    let name = variable(build, &call.args[0], otherwise)?;
    let Call {
        open,
        function,
        target,
        mut args,
    } = call;
    args.remove(0);
    let fold = match function {
        "map" | "filter" => {
            let element = match function {
                "filter" => build.ident(open, &name),
                _ => args.pop().expect("map has a transformation"),
            };
            collect(build, open, element, args.pop())
        }
        quantifier => quantify(build, open, quantifier, args.remove(0)),
    };
    Ok(fold.over(build, open, target, (name, None)))
}

/// `target.all(i, v, predicate)` and its like.
pub(super) fn two_variables(build: &mut Builder, call: Call<'_>) -> Expanded {
    let otherwise = "argument must be a simple name";
    let first = variable(build, &call.args[0], otherwise)?;
    let second = variable(build, &call.args[1], otherwise)?;
    if first == second {
        let at = build.offset(&call.args[1]);
        let message = format!("duplicate variable name: {second}");
        build.error(at, message);
        return Err(at);
    }
    let Call {
        open,
        function,
        target,
        mut args,
    } = call;
    args.drain(..2);
    let last = args.pop().expect("each has an expression after its names");
    let filter = args.pop();
    let fold = match function {
        "transformList" => collect(build, open, last, filter),
        "transformMap" => {
            let accumulator = build.accumulator(open);
            let key = build.ident(open, &first);
            let step = build.call(open, "cel.@mapInsert", vec![accumulator, key, last]);
            insert(build, open, step, filter)
        }
        "transformMapEntry" => {
            let accumulator = build.accumulator(open);
            let step = build.call(open, "cel.@mapInsert", vec![accumulator, last]);
            insert(build, open, step, filter)
        }
        quantifier => quantify(build, open, quantifier, last),
    };
    Ok(fold.over(build, open, target, (first, Some(second))))
}

/// A loop whose range and variables are yet to come.
struct Fold {
    init: Expr,
    condition: Expr,
    step: Expr,
    result: Expr,
}

impl Fold {
    fn over(
        self,
        build: &mut Builder,
        open: u32,
        range: Expr,
        names: (Arc<str>, Option<Arc<str>>),
    ) -> Expr {
        let fold = Comprehension {
            iter_range: range,
            iter_var: names.0,
            iter_var2: names.1,
            accu_var: ACCUMULATOR.into(),
            accu_init: self.init,
            loop_condition: self.condition,
            loop_step: self.step,
            result: self.result,
        };
        build.fold(open, fold)
    }
}

fn quantify(build: &mut Builder, open: u32, function: &str, predicate: Expr) -> Fold {
    let accumulator = build.accumulator(open);
    match function {
        "all" => Fold {
            init: build.literal(open, Literal::Bool(true)),
            condition: build.call(open, "@not_strictly_false", vec![accumulator]),
            step: {
                let accumulator = build.accumulator(open);
                build.call(open, "_&&_", vec![accumulator, predicate])
            },
            result: build.accumulator(open),
        },
        "exists" => Fold {
            init: build.literal(open, Literal::Bool(false)),
            condition: {
                let not = build.call(open, "!_", vec![accumulator]);
                build.call(open, "@not_strictly_false", vec![not])
            },
            step: {
                let accumulator = build.accumulator(open);
                build.call(open, "_||_", vec![accumulator, predicate])
            },
            result: build.accumulator(open),
        },
        _ => Fold {
            init: build.literal(open, Literal::Int(0)),
            condition: build.literal(open, Literal::Bool(true)),
            step: {
                let one = build.literal(open, Literal::Int(1));
                let more = build.call(open, "_+_", vec![accumulator, one]);
                filtered(build, open, Some(predicate), more)
            },
            result: {
                let accumulator = build.accumulator(open);
                let one = build.literal(open, Literal::Int(1));
                build.call(open, "_==_", vec![accumulator, one])
            },
        },
    }
}

/// The step, or with a filter the accumulator as it is where the filter says no.
fn filtered(build: &mut Builder, open: u32, filter: Option<Expr>, step: Expr) -> Expr {
    match filter {
        Some(filter) => {
            let accumulator = build.accumulator(open);
            build.call(open, "_?_:_", vec![filter, step, accumulator])
        }
        None => step,
    }
}

fn collect(build: &mut Builder, open: u32, element: Expr, filter: Option<Expr>) -> Fold {
    let accumulator = build.accumulator(open);
    let list = build.list(open, vec![element]);
    let step = build.call(open, "_+_", vec![accumulator, list]);
    Fold {
        init: build.list(open, Vec::new()),
        condition: build.literal(open, Literal::Bool(true)),
        step: filtered(build, open, filter, step),
        result: build.accumulator(open),
    }
}

fn insert(build: &mut Builder, open: u32, step: Expr, filter: Option<Expr>) -> Fold {
    Fold {
        init: build.expr(
            open,
            ExprKind::Map {
                entries: Vec::new(),
            },
        ),
        condition: build.literal(open, Literal::Bool(true)),
        step: filtered(build, open, filter, step),
        result: build.accumulator(open),
    }
}
