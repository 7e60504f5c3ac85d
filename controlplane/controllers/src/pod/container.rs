//! A container of a Pod as controllers hold it.

use std::sync::Arc;

use coracle_api::{quantity, scheduling::HostPort};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "WholeContainer")]
pub(crate) struct Container {
    /// Those with a name.
    pub(crate) ports: Option<Vec<ContainerPort>>,
    pub(crate) restart_policy: Option<String>,
    pub(crate) asks: Arc<Asks>,
}

/// A container's name and what it asks for: held once for all pods of a template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Asks {
    pub(crate) name: String,
    pub(crate) requests: Requests,
    /// What of its node it takes.
    pub(crate) host_ports: Box<[HostPort]>,
}

/// What is asked for of what is measured, in thousandths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    pub(crate) cpu: Option<i64>,
    pub(crate) memory: Option<i64>,
}

/// A container as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WholeContainer {
    #[serde(default)]
    name: String,
    ports: Option<Vec<WholePort>>,
    restart_policy: Option<String>,
    #[serde(default)]
    resources: Option<Resources>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WholePort {
    name: Option<String>,
    #[serde(default)]
    container_port: i32,
    protocol: Option<String>,
    host_port: Option<i32>,
    #[serde(rename = "hostIP")]
    host_ip: Option<String>,
}

#[derive(Default, Deserialize)]
pub(crate) struct Resources {
    requests: Option<Amounts>,
}

#[derive(Default, Deserialize)]
struct Amounts {
    cpu: Option<Quantity>,
    memory: Option<Quantity>,
}

impl From<WholeContainer> for Container {
    fn from(whole: WholeContainer) -> Self {
        let requests = whole.resources.unwrap_or_default().requests();
        let ports = whole.ports.as_deref().unwrap_or_default();
        let asks = Asks {
            name: whole.name,
            requests: requests.unwrap_or_default(),
            host_ports: ports.iter().filter_map(WholePort::host_port).collect(),
        };
        let ports = whole.ports.map(|ports| ports.into_iter().map(Into::into));
        Self {
            ports: ports.map(Iterator::collect),
            restart_policy: whole.restart_policy,
            asks: Arc::new(asks),
        }
    }
}

impl WholePort {
    fn host_port(&self) -> Option<HostPort> {
        let protocol = self.protocol.as_deref().unwrap_or("TCP");
        Some(HostPort {
            ip: self.host_ip.clone().unwrap_or_default(),
            protocol: protocol.to_owned(),
            port: self.host_port.filter(|port| *port > 0)?,
        })
    }
}

impl From<WholePort> for ContainerPort {
    fn from(whole: WholePort) -> Self {
        Self {
            name: whole.name,
            container_port: whole.container_port,
            protocol: whole.protocol,
        }
    }
}

impl Resources {
    pub(crate) fn requests(self) -> Option<Requests> {
        let milli = |amount: Option<Quantity>| {
            let parsed = quantity::Quantity::parse(&amount?.0).ok()?;
            Some(parsed.milli_value())
        };
        let Amounts { cpu, memory } = self.requests?;
        Some(Requests {
            cpu: milli(cpu),
            memory: milli(memory),
        })
    }
}

impl Requests {
    /// The amount of `resource`, in thousandths.
    pub(crate) fn of(&self, resource: &str) -> Option<i64> {
        match resource {
            "cpu" => self.cpu,
            "memory" => self.memory,
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ContainerPort {
    pub(crate) name: Option<String>,
    pub(crate) container_port: i32,
    pub(crate) protocol: Option<String>,
}
