//! Each branch of upstream's validation of definitions, outside of their schemas.

use super::*;

fn version(name: &str) -> Value {
    let mut version = definition()["spec"]["versions"][0].clone();
    version["name"] = name.into();
    version["storage"] = (name == "v1").into();
    version
}

fn of_versions(versions: Value) -> String {
    create_errors(
        &CustomResourceDefinition,
        with(&definition(), "/spec/versions", versions),
    )
}

/// What is told of a single version with something more.
fn of_one(field: &str, value: Value) -> String {
    let mut one = version("v1");
    one[field] = value;
    of_versions(json!([one]))
}

#[test]
fn what_is_missing_is_told_all_at_once() {
    let bare = json!({"metadata": {"name": "plural.group.com"}, "spec": {"names": {}}});
    let found = create_errors(&CustomResourceDefinition, bare);
    let at = [
        "metadata.name: Invalid value",
        "spec.group: Required value",
        "spec.scope: Required value",
        "spec.versions: Invalid value: ",
        "spec.names.plural: Required value",
        "spec.names.singular: Required value",
        "spec.names.kind: Required value",
        "spec.names.listKind: Required value",
        "status.storedVersions: Invalid value: []: must have at least one stored version",
    ];
    let places: Vec<Option<usize>> = at.iter().map(|text| found.find(text)).collect();
    assert!(places.iter().all(Option::is_some), "{found}");
    assert!(places.is_sorted(), "in upstream's order: {found}");
}

#[test]
fn groups_and_names_are_dns() {
    for (pointer, value, expect) in [
        (
            "/spec/group",
            "nodot",
            "spec.group: Invalid value: \"nodot\": should be a domain with at least one dot",
        ),
        (
            "/spec/group",
            "Big.Org",
            "spec.group: Invalid value: \"Big.Org\": a lowercase RFC 1123 subdomain",
        ),
        (
            "/spec/names/singular",
            "W",
            "spec.names.singular: Invalid value: \"W\": a DNS-1035 label",
        ),
        (
            "/spec/names/kind",
            "W_",
            "spec.names.kind: Invalid value: \"W_\": may have mixed case, but should otherwise match: a DNS-1035 label",
        ),
        (
            "/spec/names/listKind",
            "9",
            "spec.names.listKind: Invalid value: \"9\": may have mixed case, but should otherwise match: a DNS-1035 label",
        ),
    ] {
        let changed = with(&definition(), pointer, json!(value));
        let found = create_errors(&CustomResourceDefinition, changed);
        assert!(found.contains(expect), "{pointer} = {value}: {found}");
    }
    let categories = with(&definition(), "/spec/names/categories", json!(["a", "B"]));
    let found = create_errors(&CustomResourceDefinition, categories);
    assert!(
        found.starts_with("spec.names.categories[1]: Invalid value: \"B\""),
        "{found}"
    );
}

#[test]
fn warnings_of_deprecated_versions_can_be_read() {
    let warned = |text: &str| {
        let mut one = version("v1");
        one["deprecated"] = true.into();
        one["deprecationWarning"] = text.into();
        of_versions(json!([one]))
    };
    let at = "spec.versions[0].deprecationWarning: Invalid value";
    let unseen =
        "must only contain printable UTF-8 characters; non-printable character found at index";
    assert_eq!(warned("use v2"), "");
    assert_eq!(
        warned(""),
        format!("{at}: \"\": must not be an empty string")
    );
    assert!(warned(&"a".repeat(257)).ends_with(": must be <= 256 characters long"));
    for (text, index) in [("a\nb", 1), ("ab\u{a0}", 2), ("\u{200b}", 0)] {
        assert!(
            warned(text).ends_with(&format!("{unseen} {index}")),
            "{text:?}: {}",
            warned(text)
        );
    }
}

#[test]
fn columns_say_what_they_show() {
    let column = |change: Value| {
        let mut column = json!({"name": "Size", "type": "integer", "jsonPath": ".spec.size"});
        for (name, value) in change.as_object().unwrap() {
            column[name] = value.clone();
        }
        of_one("additionalPrinterColumns", json!([column]))
    };
    let at = "spec.additionalPrinterColumns[0]";
    for (change, expect) in [
        (json!({"format": "int32"}), String::new()),
        (json!({"name": ""}), format!("{at}.name: Required value")),
        (
            json!({"type": ""}),
            format!("{at}.type: Required value: must be one of boolean,date,integer,number,string"),
        ),
        (
            json!({"format": "odd"}),
            format!(
                "{at}.format: Invalid value: \"odd\": must be one of byte,date,date-time,double,float,int32,int64,password"
            ),
        ),
        (
            json!({"jsonPath": ""}),
            format!("{at}.JSONPath: Required value"),
        ),
    ] {
        assert_eq!(column(change.clone()), expect, "{change}");
    }
}

#[test]
fn replicas_are_where_they_belong() {
    let scale = |spec: &str, status: &str, selector: &str| {
        let scale = json!({"specReplicasPath": spec, "statusReplicasPath": status, "labelSelectorPath": selector});
        of_one("subresources", json!({"scale": scale}))
    };
    let at = "spec.subresources.scale";
    for (paths, expect) in [
        ((".spec.a", ".status.a", ".spec.s"), String::new()),
        ((".spec.a", ".status.a", ".status.s"), String::new()),
        (
            ("", ".status.a", ""),
            format!("{at}.specReplicasPath: Required value"),
        ),
        (
            (".spec.a", "", ""),
            format!("{at}.statusReplicasPath: Required value"),
        ),
        (
            (".spec.a", ".spec.a", ""),
            format!(
                "{at}.statusReplicasPath: Invalid value: \".spec.a\": should be a json path under .status"
            ),
        ),
        (
            ("spec.a", ".status.a", ""),
            format!(
                "{at}.specReplicasPath: Invalid value: \"spec.a\": must be a simple json path starting with ."
            ),
        ),
        (
            (".spec.a", ".status.a", ".s"),
            format!(
                "{at}.labelSelectorPath: Invalid value: \".s\": should be a json path under either .spec or .status"
            ),
        ),
    ] {
        let (spec, status, selector) = paths;
        assert_eq!(scale(spec, status, selector), expect, "{paths:?}");
    }
}

#[test]
fn fields_that_select_are_single_values() {
    let selecting = |paths: &[&str]| {
        let fields: Vec<Value> = paths.iter().map(|path| json!({"jsonPath": path})).collect();
        of_one("selectableFields", fields.into())
    };
    let at = |place: usize| format!("spec.selectableFields[{place}].jsonPath");
    for (paths, expect) in [
        (&[".spec.colour", ".spec.size"][..], String::new()),
        (&[""], format!("{}: Required value", at(0))),
        (
            &["spec.colour"],
            format!(
                "{}: Invalid value: \"spec.colour\": is an invalid path: expected [ or . but got: spec",
                at(0)
            ),
        ),
        (
            &[".spec.parts[0]"],
            format!(
                "{}: Invalid value: \".spec.parts[0]\": is an invalid path: array notation is not allowed",
                at(0)
            ),
        ),
        (
            &[".spec.colour", ".spec.colour"],
            format!("{}: Duplicate value: \".spec.colour\"", at(1)),
        ),
    ] {
        assert_eq!(selecting(paths), expect, "{paths:?}");
    }
    let mut one = version("v1");
    let fields = (0..9).map(|at| (format!("f{at}"), json!({"type": "string"})));
    let paths: Vec<Value> = (0..9)
        .map(|at| json!({"jsonPath": format!(".spec.f{at}")}))
        .collect();
    one["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] =
        Value::Object(fields.collect());
    one["selectableFields"] = paths.into();
    assert_eq!(
        of_versions(json!([one])),
        "spec.selectableFields: Too many: 9: must have at most 8 items"
    );
    let mut one = version("v1");
    let schema = &mut one["schema"]["openAPIV3Schema"]["properties"];
    schema["metadata"] = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    schema["metadatas"] = json!({"type": "string"});
    one["selectableFields"] = json!([{"jsonPath": ".metadata.name"}, {"jsonPath": ".metadatas"}]);
    assert_eq!(
        of_versions(json!([one])),
        format!(
            "{}: Invalid value: \".metadata.name\": must not point to fields in metadata",
            at(0)
        )
    );
}

#[test]
fn what_versions_do_not_share_is_told_of_each() {
    let (mut first, second) = (version("v1"), version("v2"));
    first["additionalPrinterColumns"] = json!([{"name": "", "type": "string", "jsonPath": ".a"}]);
    assert_eq!(
        of_versions(json!([first, second])),
        "spec.versions[0].additionalPrinterColumns[0].name: Required value"
    );
    let (mut first, second) = (version("v1"), version("v2"));
    first["subresources"] =
        json!({"scale": {"specReplicasPath": ".a", "statusReplicasPath": ".status.a"}});
    assert_eq!(
        of_versions(json!([first, second])),
        "spec.versions[0].subresources.scale.specReplicasPath: Invalid value: \".a\": should be a json path under .spec"
    );
    // What any version has of a status, the schema of all is looked at for.
    let (first, mut second) = (version("v1"), version("v2"));
    second["subresources"] = json!({"status": {}});
    let mut both = json!([first, second]);
    for version in both.as_array_mut().unwrap() {
        version["schema"]["openAPIV3Schema"]["minProperties"] = 1.into();
    }
    let found = of_versions(both);
    assert!(
        found.starts_with("spec.validation.openAPIV3Schema: Invalid value: ")
            && found.ends_with(
                "fields are allowed at the root of the schema if the status subresource is enabled"
            ),
        "{found}"
    );
}

#[test]
fn faults_of_an_update_are_told_in_upstreams_order() {
    let mut old = created(&CustomResourceDefinition, definition());
    let established = conditions::Condition {
        kind: "Established",
        status: "True",
        reason: "InitialNamesAccepted".to_owned(),
        message: String::new(),
    };
    established.set(&mut old);
    let mut new = with(&definition(), "/spec/scope", json!("Cluster"));
    new["spec"]["names"]["kind"] = "Gadget".into();
    new["spec"]["names"]["shortNames"] = json!(["W"]);
    new["spec"]["versions"][0]["name"] = "v2".into();
    new["spec"]["preserveUnknownFields"] = true.into();
    let found = update_errors(&CustomResourceDefinition, new, &old);
    let at = [
        "spec.names.shortNames[0]",
        "spec.scope: Invalid value: \"Cluster\": field is immutable",
        "spec.names.kind: Invalid value: \"Gadget\": field is immutable",
        "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions",
        "spec.preserveUnknownFields: Invalid value: true",
    ];
    let places: Vec<Option<usize>> = at.iter().map(|text| found.find(text)).collect();
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{found}"
    );
}

#[test]
fn a_version_without_objects_is_taken_back_through_the_status() {
    let old = created(&CustomResourceDefinition, definition());
    let status = |status: Value| {
        let new = with(&old, "/status", status);
        CustomResourceDefinition.validate_status_update(&new, &old)
    };
    assert!(status(json!({"storedVersions": []})).is_empty());
    let odd = status(json!({"acceptedNames": {"plural": "W"}, "storedVersions": ["v1"]}));
    assert!(
        odd.to_string()
            .starts_with("status.acceptedNames.plural: Invalid value: \"W\""),
        "{odd}"
    );
}

/// In base64, as `caBundle` is.
const BUNDLE: &str = "\
    LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJjRENDQVJXZ0F3SUJBZ0lVY284dEhDNWtpRkRTY1FCL3FJ\
    Q2dPM3A5R0FZd0NnWUlLb1pJemowRUF3SXcKRERFS01BZ0dBMVVFQXd3QllUQWdGdzB5TmpFeE1qZ3hNak15TVRG\
    YUdBOHlNVEkyTVRFd05ERXlNekl4TVZvdwpEREVLTUFnR0ExVUVBd3dCWVRCWk1CTUdCeXFHU000OUFnRUdDQ3FH\
    U000OUF3RUhBMElBQkV0T1d6bGJJTllKCjRPRHN5RHV2UDIyT2trcVQ1bUlFdkFyRFVNbmJ4SHFITE5zTlRPM2Jm\
    c0JLVDl4WnZZOVFzQ1V1SER5NUo2VGcKeW1ITVh4SkpoN1dqVXpCUk1CMEdBMVVkRGdRV0JCUjJtVFdQUHJWOUJZ\
    NmRkZi9xZG43ZHMzUWRwREFmQmdOVgpIU01FR0RBV2dCUjJtVFdQUHJWOUJZNmRkZi9xZG43ZHMzUWRwREFQQmdO\
    VkhSTUJBZjhFQlRBREFRSC9NQW9HCkNDcUdTTTQ5QkFNQ0Ewa0FNRVlDSVFDbHN0cHRVbjFsbE5veUZPeXhGMGtP\
    Rjd5QzIzNFlrcHloZGxjR3FLVWwKeGdJaEFPWWI0dDIyNFRzamRjanFYeW1EdFlrNW1mQ0lTNk5rODNISWtFZER0\
    WTU3Ci0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K";

#[test]
fn authorities_that_can_be_read_stay_readable_once_a_kind_is_served() {
    let with_bundle = |bundle: &str| {
        let webhook = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://a.example", "caBundle": bundle}}});
        with(&definition(), "/spec/conversion", webhook)
    };
    let served = |bundle: &str| {
        let mut object = created(&CustomResourceDefinition, with_bundle(bundle));
        object["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
        object
    };
    let new = |bundle: &str| created(&CustomResourceDefinition, with_bundle(bundle));
    let refused = "spec.conversion.webhookClientConfig.caBundle: Invalid value: unable to load root certificates: \
                   unable to parse bytes as PEM block";
    // A placeholder that somebody fills in later.
    let blank = "Cg==";
    assert_eq!(
        create_errors(&CustomResourceDefinition, with_bundle(blank)),
        ""
    );
    for (old, changed, expect) in [
        (served(BUNDLE), blank, refused),
        (served(""), blank, refused),
        (served(blank), blank, ""),
        (served(blank), BUNDLE, ""),
        (served(BUNDLE), "", ""),
        (new(BUNDLE), blank, ""),
    ] {
        let found = update_errors(&CustomResourceDefinition, new(changed), &old);
        assert_eq!(found, expect, "{changed}");
    }
}
