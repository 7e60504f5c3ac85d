//! The truth tables of upstream's suite: nine pods, a to c in x to z, each to each.
//!
//! Source: `test/e2e/network/netpol/network_policy.go` of Kubernetes. As there, what a pod sends
//! to itself is not looked at.

use std::net::IpAddr;

use coracle_netfilter::service::Protocol::{self, Sctp, Tcp, Udp};
use serde_json::{Value, json};

use super::{NODES, World, pod};
use crate::verdict::Packet;

const NAME: &str = "kubernetes.io/metadata.name";

type Case = (&'static str, fn(&mut World));

const CASES: &[Case] = &[
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

#[test]
fn plan_gives_the_truth_tables_of_the_suite() {
    for (name, case) in CASES {
        let _named = Named(name);
        let mut world = World::new();
        for namespace in ['x', 'y', 'z'] {
            world.namespace(
                &namespace.to_string(),
                Some(json!({NAME: namespace.to_string()})),
            );
            for name in ['a', 'b', 'c'] {
                relabel(
                    &mut world,
                    namespace,
                    name,
                    &json!({"pod": name.to_string()}),
                );
            }
        }
        expect(&mut world, Tcp, 80, |_, _| true);
        case(&mut world);
    }
}

fn relabel(world: &mut World, namespace: char, name: char, labels: &Value) {
    let node = NODES[usize::from(number(namespace, name) % 2)];
    let address = address(namespace, name);
    let (namespace, name) = (namespace.to_string(), name.to_string());
    let view = pod(&namespace, &name, address, node, labels);
    world.pod(&namespace, &name, Some(view));
}

fn number(namespace: char, name: char) -> u8 {
    (namespace as u8 - b'x') * 3 + (name as u8 - b'a') + 1
}

fn address(namespace: char, name: char) -> IpAddr {
    [10, 0, 0, number(namespace, name)].into()
}

fn one(namespace: char, name: char) -> String {
    format!("{}/32", address(namespace, name))
}

fn expect(world: &mut World, protocol: Protocol, port: u16, passes: impl Fn(&str, &str) -> bool) {
    world.settle();
    let pods = || {
        ['x', 'y', 'z']
            .into_iter()
            .flat_map(|n| ['a', 'b', 'c'].map(|p| (n, p)))
    };
    for source in pods() {
        for destination in pods().filter(|d| *d != source) {
            let packet = Packet {
                source: address(source.0, source.1),
                destination: address(destination.0, destination.1),
                protocol,
                destination_port: port,
            };
            let from = format!("{}/{}", source.0, source.1);
            let to = format!("{}/{}", destination.0, destination.1);
            assert_eq!(
                world.passes(&packet),
                passes(&from, &to),
                "{from} to {to}, {protocol:?} {port}"
            );
        }
    }
}

fn is_in(pod: &str, namespace: &str) -> bool {
    pod.split('/').next() == Some(namespace)
}

fn is(pod: &str) -> Value {
    json!({"matchLabels": {"pod": pod}})
}

fn named(namespace: &str) -> Value {
    json!({"matchLabels": {NAME: namespace}})
}

fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
}

fn not_x() -> Value {
    expression(NAME, "NotIn", &["x"])
}

#[allow(clippy::needless_pass_by_value, reason = "the cases read better")]
fn ingress(pods: Value, rules: Value) -> Value {
    json!({"podSelector": pods, "ingress": rules, "policyTypes": ["Ingress"]})
}

#[allow(clippy::needless_pass_by_value, reason = "the cases read better")]
fn egress(pods: Value, rules: Value) -> Value {
    json!({"podSelector": pods, "egress": rules, "policyTypes": ["Egress"]})
}

fn deny_all() -> Value {
    json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})
}

#[allow(clippy::needless_pass_by_value, reason = "the cases read better")]
fn from_peers(peers: Value) -> Value {
    ingress(is("a"), json!([{"from": peers}]))
}

#[allow(clippy::needless_pass_by_value, reason = "the cases read better")]
fn from_y_on(port: Value) -> Value {
    let peers = json!([{"namespaceSelector": named("y")}]);
    ingress(is("a"), json!([{"from": peers, "ports": [port]}]))
}

#[allow(clippy::needless_pass_by_value, reason = "the cases read better")]
fn to_block(block: Value) -> Value {
    egress(is("a"), json!([{"to": [{"ipBlock": block}]}]))
}

/// Names the case that fails.
struct Named(&'static str);

impl Drop for Named {
    #[allow(clippy::print_stderr, reason = "a test's report")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("case: {}", self.0);
        }
    }
}
