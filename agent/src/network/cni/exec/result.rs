//! What a plugin answers to ADD: read, brought into the network's version, and the addresses in it.
//! Pure.
//!
//! Source: `fixupResultVersion` in containernetworking/cni `pkg/invoke/exec.go`, the conversions in
//! `pkg/types/{020,040,100}`.

use std::net::IpAddr;

use coracle_cni::result::CniResult;
use ipnet::IpNet;
use serde_json::{Map, Value, json};

use crate::network::{
    NetworkError,
    cni::{IFNAME, conflist::version},
};

/// How versions differ in what is handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Before 0.3.0: `ip4` and `ip6` with one address each.
    Families,
    /// Before 1.0.0: `ips`, each with its `version`.
    Numbered,
    /// `ips`.
    Plain,
}

const FAMILIES: [(&str, &str); 2] = [("4", "ip4"), ("6", "ip6")];

/// Reads what `plugin` answers, for the next one of a network of `wanted`. A result that does not
/// say of which version it is, is of that one.
pub(super) fn parse(plugin: &str, answer: &[u8], wanted: &str) -> Result<Value, NetworkError> {
    let read = serde_json::from_slice(answer).map_err(|error| unread(plugin, &error.to_string()));
    read.and_then(|result| self::read(plugin, result, wanted))
}

/// The same for an answer that is JSON.
pub(super) fn read(plugin: &str, result: Value, wanted: &str) -> Result<Value, NetworkError> {
    let failed = |why: String| unread(plugin, &why);
    let Value::Object(result) = result else {
        return Err(failed(format!("{result} is no JSON object")));
    };
    into_version(result, wanted).map_err(failed)
}

fn unread(plugin: &str, why: &str) -> NetworkError {
    unusable(plugin, format!("its result cannot be read: {why}"))
}

fn into_version(mut result: Map<String, Value>, wanted: &str) -> Result<Value, String> {
    let told = result.get("cniVersion").and_then(Value::as_str);
    let given = told.filter(|told| !told.is_empty()).unwrap_or(wanted);
    if given != wanted {
        match (form(given)?, form(wanted)?) {
            (Form::Families, Form::Families) => {}
            (Form::Families, to) => {
                list_families(&mut result);
                number(&mut result, to);
            }
            (_, Form::Families) => pick_families(&mut result),
            (_, to) => number(&mut result, to),
        }
    }
    result.insert("cniVersion".to_owned(), wanted.into());
    Ok(Value::Object(result))
}

fn form(text: &str) -> Result<Form, String> {
    match version(text) {
        Some(known) if known < [0, 3, 0] => Ok(Form::Families),
        Some(known) if known < [1, 0, 0] => Ok(Form::Numbered),
        Some(known) if known < [2, 0, 0] => Ok(Form::Plain),
        _ => Err(format!("version {text:?} is not spoken here")),
    }
}

/// Of each family to one list of addresses and one of routes.
fn list_families(result: &mut Map<String, Value>) {
    let (mut ips, mut routes) = (Vec::new(), Vec::new());
    for (_, key) in FAMILIES {
        let Some(mut family) = result.remove(key).filter(Value::is_object) else {
            continue;
        };
        let mut ip = json!({"address": family["ip"].take()});
        if let gateway @ Value::String(_) = family["gateway"].take() {
            ip["gateway"] = gateway;
        }
        ips.push(ip);
        if let Value::Array(own) = family["routes"].take() {
            routes.extend(own);
        }
    }
    result.insert("ips".to_owned(), ips.into());
    if !routes.is_empty() {
        result.insert("routes".to_owned(), routes.into());
    }
}

/// The first address of each family, and the routes of it.
fn pick_families(result: &mut Map<String, Value>) {
    let list = |value: Option<Value>| match value {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    let ips = list(result.remove("ips"));
    let routes = list(result.remove("routes"));
    result.remove("interfaces");
    for (wanted, key) in FAMILIES {
        let is_of = |net: &Value| family_of(net) == Some(wanted);
        let Some(ip) = ips.iter().find(|ip| is_of(&ip["address"])) else {
            continue;
        };
        let own = routes.iter().filter(|route| is_of(&route["dst"]));
        let mut family = json!({"ip": ip["address"]});
        if ip["gateway"].is_string() {
            family["gateway"] = ip["gateway"].clone();
        }
        family["routes"] = own.cloned().collect();
        result.insert(key.to_owned(), family);
    }
}

/// Addresses say of which family they are, or do not.
fn number(result: &mut Map<String, Value>, to: Form) {
    let ips = result.get_mut("ips").and_then(Value::as_array_mut);
    for ip in ips.into_iter().flatten().filter_map(Value::as_object_mut) {
        ip.remove("version");
        let family = ip.get("address").and_then(family_of);
        if let (Form::Numbered, Some(family)) = (to, family) {
            ip.insert("version".to_owned(), family.into());
        }
    }
}

fn family_of(net: &Value) -> Option<&'static str> {
    match net.as_str()?.parse().ok()? {
        IpNet::V4(_) => Some("4"),
        IpNet::V6(_) => Some("6"),
    }
}

/// The pod's addresses: of its first link, one of each family at most, as a status has them.
pub(in crate::network::cni) fn addresses(result: &Value) -> Result<Vec<IpAddr>, NetworkError> {
    // Before version 0.3.0 a result had one address of each family:
    // `{"ip4": {"ip": "10.0.0.5/24"}}`.
    let oldest = ["ip4", "ip6"]
        .iter()
        .filter_map(|family| result[family]["ip"].as_str()?.parse::<IpNet>().ok());
    let oldest: Vec<IpAddr> = oldest.map(|net| net.addr()).collect();
    if !oldest.is_empty() {
        return Ok(oldest);
    }
    let result: CniResult = serde_json::from_value(result.clone()).map_err(|error| {
        unusable(
            "the last one",
            format!("its result cannot be read: {error}"),
        )
    })?;
    let is_pods = |index: usize| {
        let link = result.interfaces.get(index);
        link.is_none_or(|link| link.name == IFNAME && !link.sandbox.is_empty())
    };
    let own = result.ips.iter();
    let own = own.filter(|ip| ip.interface.is_none_or(is_pods));
    let own = own.map(|ip| ip.address.addr());
    let first = |is_wanted: fn(&IpAddr) -> bool| own.clone().find(is_wanted);
    let found = [first(IpAddr::is_ipv4), first(IpAddr::is_ipv6)];
    let found: Vec<IpAddr> = found.into_iter().flatten().collect();
    if found.is_empty() {
        let why = format!("its result has no address for {IFNAME}");
        return Err(unusable("the last one", why));
    }
    Ok(found)
}

fn unusable(plugin: &str, message: String) -> NetworkError {
    NetworkError::Plugin {
        plugin: plugin.to_owned(),
        command: "ADD",
        code: 6,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_handed_on_in_the_networks_version() {
        let families = json!({"cniVersion": "0.2.0", "dns": {},
            "ip4": {"ip": "10.0.0.5/24", "gateway": "10.0.0.1", "routes": [{"dst": "0.0.0.0/0"}]}});
        let numbered = json!({"cniVersion": "0.4.0", "dns": {}, "routes": [{"dst": "0.0.0.0/0"}],
            "ips": [{"version": "4", "address": "10.0.0.5/24", "gateway": "10.0.0.1"}]});
        let plain = json!({"cniVersion": "1.1.0", "dns": {}, "routes": [{"dst": "0.0.0.0/0"}],
            "ips": [{"address": "10.0.0.5/24", "gateway": "10.0.0.1"}]});
        let all = [families, numbered, plain];
        for given in &all {
            for wanted in &all {
                let version = wanted["cniVersion"].as_str().unwrap();
                let read = parse("p", given.to_string().as_bytes(), version).unwrap();
                assert_eq!(read, *wanted, "{given}");
            }
        }
    }

    #[test]
    fn what_a_plugin_adds_to_its_result_and_does_not_say_is_kept() {
        let reads = |answer: Value, expected: Value| {
            let read = parse("p", answer.to_string().as_bytes(), "1.0.0").unwrap();
            assert_eq!(read, expected);
        };
        reads(
            json!({"ips": []}),
            json!({"cniVersion": "1.0.0", "ips": []}),
        );
        reads(
            json!({"cniVersion": "", "x": 1}),
            json!({"cniVersion": "1.0.0", "x": 1}),
        );
        reads(
            json!({"cniVersion": "0.3.1", "interfaces": [{"name": "eth0", "mtu": 9000}], "x": [2]}),
            json!({"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "mtu": 9000}], "x": [2]}),
        );
    }

    #[test]
    fn what_is_no_result_is_refused_and_not_handed_on() {
        for answer in ["", "null", "[]", "\"x\"", "{", r#"{"cniVersion":"2.0.0"}"#] {
            let why = parse("p", answer.as_bytes(), "1.0.0")
                .unwrap_err()
                .to_string();
            assert!(
                why.contains("plugin p failed (ADD): its result cannot be read"),
                "{answer}: {why}"
            );
        }
    }

    #[test]
    fn addresses_are_read_from_results_of_every_version() {
        let results = [
            json!({"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.5/24", "gateway": "10.0.0.1"}}),
            json!({"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.0.0.5/24"}]}),
            json!({"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.5/24"}]}),
        ];
        for result in results {
            assert_eq!(
                addresses(&result).unwrap(),
                ["10.0.0.5".parse::<IpAddr>().unwrap()],
                "{result}"
            );
        }
    }

    #[test]
    fn a_pod_has_the_addresses_of_its_first_link() {
        let several = json!({"cniVersion": "1.0.0",
            "interfaces": [{"name": "br0"}, {"name": "eth0", "sandbox": "/ns"}, {"name": "net1", "sandbox": "/ns"}],
            "ips": [{"address": "10.9.0.5/24", "interface": 2}, {"address": "fd00::5/64", "interface": 1},
                    {"address": "10.0.0.5/24", "interface": 1}, {"address": "10.0.1.5/24", "interface": 1}]});
        let expected = ["10.0.0.5", "fd00::5"].map(|ip| ip.parse::<IpAddr>().unwrap());
        assert_eq!(addresses(&several).unwrap(), expected);
        for nothing in [
            json!({"ips": []}),
            json!({"interfaces": [{"name": "br0"}], "ips": [{"address": "10.0.0.5/24", "interface": 0}]}),
        ] {
            let why = addresses(&nothing).unwrap_err().to_string();
            assert!(why.contains("no address for eth0"), "{why}");
        }
    }
}
