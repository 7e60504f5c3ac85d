//! Policies that fail, cost too much, or go while they are asked.

use super::*;

#[tokio::test]
async fn what_cannot_be_told_is_the_failure_policys() {
    for (policy, code) in [("Fail", 422), ("Ignore", 201)] {
        let Cluster {
            admin,
            keeping: _keeping,
            ..
        } = cluster().await;
        // The second refuses whatever the first does, so that it is known when the policy is there.
        let spec = json!({"failurePolicy": policy, "validations": [
            {"expression": "object.data.missing == 'x'"}, {"expression": "object.data.a != 'never'"}]});
        validating(&admin, "configmaps", spec, json!({})).await;
        refused(&admin, CONFIGMAPS, &configmap("c", json!({"a": "never"}))).await;
        let answer = write(
            &admin,
            "POST",
            CONFIGMAPS,
            &configmap("c", json!({"a": "b"})),
        )
        .await;
        assert_eq!(answer.code, code, "{}", answer.message());
        if code == 422 {
            assert!(answer.message().ends_with(
                "denied request: expression 'object.data.missing == 'x'' resulted in error: no such key: missing"
            ));
        }
    }
}

#[tokio::test]
async fn conditions_that_fail_are_the_failure_policys() {
    for (policy, code) in [("Fail", 422), ("Ignore", 201)] {
        let Cluster {
            admin,
            keeping: _keeping,
            ..
        } = cluster().await;
        let spec = json!({"failurePolicy": policy, "validations": [{"expression": "false"}],
            "matchConditions": [{"name": "c", "expression": "object.data.a == 'x'"}]});
        validating(&admin, "configmaps", spec, json!({})).await;
        refused(&admin, CONFIGMAPS, &configmap("c", json!({"a": "x"}))).await;
        let answer = write(
            &admin,
            "POST",
            CONFIGMAPS,
            &configmap("c", json!({"a": "y"})),
        )
        .await;
        assert_eq!(answer.code, 201, "another");
        let answer = write(
            &admin,
            "POST",
            CONFIGMAPS,
            &configmap("d", json!({"b": "y"})),
        )
        .await;
        assert_eq!(answer.code, code, "{policy}: {}", answer.message());
    }
}

/// One expression ends at its own limit; the policy at its own, and others are answered meanwhile.
#[tokio::test]
async fn dear_expressions_end() {
    let Cluster {
        admin,
        keeping: _keeping,
        ..
    } = cluster().await;
    let list = "[1,2,3,4,5,6,7,8,9,10]";
    let loops: String = (0..6).map(|at| format!("{list}.all(v{at}, ")).collect();
    let dear = format!("{loops}true{}", ")".repeat(6));
    let spec = json!({"validations": [{"expression": dear}]});
    validating(&admin, "configmaps", spec, json!({})).await;
    let answer = refused(&admin, CONFIGMAPS, &configmap("c", json!({}))).await;
    assert!(
        answer
            .message()
            .ends_with("resulted in error: operation cancelled: actual cost limit exceeded"),
        "{}",
        answer.message()
    );
    let many: Vec<Value> = (0..12).map(|_| json!({"expression": dear})).collect();
    let policy = format!("{ADMISSION}/validatingadmissionpolicies/p");
    let change = json!({"spec": {"validations": many}});
    assert_eq!(write(&admin, "PATCH", &policy, &change).await.code, 200);
    until(&admin, CONFIGMAPS, &configmap("c", json!({})), |answer| {
        answer.message().ends_with(
            "denied request: validation failed due to running out of cost budget, no further validation rules will be run",
        )
    })
    .await;
}

/// Writes are answered as the policy or its absence says, and by nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_comes_and_goes_under_load() {
    let Cluster {
        admin,
        keeping: _keeping,
        ..
    } = cluster().await;
    let stop = CancellationToken::new();
    let writing = {
        let (admin, stop) = (admin.clone(), stop.clone());
        async move {
            let (mut allowed, mut refused) = (0, 0);
            while !stop.is_cancelled() {
                let path = format!("{CONFIGMAPS}?dryRun=All");
                let answer = write(&admin, "POST", &path, &configmap("c", json!({}))).await;
                match answer.code {
                    201 => allowed += 1,
                    422 => refused += 1,
                    code => panic!("{code}: {}", answer.message()),
                }
            }
            (allowed, refused)
        }
    };
    let changing = async {
        for _ in 0..5 {
            let spec = json!({"validations": [{"expression": "false"}]});
            validating(&admin, "configmaps", spec, json!({})).await;
            refused(&admin, CONFIGMAPS, &configmap("d", json!({}))).await;
            for plural in [
                "validatingadmissionpolicies/p",
                "validatingadmissionpolicybindings/b",
            ] {
                let path = format!("{ADMISSION}/{plural}");
                assert_eq!(write(&admin, "DELETE", &path, &json!({})).await.code, 200);
            }
            until(&admin, CONFIGMAPS, &configmap("d", json!({})), |answer| {
                answer.code == 201
            })
            .await;
        }
        stop.cancel();
    };
    let ((allowed, refused), ()) = tokio::join!(writing, changing);
    assert!(allowed > 0 && refused > 0, "{allowed} {refused}");
}
