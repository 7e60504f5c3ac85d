//! cel-go's extension, version 3: slices, ranges, and sorting.

use std::{cmp::Ordering, collections::BTreeSet};

use crate::{
    function::{Function, function, size},
    functions::equal::equal,
    functions::order::compare,
    meter::Meter,
    value::{EvalError, Evaluated, List, Value},
};

/// The longest range.
const MAX_RANGE: i64 = 10_000_000;

pub(in super::super) const FUNCTIONS: &[Function] = &[
    function(
        "slice",
        slice,
        &[("list_slice", ".list(T), int, int -> list(T)")],
    )
    .named(made),
    function(
        "flatten",
        flatten,
        &[
            ("list_flatten", ".list(list(T)) -> list(T)"),
            ("list_flatten_int", ".list(dyn), int -> list(dyn)"),
        ],
    )
    .named(flattened),
    function("lists.range", range, &[("lists_range", "int -> list(int)")]).named(made),
    function(
        "reverse",
        reverse,
        &[("list_reverse", ".list(T) -> list(T)")],
    )
    .named(made),
    function(
        "distinct",
        distinct,
        &[("list_distinct", ".list(T) -> list(T)")],
    )
    .named(compared),
    function(
        "sort",
        sort,
        &[
            ("list_int_sort", ".list(int) -> list(int)"),
            ("list_uint_sort", ".list(uint) -> list(uint)"),
            ("list_double_sort", ".list(double) -> list(double)"),
            ("list_bool_sort", ".list(bool) -> list(bool)"),
            (
                "list_google.protobuf.Duration_sort",
                ".list(duration) -> list(duration)",
            ),
            (
                "list_google.protobuf.Timestamp_sort",
                ".list(timestamp) -> list(timestamp)",
            ),
            ("list_string_sort", ".list(string) -> list(string)"),
            ("list_bytes_sort", ".list(bytes) -> list(bytes)"),
        ],
    )
    .named(compared),
    function(
        "@sortByAssociatedKeys",
        sort_by_keys,
        &[
            (
                "list_int_sortByAssociatedKeys",
                ".list(T), list(int) -> list(T)",
            ),
            (
                "list_uint_sortByAssociatedKeys",
                ".list(T), list(uint) -> list(T)",
            ),
            (
                "list_double_sortByAssociatedKeys",
                ".list(T), list(double) -> list(T)",
            ),
            (
                "list_bool_sortByAssociatedKeys",
                ".list(T), list(bool) -> list(T)",
            ),
            (
                "list_google.protobuf.Duration_sortByAssociatedKeys",
                ".list(T), list(duration) -> list(T)",
            ),
            (
                "list_google.protobuf.Timestamp_sortByAssociatedKeys",
                ".list(T), list(timestamp) -> list(T)",
            ),
            (
                "list_string_sortByAssociatedKeys",
                ".list(T), list(string) -> list(T)",
            ),
            (
                "list_bytes_sortByAssociatedKeys",
                ".list(T), list(bytes) -> list(T)",
            ),
        ],
    )
    .named(compared_keys),
];

/// A call, a list, and an element each.
fn made(_: &[Option<&Value<'_>>], result: Option<&Value<'_>>) -> u64 {
    result.map_or(1, Value::size).saturating_add(11)
}

fn flattened(args: &[Option<&Value<'_>>], _: Option<&Value<'_>>) -> u64 {
    let depth = match args.get(1) {
        Some(Some(Value::Int(depth))) => u64::try_from(*depth).unwrap_or(0),
        _ => 1,
    };
    size(args, 0).saturating_mul(depth).saturating_add(11)
}

fn square(value: Option<&Value<'_>>) -> u64 {
    let Some(Value::List(list)) = value else {
        return 11;
    };
    let text = matches!(list.get(0), Some(Ok(Value::String(_) | Value::Bytes(_))));
    let size = list.len() as u64;
    let square = size.saturating_mul(size);
    // Twice, and a tenth for texts; cut off as upstream does.
    let tenth = if text { square / 10 } else { 0 };
    square.saturating_mul(2).saturating_add(tenth + 11)
}

fn compared(args: &[Option<&Value<'_>>], _: Option<&Value<'_>>) -> u64 {
    square(args.first().copied().flatten())
}

fn compared_keys(args: &[Option<&Value<'_>>], _: Option<&Value<'_>>) -> u64 {
    square(args.get(1).copied().flatten())
}

fn slice<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let list = args[0].as_list()?;
    let (start, end) = (args[1].as_int()?, args[2].as_int()?);
    let refused = |why: String| {
        Err(EvalError::new(format!(
            "cannot slice({start}, {end}), {why}"
        )))
    };
    let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end)) else {
        return refused("negative indexes not supported".into());
    };
    if from > to {
        return refused("start index must be less than or equal to end index".into());
    }
    if list.len() < to {
        return refused(format!("list is length {}", list.len()));
    }
    meter.work(to - from)?;
    let elements: Result<Vec<_>, _> = (from..to).filter_map(|at| list.get(at)).collect();
    elements.map(Value::list)
}

fn flatten<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let depth = match args.get(1) {
        Some(depth) => depth.as_int()?,
        None => 1,
    };
    let depth = u64::try_from(depth).map_err(|_| EvalError::new("level must be non-negative"))?;
    let mut flat = Vec::new();
    flatten_into(meter, args[0].as_list()?, depth, &mut flat)?;
    Ok(Value::list(flat))
}

fn flatten_into<'v>(
    meter: &mut Meter<'_>,
    list: &List<'v>,
    depth: u64,
    flat: &mut Vec<Value<'v>>,
) -> Result<(), EvalError> {
    for element in list.iter() {
        meter.work(1)?;
        match element? {
            Value::List(nested) if depth > 0 => flatten_into(meter, &nested, depth - 1, flat)?,
            element => flat.push(element),
        }
    }
    Ok(())
}

fn range<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let count = args[0].as_int()?;
    if count < 0 {
        return Err(EvalError::new(format!(
            "lists.range: size must be non-negative, got {count}"
        )));
    }
    if count > MAX_RANGE {
        return Err(EvalError::new(format!(
            "lists.range: size {count} exceeds maximum allowed ({MAX_RANGE})"
        )));
    }
    // Charged before the memory is taken, and not again by the count of what was made.
    meter.affordable(count.unsigned_abs())?;
    Ok(Value::list((0..count).map(Value::Int).collect()))
}

fn reverse<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let list = args[0].as_list()?;
    meter.work(list.len())?;
    let mut elements = list.to_vec()?;
    elements.reverse();
    Ok(Value::list(elements))
}

fn distinct<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let mut kept: Vec<Value<'v>> = Vec::new();
    'elements: for element in args[0].as_list()?.iter() {
        let element = element?;
        for other in &kept {
            meter.work(1)?;
            if equal(meter, &element, other)? {
                continue 'elements;
            }
        }
        kept.push(element);
    }
    Ok(Value::list(kept))
}

fn sort<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    sort_by_keys(meter, &[args[0].clone(), args[0].clone()])
}

fn sort_by_keys<'v>(meter: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let (list, keys) = (args[0].as_list()?, args[1].as_list()?);
    if list.len() != keys.len() {
        return Err(EvalError::new(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, \
             but got {} and {} elements respectively",
            list.len(),
            keys.len()
        )));
    }
    meter.work(list.len().saturating_mul(16))?;
    let (elements, keys) = (list.to_vec()?, keys.to_vec()?);
    let types: BTreeSet<String> = keys
        .iter()
        .map(|key| key.type_of().runtime_name().to_owned())
        .collect();
    if keys.first().is_some_and(|key| compare(key, key).is_none()) {
        return Err(EvalError::new("list elements must be comparable"));
    }
    if types.len() > 1 {
        return Err(EvalError::new("list elements must have the same type"));
    }
    let mut pairs: Vec<_> = keys.into_iter().zip(elements).collect();
    pairs.sort_by(|(a, _), (b, _)| compare(a, b).flatten().unwrap_or(Ordering::Equal));
    Ok(Value::list(
        pairs.into_iter().map(|(_, element)| element).collect(),
    ))
}
