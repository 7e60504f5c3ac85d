//! Cases about which ports, and what changes.

use coracle_netfilter::service::Protocol::{Sctp, Tcp, Udp};
use serde_json::json;

use super::{Case, specs::*};

pub(super) const CASES: &[Case] = &[
    ("should deny egress from all pods in a namespace", |w| {
        w.policy("x", "p", Some(egress(json!({}), json!([]))));
        expect(w, Tcp, 80, |from, _| !is_in(from, "x"));
    }),
    ("should work with Ingress, Egress specified together", |w| {
        let mut spec = from_peers(json!([{"podSelector": is("b")}]));
        spec["egress"] = json!([{"ports": [{"port": 80}]}]);
        spec["policyTypes"] = json!(["Egress", "Ingress"]);
        w.policy("x", "p", Some(spec));
        expect(w, Tcp, 80, |from, to| to != "x/a" || from == "x/b");
        expect(w, Tcp, 81, |from, to| {
            from != "x/a" && (to != "x/a" || from == "x/b")
        });
    }),
    (
        "should support denying of egress traffic on the client side (even if the server explicitly allows this traffic)",
        |w| {
            let to_y = json!([{"to": [{"namespaceSelector": named("y"), "podSelector": is("a")}]}]);
            w.policy("x", "p", Some(egress(is("a"), to_y)));
            let from_x =
                json!([{"from": [{"namespaceSelector": named("x"), "podSelector": is("a")}]}]);
            w.policy("y", "p", Some(ingress(is("a"), from_x.clone())));
            w.policy("y", "q", Some(ingress(is("b"), from_x)));
            expect(w, Tcp, 80, |from, to| match (from, to) {
                ("x/a", "y/a") => true,
                ("x/a", _) | (_, "y/a" | "y/b") => false,
                _ => true,
            });
        },
    ),
    (
        "should enforce egress policy allowing traffic to a server in a different namespace based on PodSelector and NamespaceSelector",
        |w| {
            let to_y = json!([{"to": [{"namespaceSelector": named("y"), "podSelector": is("a")}]}]);
            w.policy("x", "p", Some(egress(is("a"), to_y)));
            expect(w, Tcp, 80, |from, to| from != "x/a" || to == "y/a");
        },
    ),
    (
        "should enforce ingress policy allowing any port traffic to a server on a specific protocol",
        |w| {
            w.policy(
                "x",
                "p",
                Some(ingress(is("a"), json!([{"ports": [{"protocol": "TCP"}]}]))),
            );
            expect(w, Tcp, 80, |_, _| true);
            expect(w, Udp, 80, |_, to| to != "x/a");
        },
    ),
    (
        "should enforce multiple ingress policies with ingress allow-all policy taking precedence",
        |w| {
            w.policy(
                "x",
                "p",
                Some(ingress(json!({}), json!([{"ports": [{"port": 80}]}]))),
            );
            expect(w, Tcp, 81, |_, to| !is_in(to, "x"));
            w.policy("x", "q", Some(ingress(json!({}), json!([{}]))));
            expect(w, Tcp, 81, |_, _| true);
        },
    ),
    (
        "should enforce multiple egress policies with egress allow-all policy taking precedence",
        |w| {
            w.policy(
                "x",
                "p",
                Some(egress(json!({}), json!([{"ports": [{"port": 80}]}]))),
            );
            expect(w, Tcp, 81, |from, _| !is_in(from, "x"));
            w.policy("x", "q", Some(egress(json!({}), json!([{}]))));
            expect(w, Tcp, 81, |_, _| true);
        },
    ),
    (
        "should stop enforcing policies after they are deleted",
        |w| {
            w.policy("x", "p", Some(deny_all()));
            expect(w, Tcp, 80, |from, to| !is_in(to, "x") && !is_in(from, "x"));
            w.policy("x", "p", None);
            expect(w, Tcp, 80, |_, _| true);
        },
    ),
    ("should allow egress access to server in CIDR block", |w| {
        w.policy("x", "p", Some(to_block(json!({"cidr": one('y', 'b')}))));
        expect(w, Tcp, 80, |from, to| from != "x/a" || to == "y/b");
    }),
    (
        "should enforce except clause while egress access to server in CIDR block",
        |w| {
            let block = json!({"cidr": "10.0.0.0/8", "except": [one('x', 'b')]});
            w.policy("x", "p", Some(to_block(block)));
            expect(w, Tcp, 80, |from, to| from != "x/a" || to != "x/b");
        },
    ),
    (
        "should ensure an IP overlapping both IPBlock.CIDR and IPBlock.Except is allowed",
        |w| {
            let block = json!({"cidr": "10.0.0.0/8", "except": [one('x', 'b')]});
            w.policy("x", "p", Some(to_block(block)));
            expect(w, Tcp, 80, |from, to| from != "x/a" || to != "x/b");
            // Beside the first: both blocks together.
            w.policy("x", "q", Some(to_block(json!({"cidr": one('x', 'b')}))));
            expect(w, Tcp, 80, |_, _| true);
            // In place of the first, as upstream's test has it.
            w.policy("x", "q", None);
            w.policy("x", "p", Some(to_block(json!({"cidr": one('x', 'b')}))));
            expect(w, Tcp, 80, |from, to| from != "x/a" || to == "x/b");
        },
    ),
    (
        "should enforce policies to check ingress and egress policies can be controlled independently based on PodSelector",
        |w| {
            w.policy("x", "p", Some(egress(is("a"), json!([{}]))));
            expect(w, Tcp, 80, |_, _| true);
            w.policy("x", "q", Some(ingress(is("a"), json!([]))));
            expect(w, Tcp, 80, |_, to| to != "x/a");
        },
    ),
    (
        "should not mistakenly treat 'protocol: SCTP' as 'protocol: TCP', even if the plugin doesn't support SCTP",
        |w| {
            w.policy("x", "p", Some(ingress(json!({}), json!([]))));
            let sctp = json!([{"ports": [{"port": 81, "protocol": "SCTP"}]}]);
            w.policy("x", "q", Some(ingress(is("a"), sctp)));
            expect(w, Tcp, 81, |_, to| !is_in(to, "x"));
            expect(w, Sctp, 81, |_, to| !is_in(to, "x") || to == "x/a");
        },
    ),
    (
        "should properly isolate pods that are selected by a policy allowing SCTP, even if the plugin doesn't support SCTP",
        |w| {
            let sctp = json!([{"ports": [{"port": 80, "protocol": "SCTP"}]}]);
            w.policy("x", "p", Some(ingress(is("a"), sctp)));
            expect(w, Tcp, 81, |_, to| to != "x/a");
        },
    ),
    (
        "should not allow access by TCP when a policy specifies only UDP",
        |w| {
            let udp = json!([{"ports": [{"port": 81, "protocol": "UDP"}]}]);
            w.policy("x", "p", Some(ingress(is("a"), udp)));
            expect(w, Tcp, 81, |_, to| to != "x/a");
            expect(w, Udp, 81, |_, _| true);
        },
    ),
    (
        "should enforce policy to allow traffic based on NamespaceSelector with MatchLabels using default ns label",
        |w| {
            w.policy(
                "x",
                "p",
                Some(from_peers(json!([{"namespaceSelector": named("y")}]))),
            );
            expect(w, Tcp, 80, |from, to| to != "x/a" || is_in(from, "y"));
        },
    ),
    (
        "should enforce policy based on NamespaceSelector with MatchExpressions using default ns label",
        |w| {
            let not_y = expression(NAME, "NotIn", &["y"]);
            let rules = json!([{"to": [{"namespaceSelector": not_y}]}]);
            w.policy("x", "p", Some(egress(is("a"), rules)));
            expect(w, Tcp, 80, |from, to| from != "x/a" || !is_in(to, "y"));
        },
    ),
    (
        "UDP and SCTP: should support a 'default-deny-ingress' policy",
        |w| {
            w.policy("x", "p", Some(ingress(json!({}), json!([]))));
            expect(w, Udp, 80, |_, to| !is_in(to, "x"));
            expect(w, Sctp, 80, |_, to| !is_in(to, "x"));
        },
    ),
    ("UDP: should enforce policy based on Ports", |w| {
        w.policy(
            "x",
            "p",
            Some(from_y_on(json!({"port": 81, "protocol": "UDP"}))),
        );
        expect(w, Udp, 81, |from, to| to != "x/a" || is_in(from, "y"));
    }),
    ("SCTP: should enforce policy based on Ports", |w| {
        w.policy(
            "x",
            "p",
            Some(from_y_on(json!({"port": 81, "protocol": "SCTP"}))),
        );
        expect(w, Sctp, 81, |from, to| to != "x/a" || is_in(from, "y"));
    }),
    (
        "UDP and SCTP: should enforce policy to allow traffic only from a pod in a different namespace based on PodSelector and NamespaceSelector",
        |w| {
            let peers = json!([{"namespaceSelector": named("y"), "podSelector": is("a")}]);
            w.policy("x", "p", Some(from_peers(peers)));
            expect(w, Udp, 80, |from, to| to != "x/a" || from == "y/a");
            expect(w, Sctp, 80, |from, to| to != "x/a" || from == "y/a");
        },
    ),
    (
        "endPort: first and last port are in the range, the next is not",
        |w| {
            let rules = json!([{"ports": [{"port": 80, "endPort": 81, "protocol": "UDP"}]}]);
            w.policy("x", "p", Some(ingress(json!({}), rules)));
            expect(w, Udp, 80, |_, _| true);
            expect(w, Udp, 81, |_, _| true);
            expect(w, Udp, 82, |_, to| !is_in(to, "x"));
            expect(w, Tcp, 80, |_, to| !is_in(to, "x"));
        },
    ),
];
