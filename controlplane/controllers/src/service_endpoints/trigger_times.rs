//! When what changes the endpoints of a Service happened: from it a reader of them knows how long
//! the change took to arrive.
//!
//! In memory alone, as upstream has it: a Service that is seen for the first time is told by its
//! own age.
//!
//! Source: `k8s.io/endpointslice/util/trigger_time_tracker.go` at v1.37.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use coracle_api::meta;
use k8s_openapi::{api::core::v1::Service, jiff::Timestamp};
use kube::api::ObjectMeta;
use parking_lot::Mutex;

use crate::{cache::Key, pod::Pod, pod_state};

/// The annotation of a Service's endpoints.
const ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// What the endpoints of each Service were made of when they were looked at last.
#[derive(Debug, Default)]
pub(crate) struct TriggerTimes(Mutex<HashMap<Key, Seen>>);

/// What a Service's endpoints were made of last.
#[derive(Debug, Default)]
struct Seen {
    service: Option<Timestamp>,
    /// Pods by a hash of their name, in its order, and when their readiness changed.
    pods: Vec<(u64, Timestamp)>,
}

impl TriggerTimes {
    /// The earliest of what has changed since the last call.
    pub(crate) fn look(
        &self,
        key: &Key,
        service: &Service,
        pods: &[Arc<Pod>],
    ) -> Option<Timestamp> {
        let created = service.metadata.creation_timestamp.as_ref();
        let now = Seen {
            service: created.map(|time| time.0),
            pods: readiness(pods),
        };
        let mut known = self.0.lock();
        match known.insert(key.clone(), now) {
            Some(before) => known.get(key).and_then(|now| now.earliest_since(&before)),
            None => created.map(|time| time.0),
        }
    }

    /// The Service is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

impl Seen {
    fn earliest_since(&self, before: &Self) -> Option<Timestamp> {
        let is_news = |(pod, at): &&(u64, Timestamp)| {
            let known = before.pods.binary_search_by_key(pod, |(known, _)| *known);
            known.map_or(true, |index| before.pods[index].1 < *at)
        };
        let of_pods = self.pods.iter().filter(is_news).map(|(_, at)| *at);
        let of_service = self.service.filter(|at| Some(*at) > before.service);
        of_pods.chain(of_service).min()
    }
}

fn readiness(pods: &[Arc<Pod>]) -> Vec<(u64, Timestamp)> {
    let of = |pod: &Arc<Pod>| {
        let at = pod_state::condition(pod, "Ready")?
            .last_transition_time
            .as_ref()?;
        let mut hasher = DefaultHasher::new();
        pod.metadata.name.hash(&mut hasher);
        Some((hasher.finish(), at.0))
    };
    let mut readiness: Vec<_> = pods.iter().filter_map(of).collect();
    readiness.sort_unstable();
    readiness
}

/// Says it on what is written; nothing new takes away what was said.
pub(crate) fn annotate(metadata: &mut ObjectMeta, at: Option<Timestamp>) {
    let annotations = metadata.annotations.get_or_insert_default();
    match at {
        Some(at) => annotations.insert(ANNOTATION.to_owned(), meta::time(at)),
        None => annotations.remove(ANNOTATION),
    };
    if annotations.is_empty() {
        metadata.annotations = None;
    }
}

/// Takes from `metadata` what it says of it, so that two can be compared.
pub(crate) fn without(metadata: &ObjectMeta) -> BTreeMap<String, String> {
    let mut annotations = metadata.annotations.clone().unwrap_or_default();
    annotations.remove(ANNOTATION);
    annotations
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::*;

    fn pod(name: &str, at: i64) -> Arc<Pod> {
        let at = Time(Timestamp::from_second(at).unwrap());
        let object = json!({"metadata": {"name": name},
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at}]}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn the_earliest_change_since_the_last_look_is_told() {
        let created = Time(Timestamp::from_second(10).unwrap());
        let service = json!({"metadata": {"name": "s", "creationTimestamp": created}});
        let service: Service = serde_json::from_value(service).unwrap();
        let (times, key) = (TriggerTimes::default(), Key::new("n", "s"));
        // Rounds of upstream's own test: pods and what they tell.
        type Case = (&'static [(&'static str, i64)], Option<i64>);
        let table: [Case; 6] = [
            (&[("a", 20)], Some(10)),
            (&[("a", 20)], None),
            (&[("a", 20), ("b", 30)], Some(30)),
            (&[("a", 45), ("b", 40), ("c", 50)], Some(40)),
            // What goes has no time of its own.
            (&[("a", 45)], None),
            (&[("a", 45), ("b", 40)], Some(40)),
        ];
        for (pods, expect) in table {
            let pods: Vec<_> = pods.iter().map(|(name, at)| pod(name, *at)).collect();
            let told = times.look(&key, &service, &pods);
            assert_eq!(told.map(Timestamp::as_second), expect);
        }
        times.forget(&key);
        assert!(times.look(&key, &service, &[]).is_some());
    }

    #[test]
    fn what_is_written_says_it_or_nothing() {
        let mut metadata = ObjectMeta::default();
        annotate(&mut metadata, Some(Timestamp::from_second(0).unwrap()));
        let annotations = metadata.annotations.clone().unwrap();
        assert_eq!(annotations[ANNOTATION], "1970-01-01T00:00:00Z");
        assert!(without(&metadata).is_empty());
        annotate(&mut metadata, None);
        assert_eq!(metadata.annotations, None);
    }
}
