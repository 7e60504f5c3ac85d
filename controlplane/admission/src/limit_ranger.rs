//! LimitRanger: gives containers the requests and limits of their namespace's LimitRanges, and
//! holds containers, pods and claims to them.
//!
//! Source: `plugin/pkg/admission/limitranger/admission.go` at v1.37; where upstream's order is a Go
//! map's, it is the names' here.

use std::{collections::HashSet, sync::Arc};

use async_trait::async_trait;
use coracle_api::{
    meta,
    quantity::Quantity,
    resource_list::{Amounts, amounts_of_json},
    scheduling::{pod_limits_of_json, pod_requests_of_json},
    status::Status,
};
use coracle_registry::{
    api_resource::ApiResource,
    fill as fields,
    resource::Registry,
    store::{Store, cache_status},
    watch_cache::KeyScope,
};
use serde_json::Value;

use crate::{
    attributes::{Attributes, Operation},
    parts::Parts,
    plugin::Plugin,
};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

pub(crate) struct LimitRanger {
    store: Store,
    registry: Arc<Registry>,
}

impl LimitRanger {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            store: parts.store.clone(),
            registry: Arc::clone(&parts.registry),
        }
    }

    /// The LimitRanges of a namespace that the cache knows of.
    fn known(&self, namespace: &str) -> Vec<Value> {
        let ranges = self.registry.core("limitranges");
        ranges.map_or_else(Vec::new, |ranges| {
            ranges.objects(KeyScope::Namespace(namespace.to_owned()))
        })
    }

    async fn catch_up(&self) -> Result<(), Status> {
        self.store.cache.catch_up().await.map_err(cache_status)
    }
}

#[async_trait]
impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn handles(&self, operation: Operation, resource: &ApiResource) -> bool {
        operation.writes()
            && (resource.is_core("pods") || resource.is_core("persistentvolumeclaims"))
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        if attributes.operation != Operation::Create || !attributes.is_core("pods") {
            return Ok(());
        }
        self.catch_up().await?;
        // What a container asks for follows from its limits, which its defaults have done, before
        // it follows from these.
        for range in self.known(attributes.namespace) {
            fill(&range, attributes.object_mut());
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let is_pod = attributes.resource.is_core("pods");
        let (object, old) = (attributes.object(), attributes.old());
        let is_sized = match (attributes.operation, attributes.subresource) {
            (Operation::Create, "") => true,
            (Operation::Update, "resize") if is_pod => true,
            (Operation::Update, "") => !is_pod,
            _ => false,
        };
        if !is_sized || old.is_some_and(|old| old["spec"] == object["spec"]) {
            return Ok(());
        }
        // For a new pod they have been read just now.
        if !is_pod || old.is_some() {
            self.catch_up().await?;
        }
        for range in self.known(attributes.namespace) {
            let problems = each_once(if is_pod {
                pod(&range, object)
            } else {
                claim(&range, object)
            });
            let why = match &problems[..] {
                [] => continue,
                [one] => one.clone(),
                several => format!("[{}]", several.join(", ")),
            };
            return Err(attributes.forbidden(why));
        }
        Ok(())
    }
}

/// Containers alike are told of once.
fn each_once(mut problems: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    problems.retain(|problem| seen.insert(problem.clone()));
    problems
}

fn limits<'a>(range: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    meta::get_array(range, &["spec", "limits"])
        .iter()
        .filter(move |limit| limit["type"] == kind)
}

// === defaults ===

/// Gives every container what it does not say itself, and writes down what was given.
fn fill(range: &Value, pod: &mut Value) {
    let mut given = Vec::new();
    for (list, title) in [
        ("containers", "container"),
        ("initContainers", "init container"),
    ] {
        fields::each(&mut pod["spec"], list, |container| {
            let name = meta::get_str(container, &["name"]).to_owned();
            for (target, source, word) in [
                ("requests", "defaultRequest", "request"),
                ("limits", "default", "limit"),
            ] {
                let set = fill_list(range, container, target, source);
                if !set.is_empty() {
                    given.push(format!("{} {word} for {title} {name}", set.join(", ")));
                }
            }
        });
    }
    if !given.is_empty() {
        meta::set_annotation(
            pod,
            ANNOTATION,
            &format!("LimitRanger plugin set: {}", given.join("; ")),
        );
    }
}

/// The names of what was set.
fn fill_list(range: &Value, container: &mut Value, target: &str, source: &str) -> Vec<String> {
    let mut set = Vec::new();
    for limit in limits(range, "Container") {
        for (name, amount) in limit[source].as_object().into_iter().flatten() {
            if container["resources"][target][name].is_null() {
                fields::object(container, "resources");
                fields::object(&mut container["resources"], target);
                container["resources"][target][name] = amount.clone();
                set.push(name.clone());
            }
        }
    }
    set.sort();
    set
}

// === checks ===

/// What is asked for, and at most.
struct Asked {
    requests: Amounts,
    limits: Amounts,
}

fn pod(range: &Value, pod: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let spec = &pod["spec"];
    for limit in limits(range, "Container") {
        for list in ["containers", "initContainers"] {
            for container in meta::get_array(spec, &[list]) {
                let of = |list: &str| amounts_of_json(&container["resources"][list]);
                bounds(
                    &mut problems,
                    "Container",
                    limit,
                    &Asked {
                        requests: of("requests"),
                        limits: of("limits"),
                    },
                );
            }
        }
    }
    for limit in limits(range, "Pod") {
        let asked = Asked {
            requests: pod_requests_of_json(spec),
            limits: pod_limits_of_json(spec),
        };
        bounds(&mut problems, "Pod", limit, &asked);
    }
    problems
}

fn claim(range: &Value, claim: &Value) -> Vec<String> {
    const KIND: &str = "PersistentVolumeClaim";
    let mut problems = Vec::new();
    let requests = amounts_of_json(&claim["spec"]["resources"]["requests"]);
    for limit in limits(range, KIND) {
        for (bound, is_beyond) in [
            ("min", Quantity::lt as fn(&_, &_) -> bool),
            ("max", Quantity::gt),
        ] {
            for (name, enforced) in amounts_of_json(&limit[bound]) {
                let start = format!("{bound}imum {name} usage per {KIND} is {enforced}");
                match requests.get(&name) {
                    None => problems.push(format!("{start}.  No request is specified")),
                    Some(asked) if is_beyond(asked, &enforced) => {
                        problems.push(format!("{start}, but request is {asked}"));
                    }
                    Some(_) => {}
                }
            }
        }
    }
    problems
}

fn bounds(problems: &mut Vec<String>, kind: &str, limit: &Value, asked: &Asked) {
    let (requests, limits) = (&asked.requests, &asked.limits);
    for (name, least) in amounts_of_json(&limit["min"]) {
        let start = format!("minimum {name} usage per {kind} is {least}");
        match (requests.get(&name), limits.get(&name)) {
            (None, _) => problems.push(format!("{start}.  No request is specified")),
            (Some(request), _) if *request < least => {
                problems.push(format!("{start}, but request is {request}"))
            }
            (_, Some(limit)) if *limit < least => {
                problems.push(format!("{start}, but limit is {limit}"))
            }
            _ => {}
        }
    }
    for (name, most) in amounts_of_json(&limit["max"]) {
        let start = format!("maximum {name} usage per {kind} is {most}");
        match (requests.get(&name), limits.get(&name)) {
            (_, None) => problems.push(format!("{start}.  No limit is specified")),
            (_, Some(limit)) if *limit > most => {
                problems.push(format!("{start}, but limit is {limit}"))
            }
            (Some(request), _) if *request > most => {
                problems.push(format!("{start}, but request is {request}"))
            }
            _ => {}
        }
    }
    for (name, ratio) in amounts_of_json(&limit["maxLimitRequestRatio"]) {
        let start = format!("{name} max limit to request ratio per {kind} is {ratio}");
        let some = |amounts: &Amounts| {
            amounts
                .get(&name)
                .filter(|amount| !amount.is_zero())
                .map(Quantity::as_f64)
        };
        match (some(requests), some(limits)) {
            (None, _) => problems.push(format!(
                "{start}, but no request is specified or request is 0"
            )),
            (_, None) => problems.push(format!("{start}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) if limit / request > ratio.as_f64() => {
                problems.push(format!(
                    "{start}, but provided ratio is {:.6}",
                    limit / request
                ));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn range(limit: Value) -> Value {
        json!({"spec": {"limits": [limit]}})
    }

    fn one(resources: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}})
    }

    #[test]
    fn defaults_fill_what_is_unsaid_and_leave_a_note() {
        let range = range(
            json!({"type": "Container", "default": {"cpu": "1", "memory": "1Gi"},
            "defaultRequest": {"cpu": "500m", "memory": "1Gi"}}),
        );
        let mut pod = one(json!({"requests": {"cpu": "100m"}}));
        fill(&range, &mut pod);
        assert_eq!(
            pod["spec"]["containers"][0]["resources"],
            json!({"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}})
        );
        let note = "LimitRanger plugin set: memory request for container c; cpu, memory limit for container c";
        assert_eq!(meta::annotation(&pod, ANNOTATION), Some(note));
    }

    #[test]
    fn what_is_out_of_range_is_said_in_upstreams_words() {
        let cpu = |request: &str, limit: &str| {
            one(json!({"requests": {"cpu": request}, "limits": {"cpu": limit}}))
        };
        for (limit, object, expect) in [
            (
                json!({"type": "Container", "min": {"cpu": "50m"}, "max": {"cpu": "2"}}),
                cpu("50m", "2"),
                "",
            ),
            (
                json!({"type": "Container", "min": {"cpu": "100m"}}),
                cpu("50m", "2"),
                "minimum cpu usage per Container is 100m, but request is 50m",
            ),
            (
                json!({"type": "Container", "min": {"memory": "1Mi"}}),
                cpu("50m", "2"),
                "minimum memory usage per Container is 1Mi.  No request is specified",
            ),
            (
                json!({"type": "Container", "max": {"cpu": "1"}}),
                cpu("50m", "2"),
                "maximum cpu usage per Container is 1, but limit is 2",
            ),
            (
                json!({"type": "Pod", "max": {"memory": "1Gi"}}),
                cpu("50m", "2"),
                "maximum memory usage per Pod is 1Gi.  No limit is specified",
            ),
            (
                json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}),
                cpu("500m", "2"),
                "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000",
            ),
            (
                json!({"type": "Container", "maxLimitRequestRatio": {"memory": "2"}}),
                cpu("500m", "2"),
                "memory max limit to request ratio per Container is 2, but no request is specified or request is 0",
            ),
        ] {
            assert_eq!(
                pod(&range(limit.clone()), &object).join("; "),
                expect,
                "{limit}"
            );
        }
    }

    #[test]
    fn containers_alike_are_told_of_once() {
        let range = range(json!({"type": "Container", "max": {"cpu": "1"}}));
        let large = json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}});
        let alike = json!({"spec": {"containers": [large, large]}});
        let text = "maximum cpu usage per Container is 1, but limit is 2";
        assert_eq!(each_once(pod(&range, &alike)), [text]);
    }

    #[test]
    fn claims_are_held_to_their_range() {
        let range = range(
            json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}),
        );
        let of = |storage: &str| json!({"spec": {"resources": {"requests": {"storage": storage}}}});
        assert_eq!(claim(&range, &of("1Gi")).join(""), "");
        let text = "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi";
        assert_eq!(claim(&range, &of("3Gi")).join(""), text);
        let text = "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi";
        assert_eq!(claim(&range, &of("1Mi")).join(""), text);
    }
}
