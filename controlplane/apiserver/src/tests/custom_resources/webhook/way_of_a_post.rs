//! The way of a POST with everything configured that a cluster can have: each station leaves its
//! mark in the object, so that what is stored tells the way.

use super::{
    super::super::{
        policies::{self, until},
        quota::{limit, used},
        webhooks::{
            MUTATING, VALIDATING, configure,
            server::{Hook, Reply, patch},
        },
    },
    *,
};

/// `ends`, whose objects tell in `spec.way` where they have been: six stations at most, by a rule.
fn ends_that_tell_their_way() -> CustomResource {
    let telling = |version: CustomResourceVersion| {
        let mut schema = version.schema.published();
        let spec = &mut schema["properties"]["spec"];
        spec["properties"]["way"] = json!({"type": "array", "default": ["default"], "maxItems": 20,
            "items": {"type": "string", "maxLength": 20}});
        spec["x-kubernetes-validations"] =
            json!([{"rule": "size(self.way) <= 6", "message": "too long a way"}]);
        CustomResourceVersion {
            schema: Structural::read(&schema).unwrap(),
            ..version
        }
    };
    ends(telling(end_v1()), telling(end_v2()))
}

fn rules() -> Value {
    json!([{"operations": ["CREATE"], "apiGroups": ["example.org"], "apiVersions": ["v2"],
        "resources": ["ends"]}])
}

fn marks(station: &str) -> Reply {
    patch(json!([{"op": "add", "path": "/spec/way/-", "value": station}]))
}

fn way(object: &Value) -> Vec<&str> {
    let way = object["spec"]["way"].as_array().unwrap().iter();
    way.map(|station| station.as_str().unwrap()).collect()
}

struct Stations {
    admin: Raw,
    conversions: Arc<Webhook>,
    first: Hook,
    second: Hook,
    last: Hook,
    _server: Arc<ApiServer>,
}

/// One of each: a policy and two webhooks that change, the first of which looks twice; a policy and
/// a webhook that check; a quota.
async fn stations() -> Stations {
    let (server, admin, conversions) = served_as(ends_that_tell_their_way()).await;
    limit(
        &admin,
        "q",
        json!({"hard": {"count/ends.example.org": "2"}}),
    )
    .await;
    let mutation = json!({"matchConstraints": {"resourceRules": rules()}, "mutations": [
        policies::patch("[JSONPatch{op: 'add', path: '/spec/way/-', value: 'policy'}]")]});
    policies::mutating(&admin, "m", "", mutation, json!({})).await;
    let check = json!({"matchConstraints": {"resourceRules": rules()}, "validations": [
        {"expression": "object.spec.host != 'bad'", "messageExpression": "'went ' + object.spec.way.join(' ')"}]});
    policies::validating(&admin, "", check, json!({})).await;
    let (first, second) = (
        Hook::that(marks("first")).await,
        Hook::that(marks("second")).await,
    );
    let last = Hook::start(|request| {
        let is_wanted = request["object"]["spec"]["port"] != "0";
        Reply::Says(json!({"allowed": is_wanted, "status": {"message": "no port"}}))
    })
    .await;
    let again = json!({"rules": rules(), "reinvocationPolicy": "IfNeeded"});
    let once = json!({"rules": rules()});
    let changing = [first.webhook("a", again), second.webhook("b", once.clone())];
    configure(&server, &admin, MUTATING, "c", &changing).await;
    configure(&server, &admin, VALIDATING, "c", &[last.webhook("c", once)]).await;
    let refused = end_in_v2("x", "bad", "1");
    until(&admin, ENDS_V2, &refused, |answer| {
        answer
            .message()
            .ends_with("went default policy first second first")
    })
    .await;
    Stations {
        admin,
        conversions,
        first,
        second,
        last,
        _server: server,
    }
}

#[tokio::test]
async fn a_post_passes_every_station_in_order() {
    let stations = stations().await;
    let admin = &stations.admin;
    let asked = || {
        let hooks = [&stations.first, &stations.second, &stations.last];
        hooks.map(|hook| hook.asked().len())
    };
    let [first, second, last] = asked();
    stations.conversions.calls();
    let mut watched = watch(admin, ENDS).await;
    let (code, made) = admin.post(ENDS_V2, end_in_v2("a", "h", "1")).await;
    let passed = ["default", "policy", "first", "second", "first"];
    assert_eq!((code, way(&made)), (201, passed.to_vec()), "{made}");
    assert_eq!(made["spec"]["replicas"], 1);
    assert_eq!(asked(), [first + 2, second + 1, last + 1]);
    // Who checks sees what all have made of it, in the version that was written.
    let seen = stations.last.asked().pop().unwrap();
    assert_eq!(
        (way(&seen["object"]), &seen["object"]["spec"]["host"]),
        (passed.to_vec(), &json!("h"))
    );
    // Turned into what is stored, and back for the answer; and charged for.
    assert_eq!(stations.conversions.calls(), 2);
    let event = within(watched.next()).await.unwrap();
    assert_eq!(
        (way(&event["object"]), &event["object"]["spec"]["hostPort"]),
        (passed.to_vec(), &json!("h:1"))
    );
    assert_eq!(
        used(admin, "q").await,
        json!({"count/ends.example.org": "1"})
    );
}

#[tokio::test]
async fn a_post_that_is_refused_goes_no_further() {
    let stations = stations().await;
    let admin = &stations.admin;
    let mut long = end_in_v2("a", "h", "1");
    long["spec"]["way"] = json!(["a", "b", "c"]);
    let checked = stations.last.asked().len();
    for (object, code, told) in [
        // The kind's own rule, of what the others have made of it; nobody else checks that.
        (long, 422, "too long a way"),
        (
            end_in_v2("a", "bad", "1"),
            422,
            "went default policy first second first",
        ),
    ] {
        let (answered, answer) = admin.post(ENDS_V2, object).await;
        let message = answer["message"].as_str().unwrap();
        assert_eq!(answered, code, "{answer}");
        assert!(message.contains(told), "{message}");
    }
    assert_eq!(stations.last.asked().len(), checked);
    let (code, answer) = admin.post(ENDS_V2, end_in_v2("a", "h", "0")).await;
    let message = "admission webhook \"c.example.org\" denied the request: no port";
    assert_eq!((code, &answer["message"]), (400, &json!(message)));
    assert_eq!(
        used(admin, "q").await,
        json!({"count/ends.example.org": "0"})
    );
    // What the quota refuses has passed all others, and is not there.
    for (name, code) in [("a", 201), ("b", 201), ("c", 403)] {
        let (answered, answer) = admin.post(ENDS_V2, end_in_v2(name, "h", "1")).await;
        assert_eq!(answered, code, "{answer}");
    }
    assert_eq!(names(&admin.get(ENDS).await.1), ["a", "b"]);
}
