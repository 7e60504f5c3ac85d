//! Addresses and ranges of them.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::{
    function::{Function, function, no_such_overload, size, walk_first, walk_first_twice},
    meter::Meter,
    range::traversal,
    value::{EvalError, Evaluated, Opaque, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[
    function("ip", ip, &[("string_to_ip", "string -> net.IP")]).named(walk_first_text),
    function("ip", ip_of, &[("cidr_ip", ".net.CIDR -> net.IP")]),
    function("isIP", is_ip, &[("is_ip", "string -> bool")]).named(walk_first),
    function(
        "ip.isCanonical",
        is_canonical,
        &[("ip_is_canonical", "string -> bool")],
    )
    .named(walk_first_twice),
    function("family", family, &[("ip_family", ".net.IP -> int")]),
    function(
        "isUnspecified",
        is_unspecified,
        &[("ip_is_unspecified", ".net.IP -> bool")],
    ),
    function(
        "isLoopback",
        is_loopback,
        &[("ip_is_loopback", ".net.IP -> bool")],
    ),
    function(
        "isLinkLocalMulticast",
        is_link_local_multicast,
        &[("ip_is_link_local_multicast", ".net.IP -> bool")],
    ),
    function(
        "isLinkLocalUnicast",
        is_link_local_unicast,
        &[("ip_is_link_local_unicast", ".net.IP -> bool")],
    ),
    function(
        "isGlobalUnicast",
        is_global_unicast,
        &[("ip_is_global_unicast", ".net.IP -> bool")],
    ),
    function(
        "string",
        ip_to_string,
        &[("ip_to_string", "net.IP -> string")],
    ),
    function("cidr", cidr, &[("string_to_cidr", "string -> net.CIDR")]).named(walk_first),
    function("isCIDR", is_cidr, &[("is_cidr", "string -> bool")]).named(walk_first),
    function(
        "containsIP",
        contains_ip,
        &[
            ("cidr_contains_ip_string", ".net.CIDR, string -> bool"),
            ("cidr_contains_ip_ip", ".net.CIDR, net.IP -> bool"),
        ],
    )
    .named(compared),
    function(
        "containsCIDR",
        contains_cidr,
        &[
            ("cidr_contains_cidr_string", ".net.CIDR, string -> bool"),
            ("cidr_contains_cidr", ".net.CIDR, net.CIDR -> bool"),
        ],
    )
    .named(masked_and_compared),
    function(
        "prefixLength",
        prefix_length,
        &[("cidr_prefix_length", ".net.CIDR -> int")],
    ),
    function(
        "masked",
        masked,
        &[("cidr_masked", ".net.CIDR -> net.CIDR")],
    ),
    function(
        "string",
        cidr_to_string,
        &[("cidr_to_string", "net.CIDR -> string")],
    ),
];

fn walk_first_text(args: &[Option<&Value<'_>>], result: Option<&Value<'_>>) -> u64 {
    match args.first() {
        Some(Some(Value::Opaque(_))) => 1,
        _ => walk_first(args, result),
    }
}

fn compared(args: &[Option<&Value<'_>>], _: Option<&Value<'_>>) -> u64 {
    let parsed = match args.get(1) {
        Some(Some(text @ Value::String(_))) => traversal(text.size()),
        _ => 0,
    };
    traversal(size(args, 0) * 2) + parsed
}

fn masked_and_compared(args: &[Option<&Value<'_>>], result: Option<&Value<'_>>) -> u64 {
    compared(args, result) + traversal(size(args, 0)) + 1
}

#[derive(Debug, PartialEq)]
struct Ip(IpAddr);

impl Opaque for Ip {
    fn type_name(&self) -> &'static str {
        "net.IP"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }

    fn size(&self) -> Option<u64> {
        Some(if self.0.is_ipv4() { 4 } else { 16 })
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

#[derive(Debug, PartialEq)]
struct Cidr(IpNet);

impl Opaque for Cidr {
    fn type_name(&self) -> &'static str {
        "net.CIDR"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }

    fn size(&self) -> Option<u64> {
        Some(u64::from(self.0.prefix_len()).div_ceil(8))
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

fn is_mapped(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}

fn parse_ip(text: &str) -> Result<IpAddr, EvalError> {
    if text.contains(':') && text.contains('%') {
        return Err(EvalError::new(format!(
            "IP address {text:?} with zone value is not allowed"
        )));
    }
    let ip: IpAddr = text.parse().map_err(|_| {
        EvalError::new(format!(
            "IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): \
             unable to parse IP"
        ))
    })?;
    if is_mapped(&ip) {
        return Err(EvalError::new(format!(
            "IPv4-mapped IPv6 address {text:?} is not allowed"
        )));
    }
    Ok(ip)
}

fn parse_cidr(text: &str) -> Result<IpNet, EvalError> {
    let parsed: Option<IpNet> = text.parse().ok();
    // Go knows no sign and no zero before a length.
    let length = text.rsplit_once('/').map_or("", |(_, length)| length);
    let plain = length == "0" || length.starts_with(|c: char| ('1'..='9').contains(&c));
    let cidr = parsed.filter(|_| plain).ok_or_else(|| {
        EvalError::new(format!(
            "network address parse error during conversion from string: network address parse \
             error during conversion from string: netip.ParsePrefix({text:?}): no '/'"
        ))
    })?;
    if is_mapped(&cidr.addr()) {
        return Err(EvalError::new(format!(
            "network address parse error during conversion from string: IPv4-mapped IPv6 address \
             {text:?} is not allowed"
        )));
    }
    Ok(cidr)
}

fn ip<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    parse_ip(args[0].as_str()?).map(|ip| Value::opaque(Ip(ip)))
}

fn ip_of<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let cidr: &Cidr = args[0].downcast()?;
    Ok(Value::opaque(Ip(cidr.0.addr())))
}

fn is_ip<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Bool(parse_ip(args[0].as_str()?).is_ok()))
}

fn is_canonical<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let text = args[0].as_str()?;
    Ok(Value::Bool(parse_ip(text)?.to_string() == text))
}

fn family<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let ip: &Ip = args[0].downcast()?;
    Ok(Value::Int(if ip.0.is_ipv4() { 4 } else { 6 }))
}

fn property<'v>(args: &[Value<'v>], holds: impl Fn(&IpAddr) -> bool) -> Evaluated<'v> {
    let ip: &Ip = args[0].downcast()?;
    Ok(Value::Bool(holds(&ip.0)))
}

fn is_unspecified<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    property(args, IpAddr::is_unspecified)
}

fn is_loopback<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    property(args, IpAddr::is_loopback)
}

fn link_local_multicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    }
}

fn link_local_unicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn is_link_local_multicast<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    property(args, link_local_multicast)
}

fn is_link_local_unicast<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    property(args, link_local_unicast)
}

fn is_global_unicast<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    property(args, |ip| {
        let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
        !broadcast
            && !ip.is_unspecified()
            && !ip.is_loopback()
            && !ip.is_multicast()
            && !link_local_unicast(ip)
    })
}

fn ip_to_string<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let ip: &Ip = args[0].downcast()?;
    Ok(Value::string(ip.0.to_string()))
}

fn cidr<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    parse_cidr(args[0].as_str()?).map(|cidr| Value::opaque(Cidr(cidr)))
}

fn is_cidr<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Bool(parse_cidr(args[0].as_str()?).is_ok()))
}

fn contains_ip<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let cidr: &Cidr = args[0].downcast()?;
    let ip = match &args[1] {
        Value::String(text) => parse_ip(text)?,
        other => other.downcast::<Ip>()?.0,
    };
    Ok(Value::Bool(cidr.0.contains(&ip)))
}

fn contains_cidr<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let cidr: &Cidr = args[0].downcast()?;
    let other = match &args[1] {
        Value::String(text) => parse_cidr(text)?,
        other => other.downcast::<Cidr>()?.0,
    };
    let cidr = cidr.0;
    Ok(Value::Bool(
        cidr.prefix_len() <= other.prefix_len() && cidr.contains(&other.addr()),
    ))
}

fn prefix_length<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let cidr: &Cidr = args[0].downcast()?;
    Ok(Value::Int(cidr.0.prefix_len().into()))
}

fn masked<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let cidr: &Cidr = args[0].downcast()?;
    Ok(Value::opaque(Cidr(cidr.0.trunc())))
}

fn cidr_to_string<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    match args[0].downcast::<Cidr>() {
        Ok(cidr) => Ok(Value::string(cidr.0.to_string())),
        Err(_) => no_such_overload(),
    }
}
