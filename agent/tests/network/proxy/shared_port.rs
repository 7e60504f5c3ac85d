//! TCP and UDP at one number.

use std::io::ErrorKind;

use coracle_netfilter::ProxyMode;
use serde_json::{Value, json};

use super::{NEVER, OneNode, one_node};
use crate::{
    fake_api::{service, slice},
    harness::{ask, ask_udp, lab_by, wait_for},
};

for_each_engine!(protocols_of_one_port_come_and_go_apart);

fn protocols_of_one_port_come_and_go_apart(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "shared") else {
        return;
    };
    let OneNode { node, pods } = one_node(&lab, &["a", "client"]);
    let _server = pods[0].serve("a");
    let address = pods[0].address.to_string();
    let at = |protocols: &[&str]| {
        let port = |protocol: &&str, number: u16| json!({"name": protocol.to_lowercase(), "port": number, "protocol": protocol});
        let ports = |number| -> Value { protocols.iter().map(|one| port(one, number)).collect() };
        lab.api.put(
            "services",
            service("web", "10.96.0.10", &ports(80), &json!({})),
        );
        lab.api.put(
            "endpointslices",
            slice("web", &ports(8080), &[(&address, "n1")]),
        );
    };
    let client = &pods[1].ns;
    let by_tcp = || ask(client, "10.96.0.10:80").map(|(server, _)| server);
    let by_udp = || ask_udp(client, "10.96.0.10:80", 0).map(|(server, _)| server);
    let is_refused = |answer: std::io::Result<String>| {
        answer.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    at(&["TCP"]);
    let _proxy = node.proxy(NEVER);
    wait_for("TCP", || by_tcp().is_ok());
    assert!(is_refused(by_udp()), "UDP is not there yet");
    at(&["TCP", "UDP"]);
    wait_for("UDP, too", || by_udp().is_ok());
    assert_eq!(by_tcp().unwrap(), "a");
    at(&["UDP"]);
    wait_for("TCP no more", || is_refused(by_tcp()));
    assert_eq!(by_udp().unwrap(), "a");
}
