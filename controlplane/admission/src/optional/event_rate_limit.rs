//! EventRateLimit: so many events a second, of all, of a namespace, of a user or about an object;
//! whoever sends more is told to come again later.
//!
//! ```yaml
//! apiVersion: eventratelimit.admission.k8s.io/v1alpha1
//! kind: Configuration
//! limits:
//! - {type: Server, qps: 50, burst: 100}
//! - {type: SourceAndObject, qps: 1, burst: 10, cacheSize: 2000}
//! ```
//!
//! Events of `events.k8s.io` count, too: they are the same objects. Upstream lets them pass.
//!
//! Source: `plugin/pkg/admission/eventratelimit` at v1.37.

mod buckets;
pub(crate) mod config;

use async_trait::async_trait;
use coracle_api::status::{Reason, Status};
use coracle_registry::{api_resource::ApiResource, value::string};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::{
    buckets::Buckets,
    config::{Limit, LimitType},
};
use crate::{
    attributes::{Attributes, Operation},
    parts::Parts,
    plugin::Plugin,
};

pub(crate) struct EventRateLimit {
    enforcers: Vec<Enforcer>,
}

struct Enforcer {
    of: LimitType,
    buckets: Mutex<Buckets>,
}

impl EventRateLimit {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self::of(&parts.config.event_rate_limits)
    }

    fn of(limits: &[Limit]) -> Self {
        let enforcer = |limit: &Limit| Enforcer {
            of: limit.of,
            buckets: Mutex::new(Buckets::new(limit.qps, limit.burst, limit.cache_size)),
        };
        Self {
            enforcers: limits.iter().map(enforcer).collect(),
        }
    }

    /// Takes what the event costs from every bucket, also if one of them refuses it.
    ///
    /// # Errors
    /// Which limit it is that the last refuses it by.
    fn accept(&self, key: impl Fn(LimitType) -> String, now: Instant) -> Result<(), String> {
        let mut result = Ok(());
        for enforcer in &self.enforcers {
            let (of, key) = (enforcer.of.as_str(), key(enforcer.of));
            if !enforcer.buckets.lock().take(&key, now) {
                result = Err(format!("limit reached on type {of} for key {key}"));
            }
        }
        result
    }
}

#[async_trait]
impl Plugin for EventRateLimit {
    fn name(&self) -> &'static str {
        "EventRateLimit"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation.writes() && (resource.is_core("events") || resource.is("events.k8s.io", "events"))
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        self.accept(|of| key(of, attributes), Instant::now())
            .map_err(|why| {
                let message = format!("Too many requests: {why}");
                Status::new(429, Reason::TooManyRequests, message)
            })
    }
}

/// Whose bucket it is.
fn key(of: LimitType, attributes: &Attributes<'_>) -> String {
    match of {
        LimitType::Server => String::new(),
        LimitType::Namespace => attributes.namespace.to_owned(),
        LimitType::User => attributes.user.name.clone(),
        LimitType::SourceAndObject => {
            let event = attributes.object();
            let (source, about) = (&event["source"], &event["involvedObject"]);
            let source = ["component", "host"].map(|field| string(&source[field]));
            let about = ["kind", "namespace", "name", "uid", "apiVersion"]
                .map(|field| string(&about[field]));
            [source.concat(), about.concat()].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limit(of: LimitType, qps: u32, burst: u32) -> Limit {
        Limit {
            of,
            qps,
            burst,
            cache_size: 0,
        }
    }

    /// Upstream's cases: who sends when, and whether it passes.
    fn check(limits: &[Limit], sent: &[(&str, u64, bool)]) {
        let (plugin, start) = (EventRateLimit::of(limits), Instant::now());
        for (number, (key, secs, passes)) in sent.iter().enumerate() {
            let now = start + Duration::from_secs(*secs);
            let of = |of| {
                if of == LimitType::Server {
                    String::new()
                } else {
                    (*key).to_owned()
                }
            };
            let result = plugin.accept(of, now);
            assert_eq!(result.is_ok(), *passes, "{number}: {result:?}");
        }
    }

    #[test]
    fn each_bucket_lets_its_burst_pass_and_then_so_many_a_second() {
        use LimitType::{Namespace, Server};
        check(
            &[limit(Server, 1, 2)],
            &[
                ("a", 0, true),
                ("b", 0, true),
                ("a", 0, false),
                ("a", 1, true),
                ("b", 1, false),
            ],
        );
        // What is not used is kept, up to the burst.
        check(
            &[limit(Server, 1, 2)],
            &[("a", 9, true), ("a", 9, true), ("a", 9, false)],
        );
        check(
            &[limit(Namespace, 1, 1)],
            &[
                ("a", 0, true),
                ("b", 0, true),
                ("a", 0, false),
                ("b", 0, false),
                ("b", 1, true),
            ],
        );
        // One is refused by its namespace, and has cost the server something.
        check(
            &[limit(Server, 1, 3), limit(Namespace, 1, 1)],
            &[
                ("a", 0, true),
                ("a", 0, false),
                ("b", 0, true),
                ("c", 0, false),
            ],
        );
    }

    #[test]
    fn the_refusal_names_limit_and_key() {
        let plugin = EventRateLimit::of(&[limit(LimitType::User, 1, 1)]);
        let (of, now) = (|_| "bob".to_owned(), Instant::now());
        plugin.accept(of, now).unwrap();
        let expect = "limit reached on type User for key bob";
        assert_eq!(plugin.accept(of, now).unwrap_err(), expect);
    }
}
