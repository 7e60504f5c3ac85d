//! Managers of several versions: upstream's `merge/multiple_appliers_test.go` and
//! `merge/obsolete_versions_test.go`, retold.

use super::*;
use crate::{
    patch::apply::versions::{Form, Versions},
    schema::Structural,
};

const VERSIONS: [&str; 3] = ["v1", "v2", "v3"];

/// A kind whose fields end in the name of their version.
struct Renaming(Vec<&'static str>);

fn schema(version: &str) -> Schema {
    let text = json!({"type": "string"});
    let list = json!({"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "properties": {
            "name": text, "value": {"type": "array", "x-kubernetes-list-type": "set",
                "items": text}, "count": {"type": "integer"}}}});
    let mut within = json!({"name": text, "list": list});
    within[format!("scalar_{version}")] = text.clone();
    within[format!("complex_{version}")] = json!({"type": "object", "properties": {"name": text}});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": within}}});
    Schema::Structural(Structural::read(&schema).expect("a schema"))
}

impl Versions for Renaming {
    fn form(&self, object: &Value, api_version: &str) -> Result<Form, Status> {
        let version = api_version.rsplit('/').next().expect("a version");
        if !self.0.contains(&version) {
            return Ok(Form::Gone);
        }
        let mut object = object.clone();
        let managers = meta::remove(&mut object, &["metadata", "managedFields"]);
        let mut text = object.to_string();
        for other in VERSIONS {
            text = text.replace(&format!("_{other}\""), &format!("_{version}\""));
        }
        let mut object: Value = serde_json::from_str(&text).expect("JSON");
        object["apiVersion"] = api_version.into();
        if let Some(managers) = managers {
            meta::set(&mut object, &["metadata", "managedFields"], managers);
        }
        let schema = schema(version).structural().expect("structural").clone();
        Ok(Form::Other(object, schema))
    }
}

/// An object that goes through writes of several versions.
struct State {
    live: Option<Value>,
    versions: Renaming,
}

impl State {
    fn new() -> Self {
        Self {
            live: None,
            versions: Renaming(VERSIONS.into()),
        }
    }

    /// The object in a version.
    fn live_in(&self, version: &str) -> Option<Value> {
        let live = self.live.as_ref()?;
        match self.versions.form(live, &format!("e.org/{version}")) {
            Ok(Form::Other(object, _)) => Some(object),
            // The version that it has is there no more.
            _ => None,
        }
    }

    fn try_apply(
        &mut self,
        manager: &str,
        version: &str,
        spec: &Value,
        force: bool,
    ) -> Result<(), Status> {
        let (api_version, live) = (format!("e.org/{version}"), self.live_in(version));
        let config = json!({"apiVersion": api_version, "kind": "A", "metadata": {"name": "a"}, "spec": spec});
        let writer = Writer {
            manager,
            api_version: &api_version,
            subresource: "",
            time: "T",
        };
        let objects = (live.as_ref(), &config);
        let applied = apply_across(&self.versions, &schema(version), objects, writer, force)?;
        self.live = Some(applied);
        Ok(())
    }

    fn apply(&mut self, manager: &str, version: &str, spec: &Value) {
        let applied = self.try_apply(manager, version, spec, false);
        applied.expect("no conflict");
    }

    fn update(&mut self, manager: &str, version: &str, spec: &Value) {
        let (api_version, live) = (format!("e.org/{version}"), self.live_in(version));
        let mut new = json!({"apiVersion": api_version, "kind": "A", "metadata": {"name": "a"}, "spec": spec});
        let writer = Writer {
            manager,
            api_version: &api_version,
            subresource: "",
            time: "T",
        };
        let change = (live.as_ref(), &mut new);
        track_across(&self.versions, &schema(version), change, writer).expect("tracked");
        self.live = Some(new);
    }

    fn spec(&self, version: &str) -> Value {
        self.live_in(version).expect("an object")["spec"].clone()
    }

    /// What each owns of the spec, with the version in which it does.
    fn owned(&self) -> Vec<(String, String, Value)> {
        let entries = &self.live.as_ref().expect("an object")["metadata"]["managedFields"];
        let text = |entry: &Value, field: &str| entry[field].as_str().expect("text").to_owned();
        let mut owned: Vec<(String, String, Value)> = entries
            .as_array()
            .into_iter()
            .flatten()
            .map(|entry| {
                let version = text(entry, "apiVersion").replace("e.org/", "");
                (
                    text(entry, "manager"),
                    version,
                    entry["fieldsV1"]["f:spec"].clone(),
                )
            })
            .collect();
        owned.sort_by(|a, b| a.0.cmp(&b.0));
        owned
    }
}

fn owns(manager: &str, version: &str, fields: Value) -> (String, String, Value) {
    (manager.to_owned(), version.to_owned(), fields)
}

/// `{"name": "a"}` and this field, as it is called in a version.
fn named(field: &str, version: &str, value: Value) -> Value {
    let mut spec = json!({"name": "a"});
    spec[format!("{field}_{version}")] = value;
    spec
}

/// Calls for each choice of three versions.
fn each(check: impl Fn(&str, &str, &str)) {
    for one in VERSIONS {
        for two in VERSIONS {
            for three in VERSIONS {
                check(one, two, three);
            }
        }
    }
}

#[test]
fn what_its_only_owner_names_no_more_goes() {
    each(|one, two, three| {
        for (field, value) in [("scalar", json!("a")), ("complex", json!({"name": "b"}))] {
            let mut state = State::new();
            state.apply("m", one, &named(field, one, value));
            state.apply("m", two, &json!({"name": "a"}));
            assert_eq!(
                state.spec(three),
                json!({"name": "a"}),
                "{one} {two} {three} {field}"
            );
            assert_eq!(state.owned(), [owns("m", two, json!({"f:name": {}}))]);
        }
    });
}

#[test]
fn what_another_applier_names_stays() {
    each(|one, two, three| {
        for (field, value, of_it) in [
            ("scalar", json!("a"), json!({})),
            ("complex", json!({"name": "b"}), json!({"f:name": {}})),
        ] {
            let mut state = State::new();
            state.apply("one", one, &named(field, one, value.clone()));
            let mut alone = named(field, two, value.clone());
            meta::remove(&mut alone, &["name"]);
            state.apply("two", two, &alone);
            state.apply("one", three, &json!({"name": "a"}));
            let case = format!("{one} {two} {three} {field}");
            assert_eq!(state.spec(three), named(field, three, value), "{case}");
            let mut fields = json!({});
            fields[format!("f:{field}_{two}")] = of_it;
            let expect = [
                owns("one", three, json!({"f:name": {}})),
                owns("two", two, fields),
            ];
            assert_eq!(state.owned(), expect, "{case}");
        }
    });
}

#[test]
fn what_an_updater_owns_stays() {
    each(|one, two, three| {
        let mut state = State::new();
        state.update("updater", one, &named("scalar", one, json!("a")));
        state.apply("applier", two, &named("scalar", two, json!("a")));
        state.apply("applier", three, &json!({"name": "a"}));
        let case = format!("{one} {two} {three}");
        assert_eq!(
            state.spec(three),
            named("scalar", three, json!("a")),
            "{case}"
        );
        let mut fields = json!({"f:name": {}});
        fields[format!("f:scalar_{one}")] = json!({});
        let expect = [
            owns("applier", three, json!({"f:name": {}})),
            owns("updater", one, fields),
        ];
        assert_eq!(state.owned(), expect, "{case}");
    });
}

#[test]
fn an_update_in_another_version_takes_what_it_changes() {
    each(|one, two, three| {
        let mut state = State::new();
        state.apply("applier", one, &named("scalar", one, json!("a")));
        state.update("updater", two, &named("scalar", two, json!("b")));
        assert_eq!(state.spec(three), named("scalar", three, json!("b")));
        let mut fields = json!({});
        fields[format!("f:scalar_{two}")] = json!({});
        let expect = [
            owns("applier", one, json!({"f:name": {}})),
            owns("updater", two, fields),
        ];
        assert_eq!(state.owned(), expect, "{one} {two} {three}");
    });
}

#[test]
fn what_another_owns_in_another_version_is_a_conflict_there() {
    each(|one, two, three| {
        let mut state = State::new();
        state.apply("one", one, &named("scalar", one, json!("a")));
        let mut other = json!({});
        other[format!("scalar_{two}")] = "b".into();
        let refused = state
            .try_apply("two", two, &other, false)
            .expect_err("a conflict");
        let why =
            format!("Apply failed with 1 conflict: conflict with \"one\": .spec.scalar_{one}");
        assert_eq!((refused.code, refused.message), (409, why));
        state.try_apply("two", two, &other, true).expect("forced");
        assert_eq!(state.spec(three)[format!("scalar_{three}")], "b");
        let mut fields = json!({});
        fields[format!("f:scalar_{two}")] = json!({});
        let expect = [
            owns("one", one, json!({"f:name": {}})),
            owns("two", two, fields),
        ];
        assert_eq!(state.owned(), expect, "{one} {two} {three}");
        // The same value is shared.
        state.apply("three", three, &json!({"name": "a"}));
        assert_eq!(state.owned().len(), 3);
    });
}

#[test]
fn elements_of_lists_are_found_in_each_version() {
    let list = |names: &[&str]| -> Value {
        let list: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"list": list})
    };
    for (one, two, three, left) in [
        (&["a", "b"][..], &["c"][..], &["a"][..], &["a", "c"][..]),
        (&["a", "b", "c"], &["c", "d"], &["a"], &["a", "c", "d"]),
    ] {
        let mut state = State::new();
        state.apply("one", "v1", &list(one));
        state.apply("two", "v2", &list(two));
        state.apply("one", "v3", &list(three));
        assert_eq!(state.spec("v1"), list(left));
        let owned = state.owned();
        assert_eq!((&*owned[0].1, &*owned[1].1), ("v3", "v2"));
        assert_eq!(
            owned[0].2,
            json!({"f:list": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}}}})
        );
    }
    let counted = |count: i64| json!({"list": [{"name": "a", "count": count}]});
    let mut state = State::new();
    state.apply("one", "v1", &counted(0));
    state.apply("two", "v2", &counted(0));
    let refused = state
        .try_apply("two", "v2", &counted(1), false)
        .expect_err("a conflict");
    let why = "Apply failed with 1 conflict: conflict with \"one\": .spec.list[name=\"a\"].count";
    assert_eq!(refused.message, why);
}

#[test]
fn what_is_in_an_element_goes_with_its_owner_alone() {
    let mut state = State::new();
    state.apply(
        "one",
        "v1",
        &json!({"list": [{"name": "a"}, {"name": "b", "value": ["c"]}]}),
    );
    state.apply(
        "two",
        "v2",
        &json!({"list": [{"name": "b", "value": ["d"]}]}),
    );
    let with_more = json!({"list": [{"name": "a"}, {"name": "b", "value": ["c", "d", "e"]}]});
    state.update("controller", "v2", &with_more);
    state.apply("one", "v3", &json!({"list": [{"name": "a"}]}));
    let left = json!({"list": [{"name": "a"}, {"name": "b", "value": ["d", "e"]}]});
    assert_eq!(state.spec("v1"), left);
}

#[test]
fn owners_of_a_version_that_is_gone_own_nothing() {
    let mut state = State::new();
    state.update("one", "v1", &json!({"name": "a"}));
    state.update("two", "v2", &named("scalar", "v2", json!("b")));
    state.versions = Renaming(vec!["v2", "v3"]);
    let mut spec = named("scalar", "v3", json!("b"));
    spec["list"] = json!([]);
    state.update("three", "v3", &spec);
    let owned = state.owned();
    let managers: Vec<&str> = owned.iter().map(|(manager, ..)| &**manager).collect();
    assert_eq!(managers, ["three", "two"]);
}

#[test]
fn what_was_applied_in_a_version_that_is_gone_stays() {
    let mut state = State::new();
    state.apply("m", "v1", &json!({"list": [{"name": "a"}, {"name": "b"}]}));
    state.versions = Renaming(vec!["v2"]);
    state.apply("m", "v2", &json!({"list": [{"name": "a"}]}));
    assert_eq!(
        state.spec("v2"),
        json!({"list": [{"name": "a"}, {"name": "b"}]})
    );
    assert_eq!(state.owned().len(), 1);
}
