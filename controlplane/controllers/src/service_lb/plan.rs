//! What is written to one Service, and what is told of it. Pure.
//!
//! Finalizer and status go in one write, as a status: no Service shows an address without the
//! finalizer, whatever ends in between, and none is let go with one.

use std::net::IpAddr;

use coracle_api::load_balancer::Served;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, PortStatus, Service};
use serde_json::{Value, json};

use super::claims::{FINALIZER, Pending, Share, has_finalizer, is_balanced, is_of_others, ports};

/// An Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) is_warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Told {
    fn normal(reason: &'static str, message: &str) -> Self {
        Self {
            is_warning: false,
            reason,
            message: message.to_owned(),
        }
    }

    /// Why a Service has no address.
    fn pending(why: &Pending) -> Self {
        let (is_warning, reason, message) = match why {
            Pending::NoNodes => (true, "UnAvailableLoadBalancer", why.to_string()),
            // Its pods come after it.
            Pending::NoEndpoints => (false, "UnAvailableLoadBalancer", why.to_string()),
            Pending::NotInPool { .. } | Pending::Taken(_) => {
                let message = format!("Error syncing load balancer: {why}");
                (true, "SyncLoadBalancerFailed", message)
            }
        };
        Self {
            is_warning,
            reason,
            message,
        }
    }
}

/// What is to be written and told of one Service.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// A merge patch of the status; `None`: all is as it should be.
    pub(super) patch: Option<Value>,
    /// Told before that is written.
    pub(super) before: Option<Told>,
    /// Told once it is written.
    pub(super) after: Option<Told>,
    /// Told once, as long as it holds.
    pub(super) pending: Option<Told>,
}

/// Whether anything of a Service is this controller's business.
///
/// As upstream, whoever has the finalizer is let go at its end, of whatever class it is: it may
/// have become another's while nobody looked, who does not know this finalizer.
///
/// Source: `needsCleanup` in
/// `staging/src/k8s.io/cloud-provider/controllers/service/controller.go` at v1.37.
pub(super) fn is_concerned(service: &Service, served: Served) -> bool {
    let is_going = service.metadata.deletion_timestamp.is_some();
    if is_of_others(service, served) {
        return has_finalizer(service) && (is_going || was_ours(service));
    }
    is_balanced(service) || has_finalizer(service)
}

/// Whether an address was given by this controller when it still served those without a class: it
/// alone says the ports of each.
fn was_ours(service: &Service) -> bool {
    let class = service
        .spec
        .as_ref()
        .and_then(|spec| spec.load_balancer_class.as_ref());
    let present = present(service);
    let is_ours =
        |one: &LoadBalancerIngress| one.ip_mode.as_deref() == Some("VIP") && one.ports.is_some();
    class.is_none() && !present.is_empty() && present.iter().all(is_ours)
}

/// What to do about `service`, whose part of the addresses is `share`; without one it asks for none
/// or none any more.
pub(super) fn plan(service: &Service, share: Option<&Share>, served: Served) -> Plan {
    if !is_concerned(service, served) {
        return Plan::default();
    }
    match share {
        Some(share) => ensure(service, share),
        None if has_finalizer(service) => clean_up(service, served),
        None => Plan::default(),
    }
}

fn ensure(service: &Service, share: &Share) -> Plan {
    let is_new = !has_finalizer(service);
    let given = share.iter().flatten();
    let wanted: Vec<_> = given.map(|address| ingress(service, address)).collect();
    let present = present(service);
    if !is_new && wanted == present {
        return Plan {
            pending: share.as_ref().err().map(Told::pending),
            ..Plan::default()
        };
    }
    let mut finalizers = service.metadata.finalizers.clone().unwrap_or_default();
    if is_new {
        finalizers.push(FINALIZER.to_owned());
    }
    let after = match (present.is_empty(), wanted.is_empty()) {
        (_, true) => None,
        (true, false) => Some(Told::normal("EnsuredLoadBalancer", "Ensured load balancer")),
        (false, false) => Some(Told::normal(
            "UpdatedLoadBalancer",
            "Updated load balancer with new hosts",
        )),
    };
    Plan {
        patch: Some(patch(&finalizers, &wanted)),
        before: is_new.then(|| Told::normal("EnsuringLoadBalancer", "Ensuring load balancer")),
        after,
        pending: share.as_ref().err().map(Told::pending),
    }
}

fn clean_up(service: &Service, served: Served) -> Plan {
    let mut finalizers = service.metadata.finalizers.clone().unwrap_or_default();
    finalizers.retain(|one| one != FINALIZER);
    if is_of_others(service, served) && !was_ours(service) {
        // Its status is theirs.
        return Plan {
            patch: Some(json!({"metadata": {"finalizers": finalizers}})),
            ..Plan::default()
        };
    }
    Plan {
        patch: Some(patch(&finalizers, &[])),
        before: Some(Told::normal(
            "DeletingLoadBalancer",
            "Deleting load balancer",
        )),
        after: Some(Told::normal("DeletedLoadBalancer", "Deleted load balancer")),
        pending: None,
    }
}

fn patch(finalizers: &[String], ingress: &[LoadBalancerIngress]) -> Value {
    let ingress = if ingress.is_empty() {
        Value::Null
    } else {
        json!(ingress)
    };
    json!({
        "metadata": {"finalizers": finalizers},
        "status": {"loadBalancer": {"ingress": ingress}},
    })
}

fn present(service: &Service) -> &[LoadBalancerIngress] {
    let status = service.status.as_ref();
    let balancer = status.and_then(|status| status.load_balancer.as_ref());
    balancer
        .and_then(|balancer| balancer.ingress.as_deref())
        .unwrap_or_default()
}

/// Packets come with this address to the node that has it, and it sends them on itself. The ports
/// say what of it is this Service's, until it asks for others.
fn ingress(service: &Service, address: &IpAddr) -> LoadBalancerIngress {
    let ports = ports(service).into_iter().map(|port| PortStatus {
        port: port.number,
        protocol: port.protocol,
        error: None,
    });
    LoadBalancerIngress {
        ip: Some(address.to_string()),
        ip_mode: Some("VIP".to_owned()),
        ports: Some(ports.collect()),
        ..LoadBalancerIngress::default()
    }
}
