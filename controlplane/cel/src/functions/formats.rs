//! Named formats: `format.dns1123Label().validate(name)`.

use base64::Engine as _;
use coracle_api::name;

use super::urls;
use crate::{
    function::{Function, function, size},
    meter::Meter,
    range::{factor, traversal},
    time,
    value::{Evaluated, Opaque, Value},
};

macro_rules! named {
    ($name:literal, $at:literal) => {
        function(
            concat!("format.", $name),
            |_, _| Ok(Value::opaque(Format(&FORMATS[$at]))),
            &[(concat!("format.", $name), "-> kubernetes.NamedFormat")],
        )
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    function(
        "format.named",
        by_name,
        &[("format-named", "string -> optional(kubernetes.NamedFormat)")],
    ),
    function(
        "validate",
        validate,
        &[(
            "format-validate",
            ".kubernetes.NamedFormat, string -> optional(list(string))",
        )],
    )
    .named(searched),
    named!("dns1123Label", 0),
    named!("dns1123Subdomain", 1),
    named!("dns1035Label", 2),
    named!("qualifiedName", 3),
    named!("dns1123LabelPrefix", 4),
    named!("dns1123SubdomainPrefix", 5),
    named!("dns1035LabelPrefix", 6),
    named!("labelValue", 7),
    named!("uri", 8),
    named!("uuid", 9),
    named!("byte", 10),
    named!("date", 11),
    named!("datetime", 12),
];

/// The longest of the expressions that upstream counts formats as.
pub(crate) const LONGEST_PATTERN: f64 = 128.0;

struct Named {
    name: &'static str,
    /// How long an expression upstream counts it as.
    pattern: u64,
    errors: fn(&str) -> Vec<String>,
}

static FORMATS: [Named; 13] = [
    format("dns1123Label", 30, name::dns_label_errors),
    format("dns1123Subdomain", 60, name::dns_subdomain_errors),
    format("dns1035Label", 30, name::dns_1035_label_errors),
    format("qualifiedName", 60, name::qualified_name_errors),
    format("dns1123LabelPrefix", 30, |text| {
        name::dns_label_errors(&unsuffixed(text))
    }),
    format("dns1123SubdomainPrefix", 60, |text| {
        name::dns_subdomain_errors(&unsuffixed(text))
    }),
    format("dns1035LabelPrefix", 30, |text| {
        name::dns_1035_label_errors(&unsuffixed(text))
    }),
    format("labelValue", 40, name::label_value_errors),
    format("uri", 1000, |text| {
        urls::check(text).err().into_iter().collect()
    }),
    format("uuid", 110, |text| {
        unless(is_uuid(text), "does not match the UUID format")
    }),
    format("byte", 80, |text| {
        let decoded = base64::engine::general_purpose::STANDARD.decode(text);
        unless(!text.is_empty() && decoded.is_ok(), "invalid base64")
    }),
    format("date", 120, |text| {
        unless(
            text.len() == 10 && time::date_or_time(text).is_some(),
            "invalid date",
        )
    }),
    format("datetime", 120, |text| {
        unless(time::timestamp(text).is_some(), "invalid datetime")
    }),
];

const fn format(name: &'static str, pattern: u64, errors: fn(&str) -> Vec<String>) -> Named {
    Named {
        name,
        pattern,
        errors,
    }
}

fn unless(holds: bool, error: &str) -> Vec<String> {
    if holds {
        Vec::new()
    } else {
        vec![error.into()]
    }
}

/// A prefix may end with a dash: the name that is made of it goes on.
fn unsuffixed(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(start) if !start.is_empty() => format!("{start}a"),
        _ => text.into(),
    }
}

/// With dashes or without.
fn is_uuid(text: &str) -> bool {
    let bytes = text.as_bytes();
    let dashes = text.matches('-').count();
    let places = [8, 13, 18, 23];
    let shaped = match bytes.len() {
        32 => dashes == 0,
        36 => dashes == 4 && places.iter().all(|at| bytes[*at] == b'-'),
        _ => false,
    };
    shaped && text.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
}

struct Format(&'static Named);

impl std::fmt::Debug for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name)
    }
}

impl Opaque for Format {
    fn type_name(&self) -> &'static str {
        "kubernetes.NamedFormat"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|other| other.0.name == self.0.name)
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

fn searched(args: &[Option<&Value<'_>>], _: Option<&Value<'_>>) -> u64 {
    let format = args.first().copied().flatten();
    match format.and_then(|format| format.downcast::<Format>().ok()) {
        Some(format) => {
            let text = traversal(size(args, 1).saturating_add(1));
            text.saturating_mul(factor(format.0.pattern, 0.25))
        }
        None => 1,
    }
}

fn by_name<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let name = args[0].as_str()?;
    let found = FORMATS.iter().find(|format| format.name == name);
    Ok(match found {
        Some(found) => Value::some(Value::opaque(Format(found))),
        None => Value::Optional(None),
    })
}

fn validate<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let format: &Format = args[0].downcast()?;
    let errors = (format.0.errors)(args[1].as_str()?);
    if errors.is_empty() {
        return Ok(Value::Optional(None));
    }
    let errors = errors.into_iter().map(Value::string).collect();
    Ok(Value::some(Value::list(errors)))
}
