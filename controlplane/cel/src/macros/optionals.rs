//! `optMap` and `optFlatMap`.

use super::call::{Call, Expanded, variable};
use crate::{ast::ExprKind, build::Builder};

/// `target.hasValue() ? optional.of(name bound to target.value(): expr) : optional.none()`.
pub(super) fn map(build: &mut Builder, call: Call<'_>) -> Expanded {
    let ident = matches!(call.args[0].kind, ExprKind::Ident(_));
    let message = format!(
        "{}() variable name must be a simple identifier",
        call.function
    );
    if !ident {
        let at = build.offset(&call.args[0]);
        build.error(at, message);
        return Err(at);
    }
    let name = variable(build, &call.args[0], &message)?;
    let Call {
        open,
        function,
        target,
        mut args,
    } = call;
    let mapped = args.pop().expect("two arguments");
    let again = build.copy(&target);
    let value = build.member(open, again, "value", Vec::new());
    let mut some = build.bind(open, name, value, mapped);
    if function == "optMap" {
        some = build.call(open, "optional.of", vec![some]);
    }
    let condition = build.member(open, target, "hasValue", Vec::new());
    let none = build.call(open, "optional.none", Vec::new());
    Ok(build.call(open, "_?_:_", vec![condition, some, none]))
}
