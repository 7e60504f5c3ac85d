use proptest::prelude::*;

use super::*;

fn specs() -> impl Strategy<Value = Value> {
    let labels = proptest::collection::btree_map("[a-c]", "[x-z]", 0..3);
    let items = proptest::collection::btree_map("[a-d]", proptest::option::of("[i-k]"), 0..4);
    (proptest::option::of(0..3_i32), labels, items).prop_map(|(replicas, labels, items)| {
        let list: Vec<Value> = items
            .into_iter()
            .map(|(name, image)| {
                image.map_or_else(
                    || json!({"name": name}),
                    |i| json!({"name": name, "image": i}),
                )
            })
            .collect();
        let mut spec =
            json!({"template": {"metadata": {"labels": labels}, "spec": {"containers": list}}});
        if let Some(replicas) = replicas {
            spec["replicas"] = replicas.into();
        }
        spec
    })
}

proptest! {
    #[test]
    fn apply_is_idempotent(first in specs(), second in specs()) {
        let live = applied(None, &first, "m");
        let once = applied(Some(&live), &second, "m");
        prop_assert_eq!(&applied(Some(&once), &second, "m"), &once);
    }

    #[test]
    fn the_order_of_appliers_of_different_fields_does_not_matter(replicas in 0..5_i32, labels in proptest::collection::btree_map("[a-c]", "[x-z]", 1..3)) {
        let (a, b) = (json!({"replicas": replicas}), json!({"template": {"metadata": {"labels": labels}}}));
        let base = applied(None, &json!({"paused": true}), "base");
        let one = applied(Some(&applied(Some(&base), &a, "a")), &b, "b");
        let two = applied(Some(&applied(Some(&base), &b, "b")), &a, "a");
        prop_assert_eq!(one, two);
    }

    #[test]
    fn what_the_only_applier_names_is_what_there_is(first in specs(), second in specs()) {
        let live = applied(None, &first, "m");
        let mut after = applied(Some(&live), &second, "m");
        meta::remove(&mut after, &["metadata", "managedFields"]);
        let images = |spec: &Value| -> Vec<(String, String)> {
            let list = spec["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
            let mut all: Vec<(String, String)> = list.iter().map(|c| (c["name"].to_string(), c["image"].to_string())).collect();
            all.sort();
            all
        };
        prop_assert_eq!(images(&after["spec"]), images(&second));
        prop_assert_eq!(&after["spec"]["replicas"], &second["replicas"]);
    }
}
