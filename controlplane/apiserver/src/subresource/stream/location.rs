//! Where a stream comes from: which container, which node, which path there. Pure but for the
//! look-up of the node.

use std::net::{IpAddr, SocketAddr};

use coracle_api::{
    meta,
    status::{Reason, Status},
};
use serde_json::Value;

use crate::{endpoints::Call, query::Query, state::State};

const DEFAULT_PORT: u16 = 10250;

/// The agent of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Agent {
    /// The node's name, which the agent proves to be its own.
    pub(crate) node: String,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

/// A path on a node.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) agent: Agent,
    pub(crate) path_and_query: String,
}

/// The agent of the node that the pod is on; `None` while it is on none.
pub(super) async fn agent_of(server: &State, pod: &Value) -> Result<Option<Agent>, Status> {
    let name = meta::get_str(pod, &["spec", "nodeName"]);
    if name.is_empty() {
        return Ok(None);
    }
    agent(server, name).await.map(Some)
}

/// The agent of a node.
pub(crate) async fn agent(server: &State, name: &str) -> Result<Agent, Status> {
    let nodes = server
        .registry
        .core("nodes")
        .ok_or_else(Status::no_such_path)?;
    let current = server.store.current(nodes, &nodes.key("", name)).await?;
    let node = current
        .ok_or_else(|| Status::not_found(&nodes.group_resource, name))?
        .object;
    agent_on(server, &node)
}

/// The same, of a node at hand. Its status is what the node says of itself.
pub(crate) fn agent_on(server: &State, node: &Value) -> Result<Agent, Status> {
    let name = meta::name(node);
    let address = listens(node).ok_or_else(|| {
        let message = format!("no preferred addresses found; known addresses of node {name:?}: []");
        Status::new(500, Reason::InternalError, message)
    })?;
    if !server.may_be_nodes(address.ip()) || address == server.config.advertise {
        return Err(Status::bad_request(format!(
            "address {address} of node {name:?} is not allowed"
        )));
    }
    Ok(Agent {
        node: name.to_owned(),
        address,
    })
}

fn listens(node: &Value) -> Option<SocketAddr> {
    let addresses = meta::get_array(node, &["status", "addresses"]);
    let of_kind = |kind: &str| {
        let mut addresses = addresses.iter().filter(|address| address["type"] == kind);
        addresses.find_map(|address| address["address"].as_str()?.parse::<IpAddr>().ok())
    };
    let ip = of_kind("InternalIP").or_else(|| of_kind("ExternalIP"))?;
    let port = meta::get_i64(
        node,
        &["status", "daemonEndpoints", "kubeletEndpoint", "Port"],
    );
    let port = port
        .and_then(|port| u16::try_from(port).ok())
        .filter(|port| *port > 0)
        .unwrap_or(DEFAULT_PORT);
    Some(SocketAddr::new(ip.to_canonical(), port))
}

/// The container that is meant: the named one, or the only one.
pub(super) fn container(pod: &Value, named: Option<&str>) -> Result<String, Status> {
    let names = |list: &str| -> Vec<String> {
        meta::get_array(pod, &["spec", list])
            .iter()
            .map(|one| meta::get_str(one, &["name"]).to_owned())
            .collect()
    };
    let (containers, init, ephemeral) = (
        names("containers"),
        names("initContainers"),
        names("ephemeralContainers"),
    );
    let pod_name = meta::name(pod);
    if let Some(named) = named {
        if [&containers, &init, &ephemeral]
            .iter()
            .any(|list| list.iter().any(|one| one == named))
        {
            return Ok(named.to_owned());
        }
        return Err(Status::bad_request(format!(
            "container {named} is not valid for pod {pod_name}"
        )));
    }
    if let [only] = &containers[..] {
        return Ok(only.clone());
    }
    if containers.is_empty() {
        return Err(Status::bad_request(format!(
            "a container name must be specified for pod {pod_name}"
        )));
    }
    let mut message = format!(
        "a container name must be specified for pod {pod_name}, choose one of: [{}]",
        containers.join(" ")
    );
    if !init.is_empty() {
        message.push_str(&format!(
            " or one of the init containers: [{}]",
            init.join(" ")
        ));
    }
    if !ephemeral.is_empty() {
        message.push_str(&format!(
            " or one of the ephemeral containers: [{}]",
            ephemeral.join(" ")
        ));
    }
    Err(Status::bad_request(message))
}

/// `/VERB/NAMESPACE/POD[/CONTAINER]`. All of them are checked names: nothing to escape.
pub(super) fn path(verb: &str, call: &Call<'_>, container: Option<&str>) -> String {
    let mut path = format!("/{verb}/{}/{}", call.info.namespace, call.info.name);
    if let Some(container) = container {
        path.push('/');
        path.push_str(container);
    }
    path
}

/// The path with those of the parameters that the client gave.
pub(super) fn with_query(path: &str, query: &Query<'_>, names: &[&str]) -> String {
    let pairs: Vec<String> = names
        .iter()
        .filter_map(|name| Some(format!("{name}={}", escape(query.text(name)?))))
        .collect();
    if pairs.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{}", pairs.join("&"))
    }
}

/// The options of exec and attach in the node's words.
pub(super) fn stream_query(options: &Value, is_exec: bool) -> String {
    let mut pairs = Vec::new();
    for (ours, theirs) in [
        ("stdin", "input"),
        ("stdout", "output"),
        ("stderr", "error"),
        ("tty", "tty"),
    ] {
        if options[ours] == true {
            pairs.push(format!("{theirs}=1"));
        }
    }
    if is_exec {
        let words = meta::get_array(options, &["command"]).iter();
        pairs.extend(
            words
                .filter_map(Value::as_str)
                .map(|word| format!("command={}", escape(word))),
        );
    }
    pairs.join("&")
}

/// Percent-encodes all but the unreserved characters.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn container_is_the_only_one_or_the_named_one() {
        let pod = |names: &[&str]| {
            let containers: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
            json!({"metadata": {"name": "p"}, "spec": {"containers": containers, "initContainers": [{"name": "i"}]}})
        };
        let check = |names: &[&str], named, expect: Result<&str, &str>| {
            let found = container(&pod(names), named).map_err(|status| status.message);
            assert_eq!(found.as_deref().map_err(String::as_str), expect);
        };
        check(&["a"], None, Ok("a"));
        check(&["a", "b"], Some("b"), Ok("b"));
        check(&["a", "b"], Some("i"), Ok("i"));
        check(&["a"], Some("x"), Err("container x is not valid for pod p"));
        let choose = "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]";
        check(&["a", "b"], None, Err(choose));
    }

    #[test]
    fn commands_reach_the_node_unharmed() {
        let options = json!({"command": ["sh", "-c", "echo \"a&b\""], "stdin": true, "stdout": true, "stderr": true});
        assert_eq!(
            stream_query(&options, true),
            "input=1&output=1&error=1&command=sh&command=-c&command=echo%20%22a%26b%22"
        );
    }

    #[test]
    fn node_address_is_internal_ip_and_agent_port() {
        let node = json!({"status": {"addresses": [{"type": "Hostname", "address": "n"},
            {"type": "InternalIP", "address": "198.18.0.2"}], "daemonEndpoints": {"kubeletEndpoint": {"Port": 10251}}}});
        assert_eq!(listens(&node), Some("198.18.0.2:10251".parse().unwrap()));
        assert_eq!(listens(&json!({"status": {}})), None);
    }
}
