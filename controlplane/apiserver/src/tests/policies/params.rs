//! Parameters: from ConfigMaps, from custom resources, by name and by selector, and none.

use super::*;

/// Labels that a ConfigMap's data lists are required.
const REQUIRED: &str = "params.data.all(name, name in object.metadata.labels && \
    object.metadata.labels[name] == params.data[name])";

fn of_configmaps(validation: &str) -> Value {
    json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": validation, "messageExpression": "'wants ' + params.metadata.name"}]})
}

fn labelled(labels: Value) -> Value {
    let mut pod = pod("a", false);
    pod["metadata"]["labels"] = labels;
    pod
}

fn reference(name: &str, action: &str) -> Value {
    json!({"paramRef": {"name": name, "parameterNotFoundAction": action}})
}

#[tokio::test]
async fn each_namespace_may_have_its_own() {
    let Cluster {
        admin,
        keeping: _keeping,
        ..
    } = cluster().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
    made(&admin, NAMESPACES, namespace).await;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    made(
        &admin,
        &format!("{NAMESPACES}/other/serviceaccounts"),
        account,
    )
    .await;
    made(
        &admin,
        CONFIGMAPS,
        configmap("labels", json!({"team": "a"})),
    )
    .await;
    let others = format!("{NAMESPACES}/other/configmaps");
    made(&admin, &others, configmap("labels", json!({"team": "b"}))).await;
    validating(
        &admin,
        "pods",
        of_configmaps(REQUIRED),
        reference("labels", "Deny"),
    )
    .await;
    let answer = refused(&admin, PODS, &labelled(json!({"team": "b"}))).await;
    assert!(
        answer.message().ends_with("denied request: wants labels"),
        "{}",
        answer.message()
    );
    let elsewhere = format!("{NAMESPACES}/other/pods");
    made(&admin, &elsewhere, labelled(json!({"team": "b"}))).await;
    made(&admin, PODS, labelled(json!({"team": "a"}))).await;
    // What changes holds for the next write.
    let one = format!("{CONFIGMAPS}/labels");
    let change = json!({"data": {"team": "c"}});
    assert_eq!(write(&admin, "PATCH", &one, &change).await.code, 200);
    let mut next = labelled(json!({"team": "c"}));
    next["metadata"]["name"] = "next".into();
    made(&admin, PODS, next).await;
}

/// A Namespace is in itself: its parameters are those in it.
#[tokio::test]
async fn a_namespace_has_the_parameters_within() {
    let Cluster {
        admin,
        keeping: _keeping,
        ..
    } = cluster().await;
    let namespace =
        |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    made(&admin, NAMESPACES, namespace("kept")).await;
    let within = format!("{NAMESPACES}/kept/configmaps");
    made(&admin, &within, configmap("rules", json!({"kept": "yes"}))).await;
    let mut spec =
        of_configmaps("!('kept' in params.data) && request.namespace == oldObject.metadata.name");
    spec["matchConstraints"] = rules("namespaces", &["UPDATE"]);
    validating(&admin, "namespaces", spec, reference("rules", "Allow")).await;
    let path = format!("{NAMESPACES}/kept");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let trying = async {
        while write(&admin, "PATCH", &format!("{path}?dryRun=All"), &label)
            .await
            .code
            == 200
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), trying)
        .await
        .expect("it is refused");
    let answer = write(&admin, "PATCH", &path, &label).await;
    assert_eq!(
        answer.message(),
        "namespaces \"kept\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: wants rules"
    );
    // Where there are none, there is nothing to refuse.
    made(&admin, NAMESPACES, namespace("free")).await;
    let free = format!("{NAMESPACES}/free");
    assert_eq!(write(&admin, "PATCH", &free, &label).await.code, 200);
}

#[tokio::test]
async fn what_is_not_there_is_allowed_or_denied() {
    for (action, code) in [("Allow", 201), ("Deny", 422)] {
        let Cluster {
            admin,
            keeping: _keeping,
            ..
        } = cluster().await;
        made(&admin, CONFIGMAPS, configmap("there", json!({"a": "b"}))).await;
        validating(
            &admin,
            "pods",
            of_configmaps(REQUIRED),
            reference("there", action),
        )
        .await;
        refused(&admin, PODS, &pod("a", false)).await;
        let one = format!("{CONFIGMAPS}/there");
        assert_eq!(write(&admin, "DELETE", &one, &json!({})).await.code, 200);
        let answer = write(&admin, "POST", PODS, &pod("a", false)).await;
        assert_eq!(answer.code, code, "{action}");
        if code == 422 {
            assert_eq!(
                answer.message(),
                "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed to \
                 configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
            );
        }
    }
}

#[tokio::test]
async fn a_selector_hands_over_all_that_it_selects() {
    let Cluster {
        admin,
        keeping: _keeping,
        ..
    } = cluster().await;
    for name in ["one", "two"] {
        let mut map = configmap(name, json!({name: "yes"}));
        map["metadata"]["labels"] = json!({"of": "policy"});
        made(&admin, CONFIGMAPS, map).await;
    }
    let selector = json!({"paramRef": {"selector": {"matchLabels": {"of": "policy"}},
        "parameterNotFoundAction": "Deny", "namespace": "default"}});
    validating(&admin, "pods", of_configmaps(REQUIRED), selector).await;
    let answer = refused(&admin, PODS, &labelled(json!({"one": "yes"}))).await;
    assert!(answer.message().ends_with("wants two"));
    let answer = refused(&admin, PODS, &labelled(json!({"two": "yes"}))).await;
    assert!(answer.message().ends_with("wants one"));
    made(&admin, PODS, labelled(json!({"one": "yes", "two": "yes"}))).await;
}

#[tokio::test]
async fn references_that_do_not_fit_are_told() {
    let in_namespace = json!({"paramRef": {"name": "a", "parameterNotFoundAction": "Allow"}});
    let of_cluster = json!({"paramRef": {"name": "a", "namespace": "default", "parameterNotFoundAction": "Allow"}});
    const CLASSES: &str = "scheduling.k8s.io/priorityclasses";
    for (kind, api_version, reference, why) in [
        (
            "ConfigMap",
            "v1",
            &in_namespace,
            "failed to configure binding: cannot use namespaced paramRef in policy binding that matches cluster-scoped \
             resources",
        ),
        (
            "Namespace",
            "v1",
            &of_cluster,
            "failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`",
        ),
        (
            "Widget",
            "example.org/v1",
            &in_namespace,
            "failed to configure policy: failed to find resource referenced by paramKind: 'example.org/v1, Kind=Widget'",
        ),
    ] {
        let Cluster {
            admin,
            keeping: _keeping,
            ..
        } = cluster().await;
        let spec = json!({"paramKind": {"apiVersion": api_version, "kind": kind},
            "validations": [{"expression": "true"}]});
        validating(&admin, CLASSES, spec, reference.clone()).await;
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": "n"}, "value": 1});
        let path = "/apis/scheduling.k8s.io/v1/priorityclasses";
        let answer = refused(&admin, path, &class).await;
        assert!(answer.message().ends_with(why), "{}", answer.message());
    }
}

/// Kinds that come while the policy is there, as operators bring them.
#[tokio::test]
async fn custom_resources_are_parameters_as_soon_as_they_are_served() {
    let Cluster {
        admin,
        keeping: _keeping,
        ..
    } = cluster().await;
    let spec = json!({"paramKind": {"apiVersion": "example.org/v1", "kind": "Limit"},
        "validations": [{"expression": "object.spec.replicas <= params.spec.most",
            "messageExpression": "'at most ' + string(params.spec.most)"}]});
    validating(&admin, "apps/deployments", spec, reference("few", "Deny")).await;
    let deployment = |replicas: i64| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": {
                "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}})
    };
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let answer = refused(&admin, deployments, &deployment(1)).await;
    assert!(
        answer
            .message()
            .contains("failed to find resource referenced by paramKind")
    );
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
        "properties": {"most": {"type": "integer"}}}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "limits.example.org"}, "spec": {"group": "example.org", "scope": "Namespaced",
            "names": {"plural": "limits", "kind": "Limit"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    made(&admin, definitions, definition).await;
    let limit = json!({"apiVersion": "example.org/v1", "kind": "Limit", "metadata": {"name": "few"}, "spec": {"most": 2}});
    let limits = "/apis/example.org/v1/namespaces/default/limits";
    let making = async {
        while write(&admin, "POST", limits, &limit).await.code != 201 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), making)
        .await
        .expect("the kind is served");
    until(&admin, deployments, &deployment(2), |answer| {
        answer.code == 201
    })
    .await;
    let answer = write(&admin, "POST", deployments, &deployment(3)).await;
    assert!(
        answer.message().ends_with("denied request: at most 2"),
        "{}",
        answer.message()
    );
}

/// Somebody who may write policies, and get what `rules` say.
async fn author(cluster: &Cluster, rules: Value) -> Raw {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    let mut all = json!([{"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"],
        "verbs": ["*"]}]);
    let more = rules.as_array().cloned().unwrap_or_default();
    all.as_array_mut().unwrap().extend(more);
    let of = |kind: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "author"}});
    let mut role = of("ClusterRole");
    role["rules"] = all;
    made(&cluster.admin, &format!("{RBAC}/clusterroles"), role).await;
    let mut bound = of("ClusterRoleBinding");
    bound["roleRef"] =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "author"});
    bound["subjects"] =
        json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "author"}]);
    let path = format!("{RBAC}/clusterrolebindings");
    made(&cluster.admin, &path, bound).await;
    Raw::of(&cluster.server, UserInfo::new("author", &[]))
}

#[tokio::test]
async fn who_may_not_read_parameters_does_not_name_them() {
    let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let one = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["other"], "verbs": ["get"]}]);
    let listing =
        json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}]);
    for (kind, rules, may) in [
        ("Validating", json!([]), false),
        ("Mutating", json!([]), false),
        ("Validating", one, false),
        ("Validating", listing, false),
        ("Validating", secrets.clone(), true),
        ("Mutating", secrets, true),
    ] {
        let cluster = cluster().await;
        let author = author(&cluster, rules.clone()).await;
        let path = |what: &str| format!("{ADMISSION}/{}admission{what}", kind.to_lowercase());
        let (policies, bindings) = (path("policies"), path("policybindings"));
        let mut policy = json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": format!("{kind}AdmissionPolicy"), "metadata": {"name": "p"},
            "spec": {"matchConstraints": rules_of_pods(), "paramKind": {"apiVersion": "v1", "kind": "Secret"}}});
        let mut bound = json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": format!("{kind}AdmissionPolicyBinding"), "metadata": {"name": "b"},
            "spec": {"policyName": "p", "paramRef": {"name": "s", "namespace": "kube-system",
                "parameterNotFoundAction": "Deny"}}});
        if kind == "Validating" {
            policy["spec"]["validations"] = json!([{"expression": "false"}]);
            bound["spec"]["validationActions"] = json!(["Deny"]);
        } else {
            policy["spec"]["reinvocationPolicy"] = "Never".into();
            policy["spec"]["mutations"] = json!([{"patchType": "JSONPatch",
                "jsonPatch": {"expression": "[JSONPatch{op: 'test', path: '/kind', value: 'Pod'}]"}}]);
        }
        let code = if may { 201 } else { 422 };
        let answer = write(&author, "POST", &policies, &policy).await;
        assert_eq!(answer.code, code, "{kind} {rules}: {}", answer.body);
        if !may {
            let why = "spec.paramKind: Forbidden: user author must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)";
            assert!(answer.message().ends_with(why), "{}", answer.message());
            made(&cluster.admin, &policies, policy).await;
        }
        let answer = write(&author, "POST", &bindings, &bound).await;
        assert_eq!(answer.code, code, "{kind} {rules}: {}", answer.body);
        if !may {
            let why = "spec.paramRef: Forbidden: user author does not have \"get\" permission on the object referenced by paramRef";
            assert!(answer.message().ends_with(why), "{}", answer.message());
            made(&cluster.admin, &bindings, bound).await;
        }
        // What names nothing new reads nothing new.
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        for path in [format!("{policies}/p"), format!("{bindings}/b")] {
            let answer = write(&author, "PATCH", &path, &label).await;
            assert_eq!(answer.code, 200, "{kind} {rules}: {}", answer.body);
        }
        let another = json!({"spec": {"paramRef": {"name": "t"}}});
        let path = format!("{bindings}/b");
        let answer = write(&author, "PATCH", &path, &another).await;
        assert_eq!(answer.code, if may { 200 } else { 422 }, "{}", answer.body);
    }
}

fn rules_of_pods() -> Value {
    rules("pods", &["CREATE"])
}
