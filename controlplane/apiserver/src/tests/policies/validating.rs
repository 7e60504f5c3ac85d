//! What validating policies say, and what follows.

use super::*;

const PRIVILEGED: &str = "object.spec.containers.all(c, !has(c.securityContext) || \
    !has(c.securityContext.privileged) || !c.securityContext.privileged)";

#[tokio::test]
async fn privileged_pods_are_refused_in_upstreams_words() {
    let Cluster {
        admin,
        keeping: _keeping,
        ..
    } = cluster().await;
    let spec = json!({"validations": [{"expression": PRIVILEGED, "message": "no privileged pods",
        "messageExpression": "'pod ' + object.metadata.name + ' is privileged'"}]});
    validating(&admin, "pods", spec, json!({})).await;
    let answer = refused(&admin, PODS, &pod("a", true)).await;
    let why = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: pod a is privileged";
    assert_eq!(
        answer.body,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": format!("pods \"a\" is forbidden: {why}"), "reason": "Invalid", "code": 422,
            "details": {"name": "a", "kind": "pods", "causes": [{"message": why}]}})
    );
    made(&admin, PODS, pod("good", false)).await;
    // Without the policy its binding says nothing.
    let policies = format!("{ADMISSION}/validatingadmissionpolicies/p");
    assert_eq!(
        write(&admin, "DELETE", &policies, &json!({})).await.code,
        200
    );
    until(&admin, PODS, &pod("a", true), |answer| answer.code == 201).await;
}

#[tokio::test]
async fn each_reason_has_its_code_and_messages_fall_back() {
    for (validation, code, reason, message) in [
        (
            json!({"reason": "Forbidden", "message": " no "}),
            403,
            "Forbidden",
            "no",
        ),
        (
            json!({"reason": "Forbidden", "messageExpression": "string(object.data.missing)"}),
            403,
            "Forbidden",
            "failed expression: object.data.a == 'b'",
        ),
        (
            json!({"reason": "RequestEntityTooLarge", "messageExpression": "'a\\nb'", "message": "m"}),
            413,
            "RequestEntityTooLarge",
            "m",
        ),
        (
            json!({"messageExpression": "' '"}),
            422,
            "Invalid",
            "failed expression: object.data.a == 'b'",
        ),
    ] {
        let Cluster {
            admin,
            keeping: _keeping,
            ..
        } = cluster().await;
        let mut one = validation.clone();
        one["expression"] = " object.data.a == 'b' ".into();
        validating(
            &admin,
            "configmaps",
            json!({"validations": [one]}),
            json!({}),
        )
        .await;
        let answer = refused(&admin, CONFIGMAPS, &configmap("c", json!({"a": "c"}))).await;
        assert_eq!(
            (answer.code, answer.body["reason"].as_str()),
            (code, Some(reason))
        );
        let expect = format!(
            "configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {message}"
        );
        assert_eq!(answer.message(), expect, "{validation}");
    }
}

#[tokio::test]
async fn who_is_warned_may_write_all_the_same() {
    let Cluster {
        admin,
        keeping: _keeping,
        ..
    } = cluster().await;
    let spec = json!({"validations": [{"expression": "false", "message": "a"}, {"expression": "true"},
        {"expression": "object.data.x == '1'"}],
        "auditAnnotations": [{"key": "k", "valueExpression": "object.metadata.name + ''"}]});
    let actions = json!({"validationActions": ["Warn", "Audit"]});
    validating(&admin, "configmaps", spec, actions).await;
    let answer = until(
        &admin,
        CONFIGMAPS,
        &configmap("c", json!({"x": "2"})),
        |answer| !answer.warnings.is_empty(),
    )
    .await;
    assert_eq!(answer.code, 201);
    assert_eq!(
        answer.warnings,
        [
            "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': a",
            "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': failed expression: object.data.x == '1'",
        ]
    );
}

#[tokio::test]
async fn expressions_see_who_writes_what_and_where() {
    let Cluster {
        admin,
        server,
        keeping: _keeping,
    } = cluster().await;
    let expression = "variables.is_admin || (request.operation == 'UPDATE' && oldObject.data.a == object.data.a \
        && request.resource.resource == 'configmaps' && request.kind.kind == 'ConfigMap' \
        && namespaceObject.metadata.name == 'default' && request.namespace == 'default' \
        && request.options.fieldManager == 'm')";
    let variables = json!([{"name": "is_admin",
        "expression": "'system:masters' in request.userInfo.groups && authorizer.requestResource.check('breakglass').allowed()"}]);
    let spec = json!({"variables": variables, "validations": [{"expression": expression}],
        "matchConditions": [{"name": "not-the-root", "expression": "object.metadata.name != 'kube-root-ca.crt'"}]});
    validating(&admin, "configmaps", spec, json!({})).await;
    let user = Raw::of(&server, UserInfo::new("u", &["g"]));
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "u"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "u"}]});
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    made(&admin, roles, role).await;
    refused(&user, CONFIGMAPS, &configmap("c", json!({"a": "1"}))).await;
    made(&admin, CONFIGMAPS, configmap("c", json!({"a": "1"}))).await;
    let one = format!("{CONFIGMAPS}/c");
    for (query, data, code) in [
        ("?fieldManager=m", json!({"a": "1", "b": "2"}), 200),
        ("?fieldManager=n", json!({"a": "1"}), 422),
        ("?fieldManager=m", json!({"a": "2"}), 422),
    ] {
        let body = configmap("c", data);
        let answer = write(&user, "PUT", &format!("{one}{query}"), &body).await;
        assert_eq!(answer.code, code, "{query} {body}: {}", answer.message());
    }
    made(
        &user,
        CONFIGMAPS,
        configmap("kube-root-ca.crt", json!({"a": "1"})),
    )
    .await;
}

#[tokio::test]
async fn bindings_narrow_down_where_a_policy_holds() {
    let Cluster {
        admin,
        keeping: _keeping,
        ..
    } = cluster().await;
    for (name, env) in [("prod", "prod"), ("dev", "dev")] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"env": env}}});
        made(&admin, NAMESPACES, namespace).await;
    }
    let matching = json!({"matchResources": {"namespaceSelector": {"matchLabels": {"env": "prod"}},
        "objectSelector": {"matchExpressions": [{"key": "free", "operator": "DoesNotExist"}]},
        "excludeResourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"],
            "resources": ["*"], "resourceNames": ["spared"]}]}});
    let spec = json!({"validations": [{"expression": "false"}]});
    validating(&admin, "configmaps", spec, matching).await;
    let of = |namespace: &str| format!("{NAMESPACES}/{namespace}/configmaps");
    refused(&admin, &of("prod"), &configmap("c", json!({}))).await;
    made(&admin, &of("dev"), configmap("c", json!({}))).await;
    made(&admin, &of("prod"), configmap("spared", json!({}))).await;
    let mut free = configmap("free", json!({}));
    free["metadata"]["labels"] = json!({"free": "yes"});
    made(&admin, &of("prod"), free).await;
}

/// A policy that refuses everything can be taken back, and reviews are answered.
#[tokio::test]
async fn policies_and_reviews_are_never_asked_about() {
    let Cluster {
        admin,
        keeping: _keeping,
        ..
    } = cluster().await;
    let all = json!({"matchConstraints": {"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"],
        "operations": ["*"], "resources": ["*/*"]}]}, "validations": [{"expression": "false"}]});
    validating(&admin, "configmaps", all, json!({})).await;
    refused(&admin, CONFIGMAPS, &configmap("c", json!({}))).await;
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    made(&admin, reviews, review).await;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let one =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}});
    assert_eq!(write(&admin, "POST", lease, &one).await.code, 422);
    let binding = format!("{ADMISSION}/validatingadmissionpolicybindings/b");
    assert_eq!(
        write(&admin, "DELETE", &binding, &json!({})).await.code,
        200
    );
    until(&admin, CONFIGMAPS, &configmap("c", json!({})), |answer| {
        answer.code == 201
    })
    .await;
}

#[tokio::test]
async fn what_is_deleted_is_shown_as_it_was() {
    let Cluster {
        admin,
        keeping: _keeping,
        ..
    } = cluster().await;
    let spec = json!({"matchConstraints": rules("configmaps", &["DELETE"]),
        "validations": [{"expression": "object == null && oldObject.data.keep != 'yes'", "message": "kept"}]});
    made(&admin, CONFIGMAPS, configmap("c", json!({"keep": "yes"}))).await;
    made(&admin, CONFIGMAPS, configmap("d", json!({"keep": "no"}))).await;
    validating(&admin, "configmaps", spec, json!({})).await;
    let deleting = async {
        loop {
            let path = format!("{CONFIGMAPS}/c?dryRun=All");
            let answer = write(&admin, "DELETE", &path, &json!({})).await;
            if answer.code != 200 {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let answer = tokio::time::timeout(Duration::from_secs(20), deleting)
        .await
        .expect("refused");
    assert!(answer.message().ends_with("denied request: kept"));
    let other = write(&admin, "DELETE", &format!("{CONFIGMAPS}/d"), &json!({})).await;
    assert_eq!(other.code, 200);
}
