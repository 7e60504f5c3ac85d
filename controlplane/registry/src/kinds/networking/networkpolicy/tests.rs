use serde_json::json;

use super::*;
use crate::testing::{create_errors, created};

#[test]
fn defaults_are_upstreams() {
    let object = created(
        &NetworkPolicy,
        json!({"spec": {"egress": [{"ports": [{"port": 53}]}]}}),
    );
    assert_eq!(object["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(object["spec"]["egress"][0]["ports"][0]["protocol"], "TCP");
    assert_eq!(
        json!(NetworkPolicy.row(&object, 0)),
        json!(["", "<none>", "<unknown>"])
    );
}

#[test]
fn what_is_said_is_not_defaulted() {
    let types = |spec: Value| {
        let object = created(&NetworkPolicy, json!({"spec": spec}));
        object["spec"]["policyTypes"].clone()
    };
    assert_eq!(types(json!({})), json!(["Ingress"]));
    assert_eq!(types(json!({"egress": []})), json!(["Ingress"]));
    assert_eq!(types(json!({"policyTypes": null})), json!(["Ingress"]));
    let of_egress = json!({"policyTypes": ["Egress"], "ingress": [{}]});
    assert_eq!(types(of_egress), json!(["Egress"]));
    let ports = json!([{"port": 1, "protocol": null}, {"protocol": "UDP"}, {"protocol": ""}]);
    let object = created(
        &NetworkPolicy,
        json!({"spec": {"ingress": [{"ports": ports}]}}),
    );
    let ports = items(&object["spec"]["ingress"][0]["ports"]).iter();
    let protocols: Vec<_> = ports.map(|port| string(&port["protocol"])).collect();
    assert_eq!(protocols, ["TCP", "UDP", ""]);
}

fn check(spec: Value, expect: &str) {
    let object = json!({"spec": spec});
    assert_eq!(
        create_errors(&NetworkPolicy, object.clone()),
        expect,
        "{object}"
    );
}

#[test]
fn peers_are_checked() {
    let from = |peer: Value| json!({"ingress": [{"from": [peer]}]});
    let to = |peer: Value| json!({"egress": [{"to": [{"podSelector": {}}, peer]}]});
    let block = json!({"cidr": "10.0.0.0/8"});
    let bad =
        json!({"matchLabels": {"-": "x"}, "matchExpressions": [{"key": "a", "operator": "In"}]});
    check(
        json!({"podSelector": {}, "ingress": [{}], "egress": [{}]}),
        "",
    );
    check(
        from(json!({"podSelector": {}, "namespaceSelector": {}})),
        "",
    );
    check(
        from(json!({})),
        "spec.ingress[0].from[0]: Required value: must specify a peer",
    );
    check(
        to(json!({"ipBlock": null})),
        "spec.egress[0].to[1]: Required value: must specify a peer",
    );
    for selector in ["podSelector", "namespaceSelector"] {
        check(
            to(json!({"ipBlock": block, selector: {}})),
            "spec.egress[0].to[1]: Forbidden: may not specify both ipBlock and another peer",
        );
        let path = format!("spec.ingress[0].from[0].{selector}");
        let said = create_errors(
            &NetworkPolicy,
            json!({"spec": from(json!({selector: bad}))}),
        );
        for field in ["matchLabels", "matchExpressions[0].values"] {
            assert!(said.contains(&format!("{path}.{field}: ")), "{said}");
        }
    }
    let said = create_errors(&NetworkPolicy, json!({"spec": {"podSelector": bad}}));
    assert!(said.contains("spec.podSelector.matchLabels: "), "{said}");
}

#[test]
fn ranges_are_checked() {
    const CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    const ZEROS: &str = "must not have leading 0s in IP or prefix length";
    const BITS: &str = "must not have bits set beyond the prefix length";
    const MAPPED: &str = "must not have an IPv4-mapped IPv6 address";
    const SUBSET: &str = "must be a strict subset of `cidr`";
    let of = |block: Value| json!({"egress": [{"to": [{"ipBlock": block}]}]});
    let path = "spec.egress[0].to[0].ipBlock";
    check(of(json!({})), &format!("{path}.cidr: Required value"));
    for (cidr, why) in [
        ("0.0.0.0/0", ""),
        ("10.0.0.1/32", ""),
        ("::/0", ""),
        ("2001:0db8::/32", ""),
        ("x", CIDR),
        ("10.0.0.0", CIDR),
        ("10.0.0.0/33", CIDR),
        ("10.0.0/8", CIDR),
        ("010.0.0.0/8", ZEROS),
        ("10.0.0.0/08", ZEROS),
        ("10.0.0.1/8", BITS),
        ("2001:db8::1/64", BITS),
        ("::ffff:10.0.0.0/104", MAPPED),
    ] {
        let expect = match why {
            "" => String::new(),
            why => format!("{path}.cidr: Invalid value: {cidr:?}: {why}"),
        };
        check(of(json!({"cidr": cidr})), &expect);
    }
    for (except, why) in [
        ("10.1.0.0/16", ""),
        ("10.0.0.0/9", ""),
        ("10.0.0.0/8", SUBSET),
        ("0.0.0.0/0", SUBSET),
        ("11.0.0.0/16", SUBSET),
        ("2001:db8::/32", SUBSET),
        ("", CIDR),
        ("10.1.0.1/16", BITS),
    ] {
        let expect = match why {
            "" => String::new(),
            why => format!("{path}.except[0]: Invalid value: {except:?}: {why}"),
        };
        check(
            of(json!({"cidr": "10.0.0.0/8", "except": [except]})),
            &expect,
        );
    }
}

#[test]
fn ranges_that_were_there_may_stay() {
    let of = |ranges: [&str; 2]| json!({"spec": {"ingress": [{"from": [{"ipBlock": {"cidr": ranges[0], "except": [ranges[1]]}}]}]}});
    let old = of(["10.0.0.1/8", "10.1.0.1/16"]);
    let said = |new: Value| NetworkPolicy.validate_update(&new, &old).to_string();
    assert_eq!(said(old.clone()), "[]");
    // Wherever they go, and whatever is beside them.
    assert_eq!(said(of(["10.0.0.0/8", "10.1.0.1/16"])), "[]");
    let said_of_new = said(of(["10.0.0.1/8", "10.2.0.1/16"]));
    assert!(said_of_new.contains("bits set beyond"), "{said_of_new}");
    let apart = said(of(["10.1.0.1/16", "10.0.0.1/8"]));
    assert!(apart.contains("must be a strict subset"), "{apart}");
}

#[test]
fn ports_and_types_are_checked() {
    let of = |port: Value| json!({"ingress": [{"ports": [port]}]});
    let path = "spec.ingress[0].ports[0]";
    for (port, expect) in [
        (json!({}), ""),
        (json!({"protocol": "SCTP"}), ""),
        (json!({"port": 80, "endPort": 80}), ""),
        (json!({"port": 1, "endPort": 65535, "protocol": "UDP"}), ""),
        (json!({"port": "http-1"}), ""),
        (
            json!({"port": 5, "endPort": 3}),
            ".endPort: Invalid value: 3: must be greater than or equal to `port`",
        ),
        (
            json!({"port": 5, "endPort": 65536}),
            ".endPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
        ),
        (
            json!({"port": 0}),
            ".port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
        (
            json!({"port": "http", "endPort": 3}),
            ".endPort: Invalid value: 3: may not be specified when `port` is non-numeric",
        ),
        (
            json!({"endPort": 3}),
            ".endPort: Invalid value: 3: may not be specified when `port` is not specified",
        ),
        (
            json!({"port": "80"}),
            ".port: Invalid value: \"80\": must contain at least one letter (a-z)",
        ),
        (
            json!({"port": "a-name-too-long-1"}),
            ".port: Invalid value: \"a-name-too-long-1\": must be no more than 15 bytes",
        ),
        (
            json!({"port": 5, "protocol": "tcp"}),
            ".protocol: Unsupported value: \"tcp\": supported values: \"TCP\", \"UDP\", \"SCTP\"",
        ),
        (
            json!({"protocol": ""}),
            ".protocol: Unsupported value: \"\": supported values: \"TCP\", \"UDP\", \"SCTP\"",
        ),
    ] {
        let expect = match expect {
            "" => String::new(),
            why => format!("{path}{why}"),
        };
        check(of(port), &expect);
    }
    check(
        json!({"policyTypes": ["x"]}),
        "spec.policyTypes[0]: Unsupported value: \"x\": supported values: \"Ingress\", \"Egress\"",
    );
    check(json!({"policyTypes": ["Egress", "Ingress"]}), "");
    let three = json!({"policyTypes": ["Egress", "Egress", "x"]});
    let said = create_errors(&NetworkPolicy, json!({"spec": three}));
    assert!(
        said.starts_with("spec.policyTypes: Invalid value: "),
        "{said}"
    );
    assert!(
        said.ends_with(": may not specify more than two policyTypes"),
        "{said}"
    );
}
