//! What a function is: declared, done, charged.

use crate::{
    meter::Meter,
    range::{factor, traversal},
    value::{EvalError, Evaluated, Value},
};

/// What a function does with its arguments, a target first.
pub(crate) type Implementation = for<'v> fn(&mut Meter<'_>, &[Value<'v>]) -> Evaluated<'v>;

/// What a call cost, by its arguments and its value; an argument that is an error is `None`.
pub(crate) type Count = for<'v> fn(&[Option<&Value<'v>>], Option<&Value<'v>>) -> u64;

/// How a call is charged.
#[derive(Clone, Copy)]
pub(crate) enum Cost {
    /// One unit.
    One,
    /// By the name of the function.
    Named(Count),
    /// Where types say which overload it is; else one unit.
    Overload(Count),
}

/// A function; several may have one name.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    /// `(id, signature)`, see [`crate::env`].
    pub(crate) overloads: &'static [(&'static str, &'static str)],
    pub(crate) call: Implementation,
    pub(crate) cost: Cost,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A function that costs one unit.
pub(crate) const fn function(
    name: &'static str,
    call: Implementation,
    overloads: &'static [(&'static str, &'static str)],
) -> Function {
    Function {
        name,
        overloads,
        call,
        cost: Cost::One,
    }
}

impl Function {
    pub(crate) const fn named(mut self, count: Count) -> Self {
        self.cost = Cost::Named(count);
        self
    }

    pub(crate) const fn overload(mut self, count: Count) -> Self {
        self.cost = Cost::Overload(count);
        self
    }
}

pub(crate) fn no_such_overload<'v>() -> Evaluated<'v> {
    Err(EvalError::no_such_overload())
}

/// Functions of one name are charged alike but for `ip`, which tells its arguments apart. `exact`
/// says that types tell which overload it is.
pub(crate) fn charged(functions: &[&'static Function], exact: bool) -> Option<Count> {
    let named = functions.iter().find_map(|function| match function.cost {
        Cost::Named(count) => Some(count),
        _ => None,
    });
    named.or_else(|| {
        functions.iter().find_map(|function| match function.cost {
            Cost::Overload(count) if exact => Some(count),
            _ => None,
        })
    })
}

/// Size of an argument.
pub(crate) fn size(args: &[Option<&Value<'_>>], at: usize) -> u64 {
    args.get(at).copied().flatten().map_or(1, Value::size)
}

pub(crate) fn walk_first(args: &[Option<&Value<'_>>], _: Option<&Value<'_>>) -> u64 {
    traversal(size(args, 0))
}

pub(crate) fn walk_first_twice(args: &[Option<&Value<'_>>], _: Option<&Value<'_>>) -> u64 {
    factor(size(args, 0), 0.2)
}
