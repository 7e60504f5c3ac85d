//! What a definition is made of, and what is refused. After upstream's `validation_test.go` and
//! `naming_controller_test.go`, retold.

mod branches;

use serde_json::{Value, json};

use super::*;
use crate::{
    converter::ReviewVersion,
    kinds::apiextensions::definition::{names, served},
    testing::{create_errors, created, update_errors, updated, with},
};

fn definition() -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer"}, "colour": {"type": "string"}, "parts": {"type": "array", "items": {"type": "string"}}}},
        "status": {"type": "object", "properties": {"size": {"type": "integer"}}}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

#[test]
fn defaults_are_upstreams() {
    let object = created(&CustomResourceDefinition, definition());
    let names = &object["spec"]["names"];
    assert_eq!(
        (&names["singular"], &names["listKind"]),
        (&json!("widget"), &json!("WidgetList"))
    );
    assert_eq!(object["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(object["status"], json!({"storedVersions": ["v1"]}));
    assert_eq!(object["metadata"]["generation"], 1);
    let webhook = json!({"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "s", "namespace": "n"}}}});
    let object = created(
        &CustomResourceDefinition,
        with(&definition(), "/spec/conversion", webhook),
    );
    assert_eq!(
        object["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"],
        443
    );
}

#[test]
fn definitions_are_checked() {
    for (pointer, value, expect) in [
        ("/spec/scope", json!("Cluster"), ""),
        (
            "/metadata/name",
            json!("other.example.org"),
            "metadata.name: Invalid value: \"other.example.org\": must be spec.names.plural+\".\"+spec.group",
        ),
        ("/spec/scope", Value::Null, "spec.scope: Required value"),
        (
            "/spec/scope",
            json!("Galaxy"),
            "spec.scope: Unsupported value: \"Galaxy\": supported values: \"Cluster\", \"Namespaced\"",
        ),
        (
            "/spec/versions/0/schema",
            Value::Null,
            "spec.versions[0].schema.openAPIV3Schema: Required value: schemas are required",
        ),
        (
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size",
            json!({}),
            "spec.validation.openAPIV3Schema.properties[spec].properties[size].type: Required value: must not be empty for specified object fields",
        ),
        (
            "/spec/versions/0/deprecationWarning",
            json!("old"),
            "spec.versions[0].deprecationWarning: Invalid value: \"old\": can only be set for deprecated versions",
        ),
        (
            "/spec/versions/0/additionalPrinterColumns",
            json!([{"name": "Size", "type": "int", "jsonPath": ".spec.size"}]),
            "spec.additionalPrinterColumns[0].type: Invalid value: \"int\": must be one of boolean,date,integer,number,string",
        ),
        (
            "/spec/versions/0/additionalPrinterColumns",
            json!([{"name": "Size", "type": "integer", "jsonPath": "spec.size"}]),
            "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"spec.size\": must be a simple json path starting with .",
        ),
        (
            "/spec/versions/0/selectableFields",
            json!([{"jsonPath": ".spec.parts"}]),
            "spec.selectableFields[0].jsonPath: Invalid value: \".spec.parts\": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
        ),
        (
            "/spec/versions/0/selectableFields",
            json!([{"jsonPath": ".spec.mass"}]),
            "spec.selectableFields[0].jsonPath: Invalid value: \".spec.mass\": is an invalid path: does not refer to a valid field",
        ),
        (
            "/spec/versions/0/subresources",
            json!({"scale": {"specReplicasPath": ".status.size", "statusReplicasPath": ".status.size"}}),
            "spec.subresources.scale.specReplicasPath: Invalid value: \".status.size\": should be a json path under .spec",
        ),
        (
            "/spec/names/shortNames",
            json!(["W"]),
            "spec.names.shortNames[0]: Invalid value: \"W\": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        ),
        (
            "/spec/names/listKind",
            json!("Widget"),
            "spec.names.listKind: Invalid value: \"Widget\": kind and listKind may not be the same",
        ),
        (
            "/spec/preserveUnknownFields",
            json!(true),
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ),
        (
            "/spec/conversion",
            json!({"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}}),
            "spec.conversion.conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook",
        ),
        (
            "/spec/conversion",
            json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}}),
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
        ),
        (
            "/spec/conversion",
            json!({"strategy": "", "webhook": {"clientConfig": {"url": "https://a.example"}, "conversionReviewVersions": []}}),
            "[spec.conversion.strategy: Required value, \
             spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook]",
        ),
    ] {
        let found = create_errors(
            &CustomResourceDefinition,
            with(&definition(), pointer, value.clone()),
        );
        assert_eq!(found, expect, "{pointer} = {value}");
    }
}

#[test]
fn one_version_is_stored_and_each_has_a_name_of_its_own() {
    let version = definition()["spec"]["versions"][0].clone();
    let mut second = version.clone();
    second["schema"]["openAPIV3Schema"]["description"] = "Another.".into();
    let found = create_errors(
        &CustomResourceDefinition,
        with(&definition(), "/spec/versions", json!([version, second])),
    );
    assert!(
        found.contains("must contain unique version names"),
        "{found}"
    );
    assert!(
        found.contains("must have exactly one version marked as storage version"),
        "{found}"
    );
    second["name"] = "v2".into();
    second["storage"] = false.into();
    second["schema"]["openAPIV3Schema"]["properties"]["spec"] = json!({});
    let found = create_errors(
        &CustomResourceDefinition,
        with(&definition(), "/spec/versions", json!([version, second])),
    );
    let path = "spec.versions[1].schema.openAPIV3Schema.properties[spec].type: Required value";
    assert!(found.starts_with(path), "{found}");
}

#[test]
fn a_webhook_converts_several_versions() {
    let conversion = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v3", "v1"],
        "clientConfig": {"service": {"name": "s", "namespace": "n"}}}});
    let mut one = with(&definition(), "/spec/conversion", conversion);
    assert_eq!(create_errors(&CustomResourceDefinition, one.clone()), "");
    assert!(CustomResourceDefinition.warnings(&one).is_empty());
    one["status"]["acceptedNames"] = one["spec"]["names"].clone();
    let kind = |one: &Value| served::kind(one).unwrap().unwrap();
    assert!(
        kind(&one).conversion.is_none(),
        "there is nothing to convert"
    );
    let mut second = one["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    second["storage"] = false.into();
    one["spec"]["versions"].as_array_mut().unwrap().push(second);
    assert_eq!(create_errors(&CustomResourceDefinition, one.clone()), "");
    let webhook = kind(&one).conversion.unwrap();
    assert_eq!(webhook.review, ReviewVersion::V1);
    assert_eq!(webhook.client_config["service"]["name"], "s");
}

#[test]
fn rules_are_compiled() {
    let rules = |rule: &str| {
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
        let rules = json!([{"rule": rule}]);
        with(
            &definition(),
            &format!("{spec}/x-kubernetes-validations"),
            rules,
        )
    };
    let ruled = rules("self.size > 0");
    assert_eq!(create_errors(&CustomResourceDefinition, ruled.clone()), "");
    assert!(CustomResourceDefinition.warnings(&ruled).is_empty());
    let found = create_errors(&CustomResourceDefinition, rules("self.size > 'a'"));
    let expect = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":\"self.size > 'a'\"";
    assert!(found.starts_with(expect), "{found}");
    let why = "compilation failed: ERROR: <input>:1:11: found no matching overload for '_>_' applied to '(int, string)'";
    assert!(found.contains(why), "{found}");
}

#[test]
fn unknown_formats_are_warned_of() {
    let format = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/colour/format";
    let odd = with(&definition(), format, json!("paint"));
    assert_eq!(
        CustomResourceDefinition.warnings(&odd),
        ["unrecognized format \"paint\""]
    );
}

#[test]
fn groups_of_kubernetes_need_an_approval() {
    let group = |annotations: Value| {
        let mut object = with(&definition(), "/spec/group", json!("widgets.k8s.io"));
        object["metadata"] = json!({"name": "widgets.widgets.k8s.io", "annotations": annotations});
        object
    };
    let with = |said: &str| group(json!({"api-approved.kubernetes.io": said}));
    for (object, expect) in [
        (
            group(json!({})),
            "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups",
        ),
        (
            with("x"),
            "metadata.annotations[api-approved.kubernetes.io]: Invalid value: \"x\": protected groups",
        ),
        (with("unapproved, an experiment"), ""),
        (
            with("https://github.com/kubernetes/kubernetes/pull/78458"),
            "",
        ),
    ] {
        let found = create_errors(&CustomResourceDefinition, object.clone());
        assert!(
            found.starts_with(expect) && found.is_empty() == expect.is_empty(),
            "{object}: {found}"
        );
    }
    let approved = with("https://github.com/kubernetes/kubernetes/pull/78458");
    let told = definition::approval::condition(&approved).unwrap();
    assert_eq!((told.status, &*told.reason), ("True", "ApprovedAnnotation"));
    assert_eq!(definition::approval::condition(&self::definition()), None);
}

#[test]
fn what_the_storage_goes_by_stays() {
    let mut old = created(&CustomResourceDefinition, definition());
    let other = |pointer: &str, value: Value| with(&definition(), pointer, value);
    let scope = other("/spec/scope", json!("Cluster"));
    assert_eq!(
        update_errors(&CustomResourceDefinition, scope.clone(), &old),
        ""
    );
    let established = conditions::Condition {
        kind: "Established",
        status: "True",
        reason: "InitialNamesAccepted".to_owned(),
        message: String::new(),
    };
    established.set(&mut old);
    assert_eq!(
        update_errors(&CustomResourceDefinition, scope, &old),
        "spec.scope: Invalid value: \"Cluster\": field is immutable"
    );
    let group = other("/spec/group", json!("example.com"));
    assert_eq!(
        update_errors(&CustomResourceDefinition, group, &old),
        "spec.group: Invalid value: \"example.com\": field is immutable"
    );
}

#[test]
fn every_storage_version_is_remembered() {
    let old = created(&CustomResourceDefinition, definition());
    let first = with(&old["spec"]["versions"][0], "/storage", json!(false));
    let mut second = first.clone();
    second["name"] = "v2".into();
    second["storage"] = true.into();
    let both = with(&definition(), "/spec/versions", json!([first, second]));
    let new = updated(&CustomResourceDefinition, both, &old);
    assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
    assert_eq!(new["metadata"]["generation"], 2);
    let only = with(&definition(), "/spec/versions", json!([second]));
    let found = update_errors(&CustomResourceDefinition, only, &new);
    assert!(
        found.starts_with(
            "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions"
        ),
        "{found}"
    );
}

#[test]
fn who_has_a_name_keeps_it() {
    let named = |name: &str, plural: &str, kind: &str, accepted: Value| {
        json!({"metadata": {"name": name}, "spec": {"group": "example.org", "names":
            {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"), "shortNames": ["x"]}},
            "status": {"acceptedNames": accepted}})
    };
    let first = named(
        "a",
        "as",
        "A",
        json!({"plural": "as", "singular": "a", "kind": "A", "listKind": "AList", "shortNames": ["x"]}),
    );
    let second = named("b", "bs", "A", Value::Null);
    let mut taken = names::Taken::default();
    taken.add(&first);
    let (given, told) = names::accepted(&second, &taken);
    assert_eq!((told.status, &*told.reason), ("False", "ListKindConflict"));
    assert_eq!(told.message, "\"AList\" is already in use");
    assert_eq!(given, json!({"plural": "bs"}));
    taken.remove(&first);
    let (given, told) = names::accepted(&first, &taken);
    assert_eq!(
        (told.status, given),
        ("True", first["status"]["acceptedNames"].clone())
    );
}

#[test]
fn its_objects_go_first() {
    let mut object = created(&CustomResourceDefinition, definition());
    assert!(
        !CustomResourceDefinition
            .pending_finalizers(&object)
            .is_empty()
    );
    CustomResourceDefinition.prepare_for_deletion(&mut object);
    assert_eq!(object["metadata"]["finalizers"], json!([CLEANUP]));
    assert!(conditions::is_true(&object, "Terminating"));
    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert!(
        CustomResourceDefinition
            .pending_finalizers(&object)
            .is_empty()
    );
}

#[test]
fn a_definition_is_a_kind() {
    let mut object = created(&CustomResourceDefinition, definition());
    object["status"]["acceptedNames"] = object["spec"]["names"].clone();
    let version = &mut object["spec"]["versions"][0];
    version["subresources"] = json!({"status": {}, "scale":
        {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}});
    version["additionalPrinterColumns"] =
        json!([{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]);
    version["selectableFields"] = json!([{"jsonPath": ".spec.colour"}]);
    version["deprecated"] = true.into();
    let kind = served::kind(&object).unwrap().unwrap();
    assert_eq!(
        (&*kind.info.plural, &*kind.info.kind),
        ("widgets", "Widget")
    );
    let version = &kind.storage;
    assert_eq!(
        version.subresources,
        [Subresource::Status, Subresource::Scale]
    );
    assert_eq!(
        version.scale.as_ref().unwrap().spec_replicas,
        ["spec", "size"]
    );
    assert_eq!(version.selectable_fields, ["spec.colour"]);
    assert_eq!(version.deprecated, "example.org/v1 Widget is deprecated");
    CustomResourceDefinition.prepare_for_deletion(&mut object);
    let kind = served::kind(&object).unwrap().unwrap();
    assert!(!kind.info.has_verb("create") && kind.info.has_verb("delete"));
}
