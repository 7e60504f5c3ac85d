//! Which revisions are in use.

use k8s_openapi::api::apps::v1::ControllerRevision;

use super::*;

fn revision(name: &str, number: i64) -> Arc<ControllerRevision> {
    let template =
        json!({"spec": {"containers": [{"name": "c", "image": name}]}, "$patch": "replace"});
    let revision = json!({"metadata": {"name": name}, "revision": number, "data": {"spec": {"template": template}}});
    Arc::new(serde_json::from_value(revision).unwrap())
}

fn revisions() -> Revisions {
    Revisions {
        current: revision("f", 6),
        duplicates: vec![revision("c", 3)],
        old: ["a", "b", "d", "e"]
            .into_iter()
            .zip([1, 2, 4, 5])
            .map(|(name, number)| revision(name, number))
            .collect(),
    }
}

fn names(web: &World) -> (String, String, String) {
    let set = web.set();
    let in_use = InUse::of(&set, &revisions());
    let versions = in_use.versions();
    let spec = versions.current.template.spec.as_ref().unwrap();
    let image = spec.containers[0].image.clone().unwrap();
    (
        versions.current.name.into(),
        versions.update.name.into(),
        image,
    )
}

#[test]
fn the_current_revision_is_the_one_that_the_status_names() {
    let mut web = world(json!({}));
    let expect = |current: &str, image: &str| (current.into(), "f".into(), image.into());
    assert_eq!(names(&web), expect("f", "i"), "nothing is said");
    for (said, current, image) in [
        ("d", "d", "d"),
        ("c", "c", "c"),
        ("f", "f", "i"),
        ("gone", "f", "i"),
    ] {
        web.set["status"] = json!({"replicas": 0, "currentRevision": said});
        assert_eq!(names(&web), expect(current, image), "{said}");
    }
    let set = web.set();
    let of_status = InUse::of_status(&set);
    let versions = of_status.versions();
    assert_eq!((versions.current.name, versions.update.name), ("gone", ""));
}

/// Source: `TestStatefulSetControlLimitsHistory`.
#[test]
fn the_oldest_that_no_pod_is_of_go() {
    let surplus = |limit: Value, web: &mut World| {
        web.set["spec"]["revisionHistoryLimit"] = limit;
        web.set["status"] = json!({"replicas": 0, "currentRevision": "b"});
        let set = web.set();
        let surplus = InUse::of(&set, &revisions()).surplus(&revisions(), &web.held());
        let names = surplus.iter().map(|one| one.metadata.name.clone().unwrap());
        names.collect::<String>()
    };
    let mut web = world(json!({})).has("web-0", "d");
    assert_eq!(
        surplus(json!(0), &mut web),
        "ace",
        "b is current, d of a pod, f of the next"
    );
    assert_eq!(surplus(json!(1), &mut web), "ac");
    assert_eq!(surplus(json!(2), &mut web), "a");
    assert_eq!(surplus(Value::Null, &mut web), "", "ten");
    assert_eq!(surplus(json!(-1), &mut web), "", "all");
}
