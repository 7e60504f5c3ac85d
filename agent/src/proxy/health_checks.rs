//! What load balancers ask this node: whether a Service whose traffic stays on the node has
//! endpoints here, and whether the proxy keeps up. Pure: which ports are to be open, and what is
//! answered.
//!
//! Source: `pkg/proxy/healthcheck/{service_health,proxy_health}.go` at v1.37.

use std::collections::BTreeMap;

use coracle_netfilter::service::ServiceKey;
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::proxy_health::ProxyHealth;

/// How many endpoints stand behind an answer, for balancers that weigh nodes.
const WEIGHT: &str = "x-load-balancing-endpoint-weight";

/// A Service that is asked for by a port of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HealthCheck {
    /// `metadata.uid`, for events about it.
    pub(super) uid: Option<String>,
    /// `spec.healthCheckNodePort`.
    pub(super) port: u16,
    /// Endpoints on this node that are ready.
    pub(super) local_endpoints: usize,
}

/// All of them.
pub(super) type HealthChecks = BTreeMap<ServiceKey, HealthCheck>;

/// What a port is there for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// The proxy itself: `/healthz` and `/livez`.
    Proxy,
    /// A Service, whatever the path.
    Service(ServiceKey),
}

/// Which sockets to close, and then which to open.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) close: Vec<Subject>,
    pub(super) open: Vec<(Subject, u16)>,
}

/// From what is open to what is wanted; `healthz` is the proxy's own port.
pub(super) fn plan(
    open: &BTreeMap<Subject, u16>,
    healthz: Option<u16>,
    checks: &HealthChecks,
) -> Plan {
    let of_services = checks
        .iter()
        .map(|(key, check)| (Subject::Service(key.clone()), check.port));
    let wanted: BTreeMap<Subject, u16> = healthz
        .map(|port| (Subject::Proxy, port))
        .into_iter()
        .chain(of_services)
        .collect();
    let differs = |a: &BTreeMap<Subject, u16>, subject: &Subject, port: u16| {
        a.get(subject).is_none_or(|known| *known != port)
    };
    let close = open
        .iter()
        .filter(|(one, port)| differs(&wanted, one, **port));
    let close = close.map(|(subject, _)| subject.clone()).collect();
    let mut missing = wanted;
    missing.retain(|subject, port| differs(open, subject, *port));
    Plan {
        close,
        open: missing.into_iter().collect(),
    }
}

/// What is said, as JSON.
#[derive(Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
}

impl Answer {
    fn new(is_well: bool, body: &impl Serialize) -> Self {
        let status = if is_well {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        let mut headers = HeaderMap::new();
        let json = HeaderValue::from_static("application/json");
        headers.insert(http::header::CONTENT_TYPE, json);
        let nosniff = HeaderValue::from_static("nosniff");
        headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, nosniff);
        Self {
            status,
            headers,
            body: serde_json::to_value(body).unwrap_or_default(),
        }
    }

    /// Of a Service with so many endpoints here.
    pub(super) fn of_service(key: &ServiceKey, local_endpoints: usize, is_healthy: bool) -> Self {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Body<'a> {
            service: Named<'a>,
            local_endpoints: usize,
            service_proxy_healthy: bool,
        }
        #[derive(Serialize)]
        struct Named<'a> {
            namespace: &'a str,
            name: &'a str,
        }
        let body = Body {
            service: Named {
                namespace: &key.namespace,
                name: &key.name,
            },
            local_endpoints,
            service_proxy_healthy: is_healthy,
        };
        let mut answer = Self::new(local_endpoints > 0 && is_healthy, &body);
        answer.headers.insert(WEIGHT, local_endpoints.into());
        answer
    }

    /// Of the proxy, for `path`; `None`: there is nothing at it. A node that is about to go takes
    /// no new traffic, though its proxy lives.
    pub(super) fn of_proxy(path: &str, health: &ProxyHealth, is_eligible: bool) -> Option<Self> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Body {
            last_updated: String,
            current_time: String,
            #[serde(skip_serializing_if = "Option::is_none")]
            node_eligible: Option<bool>,
        }
        let node_eligible = match path {
            "/healthz" => Some(is_eligible),
            "/livez" => None,
            _ => return None,
        };
        let now = Timestamp::now();
        let is_well = health.is_healthy() && node_eligible.unwrap_or(true);
        // As upstream: recent as long as all is well, also where nothing had to be written.
        let updated = if is_well { Some(now) } else { health.updated() };
        let body = Body {
            last_updated: updated.map_or_else(|| NEVER.to_owned(), as_go),
            current_time: as_go(now),
            node_eligible,
        };
        Some(Self::new(is_well, &body))
    }
}

/// Go's zero time.
const NEVER: &str = "0001-01-01 00:00:00 +0000 UTC";

/// As Go prints a time.
fn as_go(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S.%9f +0000 UTC").to_string()
}

#[cfg(test)]
mod tests;
