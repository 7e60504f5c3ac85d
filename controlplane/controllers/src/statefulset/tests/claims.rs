//! Claims: made, missed, waited for, and owned.

use super::*;

fn with_claims(policy: Value) -> World {
    let template = |name: &str| json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    world(json!({
        "replicas": 2, "volumeClaimTemplates": [template("data")],
        "persistentVolumeClaimRetentionPolicy": policy,
    }))
}

fn policy(deleted: &str, scaled: &str) -> Value {
    json!({"whenDeleted": deleted, "whenScaled": scaled})
}

fn claim(name: &str, owners: Value) -> Value {
    json!({"metadata": {"name": name, "uid": name, "ownerReferences": owners}})
}

#[test]
fn claims_come_before_their_pod_and_stay_when_it_goes() {
    let mut web = with_claims(policy("Retain", "Retain"));
    assert_eq!(web.round(), "create web-0 +data-web-0");
    web.becomes_ready("web-0");
    assert_eq!(web.round(), "create web-1 +data-web-1");
    web.becomes_ready("web-1");
    assert_eq!(web.round(), "");
    web.is_gone("web-1");
    assert_eq!(web.round(), "create web-1", "with the claim it had");
    web.becomes_ready("web-1");
    web.set["spec"]["replicas"] = 0.into();
    assert_eq!(web.round(), "delete web-1");
    assert!(
        web.claims
            .iter()
            .all(|claim| claim["metadata"]["ownerReferences"].is_null())
    );
}

#[test]
fn a_pending_pod_that_misses_its_claim_gets_another() {
    let mut web = with_claims(policy("Delete", "Retain"));
    web.round();
    web.claims.clear();
    assert_eq!(web.round(), "claims of web-0 +data-web-0");
    assert_eq!(web.round(), "");
    web.claims.clear();
    web.becomes_ready("web-0");
    assert_eq!(
        web.planned(),
        "create web-1 +data-web-1",
        "one that runs has it"
    );
}

#[test]
fn a_claim_that_goes_is_waited_for() {
    let mut web = with_claims(policy("Retain", "Retain"));
    web.claims.push(claim("data-web-0", json!(null)));
    web.claims[0]["metadata"]["deletionTimestamp"] = "1970-01-12T13:46:40Z".into();
    assert_eq!(
        web.planned(),
        "create web-0 waits for the end of data-web-0",
        "which fails, and is tried again"
    );
}

#[test]
fn a_claim_that_goes_with_its_former_pod_holds_up_the_next() {
    let former = json!([{"apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": "former", "controller": true}]);
    for (scaled, expect) in [("Delete", ""), ("Retain", "create web-0")] {
        let mut web = with_claims(policy("Retain", scaled));
        web.claims.push(claim("data-web-0", former.clone()));
        assert_eq!(web.planned(), expect, "{scaled}");
    }
    let mut web = with_claims(policy("Retain", "Delete"));
    web.set["spec"]["podManagementPolicy"] = "Parallel".into();
    web.claims.push(claim("data-web-0", former));
    assert_eq!(web.planned(), "create web-1 +data-web-1", "it alone");
}

#[test]
fn claims_get_the_owner_with_whom_they_go() {
    let kinds = |web: &World, name: &str| {
        let mut claims = web.claims.iter();
        let claim = claims
            .find(|claim| claim["metadata"]["name"] == name)
            .unwrap();
        let owners = claim["metadata"]["ownerReferences"].as_array().cloned();
        let kind = |owner: &Value| owner["kind"].as_str().unwrap().to_owned();
        let kinds: Vec<_> = owners.iter().flatten().map(kind).collect();
        kinds.join(" ")
    };
    for (deleted, scaled, stays, goes) in [
        ("Retain", "Retain", "", ""),
        ("Delete", "Retain", "StatefulSet", "StatefulSet"),
        ("Retain", "Delete", "", "Pod"),
        ("Delete", "Delete", "StatefulSet", "Pod"),
    ] {
        let mut web = with_claims(policy(deleted, scaled));
        for name in ["web-0", "web-1"] {
            web.round();
            web.becomes_ready(name);
        }
        assert_eq!(web.round(), "", "made as they shall be");
        web.set["spec"]["replicas"] = 1.into();
        let given = if goes == stays {
            String::new()
        } else {
            format!("claims of web-1 data-web-1 to [{goes}], ")
        };
        assert_eq!(web.round(), format!("{given}delete web-1"));
        let found = (kinds(&web, "data-web-0"), kinds(&web, "data-web-1"));
        assert_eq!(found, (stays.into(), goes.into()), "{deleted} {scaled}");
        assert_eq!(web.round(), "");
    }
}

#[test]
fn a_change_of_the_policy_changes_the_owners_of_claims_that_are_there() {
    let mut web = with_claims(policy("Retain", "Retain"));
    for name in ["web-0", "web-1"] {
        web.round();
        web.becomes_ready(name);
        web.pod(name);
    }
    web.set["spec"]["persistentVolumeClaimRetentionPolicy"] = policy("Delete", "Delete");
    assert_eq!(
        web.round(),
        "update web-0's claims data-web-0 to [StatefulSet], update web-1's claims data-web-1 to [StatefulSet]"
    );
    assert_eq!(web.round(), "");
    web.set["spec"]["replicas"] = 1.into();
    web.round();
    web.set["spec"]["persistentVolumeClaimRetentionPolicy"] = policy("Retain", "Retain");
    assert_eq!(
        web.round(),
        "update web-0's claims data-web-0 to [], claims of web-1 data-web-1 to []"
    );
}

#[test]
fn claims_of_others_are_left_alone() {
    let owner = |kind: &str, name: &str, uid: &str, controls: bool| {
        let api = if kind == "Pod" { "v1" } else { "apps/v1" };
        json!({"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": controls})
    };
    let ours = || owner("StatefulSet", "web", "me", true);
    let other = || owner("Database", "db", "db", true);
    let reader = || owner("Database", "db", "db", false);
    for (owners, expect) in [
        (json!([]), Some("data-web-0 to [StatefulSet]")),
        (json!([ours()]), None),
        (
            json!([owner("StatefulSet", "web", "me", false)]),
            Some("data-web-0 to [StatefulSet]"),
        ),
        (
            json!([reader()]),
            Some("data-web-0 to [Database StatefulSet]"),
        ),
        (json!([other()]), None),
        (
            json!([other(), ours()]),
            Some("somebody else's data-web-0 data-web-0 to [Database]"),
        ),
        (json!([owner("StatefulSet", "web", "former", true)]), None),
        (json!([owner("Pod", "web-0", "former", true)]), None),
    ] {
        let mut web = with_claims(policy("Delete", "Retain"));
        web.round();
        web.becomes_ready("web-0");
        web.claims = vec![claim("data-web-0", owners.clone())];
        web.set["spec"]["replicas"] = 1.into();
        let expect =
            expect.map_or_else(String::new, |text| format!("update web-0's claims {text}"));
        assert_eq!(web.planned(), expect, "{owners}");
    }
    let mut web = with_claims(policy("Delete", "Retain"));
    web.round();
    web.claims = vec![claim("data-web-0", json!([other()]))];
    assert_eq!(
        web.planned(),
        "claims of web-0 somebody else's data-web-0",
        "told of"
    );
}
