//! What the functions of Kubernetes' libraries, and those that it charges by itself, cost.
//!
//! Source: `k8s.io/apiserver/pkg/cel/library/cost.go`; `ext/lists.go` and `ext/sets.go` of cel-go.

use super::called::{Argument, Called, Estimate, Sizes, element};
use crate::{
    functions::{authz, formats},
    range::Range,
    types::Type,
};

/// The estimate of a function that is charged by its name, or of an overload of cel-go's lists and
/// sets.
pub(super) fn estimate(call: &Called<'_, '_>, sizes: &Sizes<'_>) -> Option<Estimate> {
    extensions(call, sizes).or_else(|| by_name(call, sizes))
}

/// The size of an argument, be it by the expression or by a schema.
fn size(argument: &Argument<'_>, sizes: &Sizes<'_>) -> Range {
    let known = || sizes(&argument.path, &argument.of);
    argument.size.or_else(known).unwrap_or(Range::UNKNOWN)
}

fn extensions(call: &Called<'_, '_>, sizes: &Sizes<'_>) -> Option<Estimate> {
    let of = |at: usize| call.args.get(at).map(|arg| size(arg, sizes));
    let target = call.target.map(|target| size(target, sizes));
    let made = |cost: Range, size: Range| {
        let cost = cost.add(Range::fixed(11));
        Estimate::sized(cost, size)
    };
    let square = |list: Range, by: f64| {
        let square = list.multiply(list);
        made(square.factor(by), square)
    };
    // Of texts and bytes a tenth more, for comparing them.
    let by = |text: bool| if text { 2.1 } else { 2.0 };
    let text = call.overload.contains("_string_") || call.overload.contains("_bytes_");
    match call.overload {
        "list_sets_contains_list" | "list_sets_intersects_list" => {
            let product = of(0)?.multiply(of(1)?);
            Estimate::cost(product.add(Range::fixed(1)))
        }
        "list_sets_equivalent_list" => {
            let product = of(0)?.multiply(of(1)?).factor(2.0);
            Estimate::cost(product.add(Range::fixed(1)))
        }
        "list_slice" => {
            let start = call.number(0).unwrap_or(0);
            let end = call.number(1).unwrap_or(target?.max);
            let size = Range::fixed(end.saturating_sub(start));
            made(size, size)
        }
        "lists_range" => {
            let size = Range::fixed(call.number(0).unwrap_or(u64::MAX));
            made(size, size)
        }
        "list_reverse" => made(target?, target?),
        "list_flatten" => made(target?, target?),
        "list_flatten_int" => {
            let depth = Range::fixed(call.number(0).unwrap_or(u64::MAX));
            made(target?.multiply(depth), target?)
        }
        "list_distinct" => square(target?, 2.0),
        overload if overload.ends_with("_sort") => square(target?, by(text)),
        overload if overload.ends_with("_sortByAssociatedKeys") => square(of(0)?, by(text)),
        _ => None,
    }
}

/// Functions that build or read something, and cost one unit.
const NOMINAL: [&str; 38] = [
    "serviceAccount",
    "path",
    "group",
    "resource",
    "subresource",
    "namespace",
    "name",
    "allowed",
    "reason",
    "error",
    "errored",
    "masked",
    "prefixLength",
    "family",
    "isUnspecified",
    "isLoopback",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isGlobalUnicast",
    "format.named",
    "sign",
    "asInteger",
    "isInteger",
    "asApproximateFloat",
    "isGreaterThan",
    "isLessThan",
    "compareTo",
    "add",
    "sub",
    "major",
    "minor",
    "patch",
    "getScheme",
    "getHostname",
    "getHost",
    "getPort",
    "getEscapedPath",
    "getQuery",
];

fn by_name(call: &Called<'_, '_>, sizes: &Sizes<'_>) -> Option<Estimate> {
    let of = |at: usize| call.args.get(at).map(|arg| size(arg, sizes));
    let target = call.target.map(|target| size(target, sizes));
    let one = || Estimate::cost(Range::fixed(1));
    match call.name {
        "check" => Estimate::cost(Range::fixed(authz::CHECK_COST)),
        name if NOMINAL.contains(&name) => one(),
        "fieldSelector" | "labelSelector" => Estimate::cost(selector(of(0)?)),
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
            compared(call.target?, target?, sizes)
        }
        "url" | "jsonpatch.escapeKey" => Estimate::sized(of(0)?.walked(), of(0)?),
        "lowerAscii" | "upperAscii" | "substring" | "trim" => {
            Estimate::sized(target?.walked(), target?)
        }
        "replace" => {
            let size = replaced(target?, of(0)?, of(1)?);
            Estimate::sized(target?.factor(0.2), size)
        }
        "split" => {
            let most = call.number(1).unwrap_or(target?.max);
            let size = Range { min: 0, max: most };
            Estimate::sized(target?.factor(0.2), size)
        }
        "join" => {
            let size = joined(call.target?, target?, of(0), sizes);
            Estimate::sized(size.walked(), size)
        }
        "find" | "findAll" => {
            let text = target?.add(Range::fixed(1)).walked();
            let size = Range {
                min: 0,
                max: target?.max,
            };
            Estimate::sized(text.multiply(of(0)?.factor(0.25)), size)
        }
        "ip" if call.overload == "cidr_ip" => one(),
        "ip" | "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
            Estimate::cost(of(0)?.walked())
        }
        "ip.isCanonical" => Estimate::cost(of(0)?.factor(0.2)),
        "containsIP" | "containsCIDR" => Estimate::cost(address(call, of(0)?)),
        "validate" => {
            let pattern = formats::LONGEST_PATTERN * 0.25;
            Estimate::cost(of(0)?.walked().factor(pattern))
        }
        "_==_" => equality(call),
        _ => None,
    }
}

fn selector(length: Range) -> Range {
    Range {
        min: authz::selector_cost(length.min),
        max: authz::selector_cost(length.max),
    }
}

/// A list is walked with what is in it; a text by itself.
fn compared(target: &Argument<'_>, size_of: Range, sizes: &Sizes<'_>) -> Option<Estimate> {
    let Some(of) = element(&target.of) else {
        return Estimate::cost(size_of.walked());
    };
    let mut each = Range::fixed(1);
    if matches!(of, Type::String | Type::Bytes) {
        each = each.add(size(&items(target, of), sizes).walked());
    }
    Estimate::cost(size_of.multiply(each))
}

/// An element of a list.
fn items<'a>(list: &Argument<'_>, of: &Type) -> Argument<'a> {
    let mut path = list.path.clone();
    if !path.is_empty() {
        path.push("@items".into());
    }
    Argument {
        path,
        of: of.clone(),
        expr: None,
        size: None,
    }
}

/// How long a text can be in which one text takes another's place.
fn replaced(text: Range, old: Range, new: Range) -> Range {
    let (mut count, mut kept) = (Range::fixed(0), Range::fixed(0));
    if old.min == 0 {
        count.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if new.max <= old.min {
        kept.max = text.max;
    } else {
        count.max = text.max.div_ceil(old.min);
    }
    if old.max == 0 {
        count.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if old.max <= new.min {
        kept.min = text.min;
    } else {
        count.min = text.min.div_ceil(old.max);
    }
    count.multiply(new).add(kept)
}

fn joined(
    target: &Argument<'_>,
    list: Range,
    separator: Option<Range>,
    sizes: &Sizes<'_>,
) -> Range {
    let mut joined = match element(&target.of) {
        Some(of) => list.multiply(size(&items(target, of), sizes)),
        None => Range::fixed(0),
    };
    if let Some(separator) = separator {
        let separators = Range {
            min: list.min.saturating_sub(1),
            max: list.max.saturating_sub(1),
        };
        joined = joined.add(separator.multiply(separators));
    }
    joined
}

/// Two addresses of 4 to 16 bytes; one that is a text is parsed.
fn address(call: &Called<'_, '_>, other: Range) -> Range {
    let bytes = Range { min: 4, max: 16 };
    let mut cost = bytes.add(bytes).walked();
    if call.name == "containsCIDR" {
        // It is masked first.
        cost = cost.add(bytes.walked()).add(Range::fixed(1));
    }
    match call.overload {
        "cidr_contains_ip_string" | "cidr_contains_cidr_string" => cost.add(other.walked()),
        _ => cost,
    }
}

fn equality(call: &Called<'_, '_>) -> Option<Estimate> {
    let [left, right] = call.args else {
        return None;
    };
    if left.of != right.of {
        return None;
    }
    match left.of.runtime_name() {
        "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => {
            Estimate::cost(Range::fixed(1))
        }
        "kubernetes.NamedFormat" => Estimate::cost(Range { min: 1, max: 64 }.walked()),
        "kubernetes.URL" => {
            let most = right.size.map_or(1, |size| size.max);
            Estimate::cost(Range { min: 1, max: most }.walked())
        }
        name if name.starts_with("kubernetes.authorization.") => Estimate::cost(Range::fixed(1)),
        _ => None,
    }
}
