//! Cases about who may.

use coracle_netfilter::service::Protocol::Tcp;
use serde_json::json;

use super::{Case, specs::*};

pub(super) const CASES: &[Case] = &[
    ("should support a 'default-deny-ingress' policy", |w| {
        w.policy("x", "p", Some(ingress(json!({}), json!([]))));
        expect(w, Tcp, 80, |_, to| !is_in(to, "x"));
    }),
    ("should support a 'default-deny-all' policy", |w| {
        w.policy("x", "p", Some(deny_all()));
        expect(w, Tcp, 80, |from, to| !is_in(to, "x") && !is_in(from, "x"));
    }),
    (
        "should enforce policy to allow traffic from pods within server namespace based on PodSelector",
        |w| {
            w.policy(
                "x",
                "p",
                Some(from_peers(json!([{"podSelector": is("b")}]))),
            );
            expect(w, Tcp, 80, |from, to| to != "x/a" || from == "x/b");
        },
    ),
    (
        "should enforce policy to allow ingress traffic for a target",
        |w| {
            w.policy("x", "p", Some(ingress(json!({}), json!([]))));
            let all = json!([{"podSelector": {}, "namespaceSelector": {}}]);
            w.policy("x", "q", Some(from_peers(all)));
            expect(w, Tcp, 80, |_, to| !is_in(to, "x") || to == "x/a");
        },
    ),
    (
        "should enforce policy to allow ingress traffic from pods in all namespaces",
        |w| {
            w.policy(
                "x",
                "p",
                Some(from_peers(
                    json!([{"namespaceSelector": {"matchLabels": {}}}]),
                )),
            );
            expect(w, Tcp, 80, |_, _| true);
        },
    ),
    (
        "should enforce policy to allow traffic only from a different namespace, based on NamespaceSelector",
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
        "should enforce policy based on PodSelector with MatchExpressions",
        |w| {
            let b = expression("pod", "In", &["b"]);
            w.policy("x", "p", Some(from_peers(json!([{"podSelector": b}]))));
            expect(w, Tcp, 80, |from, to| to != "x/a" || from == "x/b");
        },
    ),
    (
        "should enforce policy based on NamespaceSelector with MatchExpressions",
        |w| {
            let y = expression(NAME, "In", &["y"]);
            w.policy(
                "x",
                "p",
                Some(from_peers(json!([{"namespaceSelector": y}]))),
            );
            expect(w, Tcp, 80, |from, to| to != "x/a" || is_in(from, "y"));
        },
    ),
    (
        "should enforce policy based on PodSelector or NamespaceSelector",
        |w| {
            let peers = json!([{"namespaceSelector": not_x()}, {"podSelector": is("b")}]);
            w.policy("x", "p", Some(from_peers(peers)));
            expect(w, Tcp, 80, |from, to| to != "x/a" || from != "x/c");
        },
    ),
    (
        "should enforce policy based on PodSelector and NamespaceSelector",
        |w| {
            let peers = json!([{"namespaceSelector": not_x(), "podSelector": is("b")}]);
            w.policy("x", "p", Some(from_peers(peers)));
            expect(w, Tcp, 80, |from, to| {
                to != "x/a" || ["y/b", "z/b"].contains(&from)
            });
        },
    ),
    (
        "should enforce policy based on Multiple PodSelectors and NamespaceSelectors",
        |w| {
            let pods = expression("pod", "In", &["b", "c"]);
            let peers = json!([{"namespaceSelector": not_x(), "podSelector": pods}]);
            w.policy("x", "p", Some(from_peers(peers)));
            let allowed = ["y/b", "y/c", "z/b", "z/c"];
            expect(w, Tcp, 80, |from, to| {
                to != "x/a" || allowed.contains(&from)
            });
        },
    ),
    ("should enforce policy based on any PodSelectors", |w| {
        let peers = json!([{"podSelector": is("b")}, {"podSelector": is("c")}]);
        w.policy("x", "p", Some(from_peers(peers)));
        expect(w, Tcp, 80, |from, to| {
            to != "x/a" || ["x/b", "x/c"].contains(&from)
        });
    }),
    (
        "should enforce policy to allow traffic only from a pod in a different namespace based on PodSelector and NamespaceSelector",
        |w| {
            let peers = json!([{"namespaceSelector": named("y"), "podSelector": is("a")}]);
            w.policy("x", "p", Some(from_peers(peers)));
            expect(w, Tcp, 80, |from, to| to != "x/a" || from == "y/a");
        },
    ),
    ("should enforce policy based on Ports", |w| {
        w.policy(
            "x",
            "p",
            Some(from_y_on(json!({"port": 81, "protocol": "TCP"}))),
        );
        expect(w, Tcp, 81, |from, to| to != "x/a" || is_in(from, "y"));
    }),
    (
        "should enforce multiple, stacked policies with overlapping podSelectors",
        |w| {
            w.policy(
                "x",
                "p",
                Some(from_y_on(json!({"port": 81, "protocol": "TCP"}))),
            );
            expect(w, Tcp, 81, |from, to| to != "x/a" || is_in(from, "y"));
            expect(w, Tcp, 80, |_, to| to != "x/a");
            w.policy(
                "x",
                "q",
                Some(from_y_on(json!({"port": 80, "protocol": "TCP"}))),
            );
            expect(w, Tcp, 80, |from, to| to != "x/a" || is_in(from, "y"));
        },
    ),
    ("should support allow-all policy", |w| {
        w.policy("x", "p", Some(ingress(json!({}), json!([{}]))));
        expect(w, Tcp, 80, |_, _| true);
        expect(w, Tcp, 81, |_, _| true);
    }),
    ("should allow ingress access on one named port", |w| {
        let rules = json!([{"ports": [{"port": "serve-81-tcp"}]}]);
        w.policy("x", "p", Some(ingress(json!({}), rules)));
        expect(w, Tcp, 81, |_, _| true);
        expect(w, Tcp, 80, |_, to| !is_in(to, "x"));
    }),
    (
        "should allow ingress access from namespace on one named port",
        |w| {
            let port = json!({"port": "serve-80-tcp", "protocol": "TCP"});
            w.policy("x", "p", Some(from_y_on(port)));
            expect(w, Tcp, 80, |from, to| to != "x/a" || is_in(from, "y"));
            expect(w, Tcp, 81, |_, to| to != "x/a");
        },
    ),
    ("should allow egress access on one named port", |w| {
        let rules = json!([{"ports": [{"port": "serve-80-tcp"}]}]);
        w.policy("x", "p", Some(egress(json!({}), rules)));
        expect(w, Tcp, 80, |_, _| true);
        expect(w, Tcp, 81, |from, _| !is_in(from, "x"));
    }),
    (
        "should not allow all ports for a nonexistent named port",
        |w| {
            let rules = json!([{"ports": [{"port": "no-such-port"}]}]);
            w.policy("x", "p", Some(ingress(json!({}), rules)));
            expect(w, Tcp, 80, |_, to| !is_in(to, "x"));
            expect(w, Tcp, 81, |_, to| !is_in(to, "x"));
        },
    ),
    ("should enforce updated policy", |w| {
        w.policy("x", "p", Some(ingress(json!({}), json!([{}]))));
        expect(w, Tcp, 81, |_, _| true);
        w.policy("x", "p", Some(ingress(json!({}), json!([]))));
        expect(w, Tcp, 81, |_, to| !is_in(to, "x"));
    }),
    ("should allow ingress access from updated namespace", |w| {
        let updated = json!({"matchLabels": {"ns2": "updated"}});
        w.policy(
            "x",
            "p",
            Some(from_peers(json!([{"namespaceSelector": updated}]))),
        );
        expect(w, Tcp, 80, |_, to| to != "x/a");
        w.namespace("y", Some(json!({NAME: "y", "ns2": "updated"})));
        expect(w, Tcp, 80, |from, to| to != "x/a" || is_in(from, "y"));
    }),
    ("should allow ingress access from updated pod", |w| {
        let updated = json!({"matchLabels": {"pod": "b", "pod2": "updated"}});
        w.policy(
            "x",
            "p",
            Some(from_peers(json!([{"podSelector": updated}]))),
        );
        expect(w, Tcp, 80, |_, to| to != "x/a");
        relabel(w, 'x', 'b', &json!({"pod": "b", "pod2": "updated"}));
        expect(w, Tcp, 80, |from, to| to != "x/a" || from == "x/b");
    }),
    ("should deny ingress from pods on other namespaces", |w| {
        w.policy(
            "x",
            "p",
            Some(ingress(json!({}), json!([{"from": [{"podSelector": {}}]}]))),
        );
        expect(w, Tcp, 80, |from, to| !is_in(to, "x") || is_in(from, "x"));
    }),
    ("should deny ingress access to updated pod", |w| {
        let isolated = json!({"matchLabels": {"target": "isolated"}});
        w.policy("x", "p", Some(ingress(isolated, json!([]))));
        expect(w, Tcp, 80, |_, _| true);
        relabel(w, 'x', 'a', &json!({"pod": "a", "target": "isolated"}));
        expect(w, Tcp, 80, |_, to| to != "x/a");
    }),
    ("should deny egress from pods based on PodSelector", |w| {
        w.policy("x", "p", Some(egress(is("a"), json!([]))));
        expect(w, Tcp, 80, |from, _| from != "x/a");
    }),
];
