//! Quantities: `quantity('1Gi')`.

use std::cmp::Ordering;

use coracle_api::quantity::{Format, Quantity};

use crate::{
    function::{Function, function, no_such_overload, walk_first},
    meter::Meter,
    value::{EvalError, Evaluated, Opaque, Value},
};

const NANO: i128 = 1_000_000_000;

pub(super) const FUNCTIONS: &[Function] = &[
    function(
        "quantity",
        quantity,
        &[("string_to_quantity", "string -> kubernetes.Quantity")],
    )
    .named(walk_first),
    function(
        "isQuantity",
        is_quantity,
        &[("is_quantity_string", "string -> bool")],
    )
    .named(walk_first),
    function(
        "sign",
        sign,
        &[("quantity_sign", ".kubernetes.Quantity -> int")],
    ),
    function(
        "isGreaterThan",
        is_greater,
        &[(
            "quantity_is_greater_than",
            ".kubernetes.Quantity, kubernetes.Quantity -> bool",
        )],
    ),
    function(
        "isLessThan",
        is_less,
        &[(
            "quantity_is_less_than",
            ".kubernetes.Quantity, kubernetes.Quantity -> bool",
        )],
    ),
    function(
        "compareTo",
        compare_to,
        &[(
            "quantity_compare_to",
            ".kubernetes.Quantity, kubernetes.Quantity -> int",
        )],
    ),
    function(
        "asApproximateFloat",
        as_double,
        &[("quantity_get_float", ".kubernetes.Quantity -> double")],
    ),
    function(
        "asInteger",
        as_integer,
        &[("quantity_get_int", ".kubernetes.Quantity -> int")],
    ),
    function(
        "isInteger",
        is_integer,
        &[("quantity_is_integer", ".kubernetes.Quantity -> bool")],
    ),
    function(
        "add",
        add,
        &[
            (
                "quantity_add",
                ".kubernetes.Quantity, kubernetes.Quantity -> kubernetes.Quantity",
            ),
            (
                "quantity_add_int",
                ".kubernetes.Quantity, int -> kubernetes.Quantity",
            ),
        ],
    ),
    function(
        "sub",
        sub,
        &[
            (
                "quantity_sub",
                ".kubernetes.Quantity, kubernetes.Quantity -> kubernetes.Quantity",
            ),
            (
                "quantity_sub_int",
                ".kubernetes.Quantity, int -> kubernetes.Quantity",
            ),
        ],
    ),
];

#[derive(Debug, PartialEq)]
struct Amount(Quantity);

impl Opaque for Amount {
    fn type_name(&self) -> &'static str {
        "kubernetes.Quantity"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

fn amount(value: &Value<'_>) -> Result<Quantity, EvalError> {
    value.downcast::<Amount>().map(|amount| amount.0)
}

/// A quantity, or an int as one.
fn operand(value: &Value<'_>) -> Result<Quantity, EvalError> {
    match value {
        Value::Int(int) => Ok(Quantity::from_units(*int, Format::DecimalExponent)),
        other => amount(other),
    }
}

fn quantity<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let parsed = Quantity::parse(args[0].as_str()?);
    parsed
        .map(|quantity| Value::opaque(Amount(quantity)))
        .map_err(|error| EvalError::new(error.to_string()))
}

fn is_quantity<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Bool(Quantity::parse(args[0].as_str()?).is_ok()))
}

fn sign<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let order = amount(&args[0])?.cmp(&Quantity::ZERO);
    Ok(Value::Int(order as i64))
}

fn compared(args: &[Value<'_>]) -> Result<Ordering, EvalError> {
    Ok(amount(&args[0])?.cmp(&amount(&args[1])?))
}

fn is_greater<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Bool(compared(args)?.is_gt()))
}

fn is_less<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Bool(compared(args)?.is_lt()))
}

fn compare_to<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Int(compared(args)? as i64))
}

fn as_double<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Double(amount(&args[0])?.as_f64()))
}

fn whole(quantity: Quantity) -> Option<i64> {
    let nanos = quantity.nanos();
    if nanos % NANO != 0 {
        return None;
    }
    i64::try_from(nanos / NANO).ok()
}

fn as_integer<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    whole(amount(&args[0])?)
        .map(Value::Int)
        .ok_or_else(|| EvalError::new("cannot convert value to integer"))
}

fn is_integer<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Bool(whole(amount(&args[0])?).is_some()))
}

fn add<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let sum = amount(&args[0])? + operand(&args[1])?;
    Ok(Value::opaque(Amount(sum)))
}

fn sub<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    if args.len() != 2 {
        return no_such_overload();
    }
    let difference = amount(&args[0])? - operand(&args[1])?;
    Ok(Value::opaque(Amount(difference)))
}
