//! Who is behind a proxy path.

use std::net::{IpAddr, SocketAddr};

use coracle_api::{
    address::may_be_dialled,
    meta,
    status::{Reason, Status},
};
use rand::RngExt as _;
use serde_json::Value;

use super::super::{
    location::{self, Agent},
    port_forward::Pod,
};
use crate::{endpoints::Call, state::State};

/// `[http:|https:]NAME[:PORT]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id<'a> {
    pub(super) is_https: bool,
    pub(super) name: &'a str,
    pub(super) port: &'a str,
}

impl<'a> Id<'a> {
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match parts[..] {
            [name] => ("", name, ""),
            [name, port] => ("", name, port),
            [scheme, name, port] => (scheme, name, port),
            _ => return None,
        };
        let is_https = match scheme {
            "" | "http" => false,
            "https" => true,
            _ => return None,
        };
        (!name.is_empty()).then_some(Self {
            is_https,
            name,
            port,
        })
    }
}

/// Where the request goes.
#[derive(Debug, Clone)]
pub(super) enum Backend {
    /// The API of a node's agent.
    Agent(Agent),
    /// A port of a pod, by way of its node.
    Pod { pod: Pod, port: u16 },
    /// An endpoint that is no pod.
    Address(SocketAddr),
}

impl Backend {
    /// For the `Host` header.
    pub(super) fn host(&self) -> String {
        match self {
            Self::Agent(agent) => agent.address.to_string(),
            Self::Address(address) => address.to_string(),
            Self::Pod { pod, port } => format!("{}:{port}", pod.name),
        }
    }
}

/// Finds it out.
pub(super) async fn find(call: &Call<'_>, id: &Id<'_>) -> Result<Backend, Status> {
    let place = Place {
        server: call.server,
        namespace: &call.info.namespace,
    };
    match &*call.resource.info.plural {
        "nodes" => location::agent(call.server, id.name)
            .await
            .map(Backend::Agent),
        "pods" => {
            let pod = place.object("pods", id.name).await?;
            let port = pod_port(&pod, id.port)
                .ok_or_else(|| Status::bad_request(format!("invalid port {:?}", id.port)))?;
            place.on_node(&pod, port).await
        }
        _ => place.service(id.name, id.port).await,
    }
}

/// The same for a port of a Service that no request names.
pub(super) async fn of_service(
    server: &State,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<Backend, Status> {
    let place = Place { server, namespace };
    place.service(name, &port.to_string()).await
}

/// Where it is looked for.
struct Place<'a> {
    server: &'a State,
    namespace: &'a str,
}

impl Place<'_> {
    async fn object(&self, plural: &str, name: &str) -> Result<Value, Status> {
        let (registry, store) = (&self.server.registry, &self.server.store);
        let resource = registry.core(plural).ok_or_else(Status::no_such_path)?;
        let key = resource.key(self.namespace, name);
        let current = store.current(resource, &key).await?;
        current
            .map(|current| current.object)
            .ok_or_else(|| Status::not_found(&resource.group_resource, name))
    }

    async fn on_node(&self, pod: &Value, port: u16) -> Result<Backend, Status> {
        let Some(agent) = location::agent_of(self.server, pod).await? else {
            return Err(Status::bad_request(format!(
                "pod {} does not have a host assigned",
                meta::name(pod)
            )));
        };
        let (namespace, name) = (self.namespace.to_owned(), meta::name(pod).to_owned());
        Ok(Backend::Pod {
            pod: Pod {
                agent,
                namespace,
                name,
            },
            port,
        })
    }

    async fn service(&self, name: &str, port: &str) -> Result<Backend, Status> {
        let service = self.object("services", name).await?;
        let unavailable = |why: &str| {
            let message = format!("no {why} available for service {name:?}");
            Status::new(503, Reason::ServiceUnavailable, message)
        };
        let port_name = port_name(&service, port).ok_or_else(|| unavailable("service port"))?;
        let endpoints = self
            .object("endpoints", name)
            .await
            .map_err(|_| unavailable("endpoints"))?;
        let found = candidates(&endpoints, &port_name);
        if found.is_empty() {
            return Err(unavailable("endpoints"));
        }
        let (address, port) = found[rand::rng().random_range(0..found.len())];
        let target = &address["targetRef"];
        if target["kind"] == "Pod" {
            let pod = self
                .object("pods", meta::get_str(target, &["name"]))
                .await?;
            return self.on_node(&pod, port).await;
        }
        let ip: IpAddr = meta::get_str(address, &["ip"])
            .parse()
            .map_err(|_| unavailable("endpoints"))?;
        if !may_be_dialled(ip) {
            return Err(Status::bad_request("address not allowed"));
        }
        Ok(Backend::Address(SocketAddr::new(ip.to_canonical(), port)))
    }
}

/// The port of that number, or the first one that a container names, or 80.
fn pod_port(pod: &Value, asked: &str) -> Option<u16> {
    if !asked.is_empty() {
        return asked.parse().ok().filter(|port| *port > 0);
    }
    let containers = meta::get_array(pod, &["spec", "containers"]).iter();
    let mut ports = containers.flat_map(|container| meta::get_array(container, &["ports"]));
    let first = ports
        .next()
        .and_then(|port| u16::try_from(meta::get_i64(port, &["containerPort"])?).ok());
    Some(first.unwrap_or(80))
}

/// The name of the Service's port that is meant by a name or a number, or by nothing. One that it
/// does not have may still be one of its endpoints' names.
fn port_name(service: &Value, asked: &str) -> Option<String> {
    let ports = meta::get_array(service, &["spec", "ports"]);
    let name_of = |port: &Value| meta::get_str(port, &["name"]).to_owned();
    if asked.is_empty() {
        let unnamed = ports.iter().find(|port| name_of(port).is_empty());
        return unnamed
            .or(if let [only] = ports { Some(only) } else { None })
            .map(name_of);
    }
    match asked.parse::<i64>() {
        Ok(number) => ports
            .iter()
            .find(|port| meta::get_i64(port, &["port"]) == Some(number))
            .map(name_of),
        Err(_) => Some(asked.to_owned()),
    }
}

/// Ready addresses with the port of that name.
fn candidates<'a>(endpoints: &'a Value, name: &str) -> Vec<(&'a Value, u16)> {
    let subsets = meta::get_array(endpoints, &["subsets"]).iter();
    subsets
        .flat_map(|subset| {
            let ports = meta::get_array(subset, &["ports"])
                .iter()
                .filter(|port| meta::get_str(port, &["name"]) == name);
            let numbers =
                ports.filter_map(|port| u16::try_from(meta::get_i64(port, &["port"])?).ok());
            numbers.flat_map(|number| {
                meta::get_array(subset, &["addresses"])
                    .iter()
                    .map(move |one| (one, number))
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_carry_scheme_and_port() {
        let id = |is_https, name, port| {
            Some(Id {
                is_https,
                name,
                port,
            })
        };
        let check = |text, expect| assert_eq!(Id::parse(text), expect, "{text}");
        check("nginx", id(false, "nginx", ""));
        check("nginx:http", id(false, "nginx", "http"));
        check("https:nginx:443", id(true, "nginx", "443"));
        check("http:nginx:", id(false, "nginx", ""));
        check("ftp:nginx:21", None);
        check("a:b:c:d", None);
        check("", None);
    }

    #[test]
    fn service_ports_are_found_by_number_and_name() {
        let one = json!({"spec": {"ports": [{"port": 80}]}});
        let two =
            json!({"spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}});
        let check = |service: &Value, asked, expect: Option<&str>| {
            assert_eq!(port_name(service, asked).as_deref(), expect, "{asked}");
        };
        check(&one, "", Some(""));
        check(&one, "80", Some(""));
        check(&one, "81", None);
        check(&two, "81", Some("b"));
        check(&two, "a", Some("a"));
        check(&two, "", None);
    }

    #[test]
    fn candidates_are_ready_addresses_with_that_port() {
        let endpoints = json!({"subsets": [
            {"addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}], "ports": [{"port": 8080, "name": "a"}, {"port": 1}]},
            {"notReadyAddresses": [{"ip": "10.0.0.3"}], "ports": [{"port": 8080, "name": "a"}]},
        ]});
        let found: Vec<_> = candidates(&endpoints, "a")
            .iter()
            .map(|(one, port)| (one["ip"].clone(), *port))
            .collect();
        assert_eq!(
            found,
            [(json!("10.0.0.1"), 8080), (json!("10.0.0.2"), 8080)]
        );
        assert_eq!(candidates(&endpoints, "b"), []);
    }
}
