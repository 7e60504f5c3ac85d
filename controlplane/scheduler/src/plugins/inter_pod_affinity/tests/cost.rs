//! What it costs, in questions asked: whoever writes a pod chooses how many terms it has.

use super::*;
use crate::{pod_info::PodUid, postings::work};

const PODS: usize = 2_000;
const TERMS: usize = 14_000;

/// Pods of `kinds` kinds on ten nodes.
fn crowd(kinds: usize) -> Cache {
    let mut cache = Cache::default();
    for number in 0..10 {
        cache.set_node(&node_of(&format!("n{number}"), json!({ZONE: "z"})));
    }
    for number in 0..PODS {
        let labels = json!({"app": format!("app-{}", number % kinds), "tier": "front"});
        let pod = labelled(&format!("p{number}"), "default", &labels, &Value::Null);
        cache.observe(Arc::new(pod), &format!("n{}", number % 10));
    }
    cache
}

fn hostile(operator: &str, distinct: bool) -> PodInfo {
    let nobodys = |number: usize| {
        let value = if distinct {
            format!("nobodys-{number}")
        } else {
            "nobodys".to_owned()
        };
        let tier = json!({"key": "tier", "operator": "DoesNotExist"});
        let app = json!({"key": "app", "operator": operator, "values": [value]});
        term(ZONE, json!({"matchExpressions": [app, tier]}))
    };
    let terms: Vec<Value> = (0..TERMS).map(nobodys).collect();
    labelled(
        "hostile",
        "default",
        &json!({"app": "hostile"}),
        &apart(json!(terms)),
    )
}

/// The questions that an attempt asks.
fn asked(pod: &PodInfo, cache: &Cache) -> usize {
    work::taken();
    refused(pod, cache);
    work::taken()
}

#[test]
fn pods_of_one_kind_are_asked_about_once_and_equal_terms_are_one() {
    assert_eq!(
        asked(&hostile("NotIn", false), &crowd(50)),
        50,
        "a term and 50 kinds, not {TERMS} x {PODS}"
    );
}

#[test]
fn many_terms_are_answered_for_all_pods_at_once() {
    for operator in ["In", "NotIn"] {
        let pod = hostile(operator, true);
        let asked = [50, PODS].map(|kinds| asked(&pod, &crowd(kinds)));
        assert!(
            asked[0] == asked[1] && asked[1] <= 5 * TERMS,
            "{operator}: {asked:?}, not {TERMS} x {PODS}"
        );
    }
}

#[test]
fn what_pods_say_of_their_own_namespace_costs_others_nothing() {
    let mut cache = crowd(50);
    let mut placed = hostile("In", true);
    let plain = labelled("p", "other", &json!({"app": "web"}), &Value::Null);
    cache.observe(Arc::new(placed.clone()), "n0");
    assert_eq!(asked(&plain, &cache), 0);
    // Equal pods say it once.
    let own = labelled("p", "default", &json!({"app": "web"}), &Value::Null);
    let of_one = asked(&own, &cache);
    placed.uid = PodUid("another".into());
    cache.observe(Arc::new(placed), "n1");
    assert_eq!((asked(&own, &cache), of_one), (TERMS, TERMS));
}

#[test]
fn an_event_is_not_looked_at_for_each_of_many_terms() {
    let (waiting, other) = (
        hostile("In", true),
        labelled("o", "default", &json!({"app": "o"}), &Value::Null),
    );
    let framework = crate::plugins::without_binding(&std::sync::Arc::default());
    let refused = [PluginName::InterPodAffinity].into_iter().collect();
    work::taken();
    assert!(framework.is_worth_requeuing(
        &waiting,
        refused,
        &ClusterEvent::AssignedPodDeleted(&other)
    ));
    assert_eq!(
        InterPodAffinity::default().hint(&other, &ClusterEvent::AssignedPodDeleted(&waiting)),
        QueueingHint::Queue
    );
    assert_eq!(work::taken(), 0);
}
