//! Who is who and who may what, as the real kubectl shows it.

use std::{path::Path, process::Command};

use coracle_tests::{
    cluster::Cluster,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    process::succeed,
    wait,
};

/// One server for the whole story: no node is needed.
#[test]
fn kubectl_sees_who_may_what() {
    if !is_root_or_skip() {
        return;
    }
    let cluster = Cluster::server_and_nodes(0, &["--store", "memory"]);
    let kubectl = cluster.kubectl();
    administrators_may_everything(&kubectl);
    a_viewer_reads_pods_and_no_secrets(&cluster, &kubectl);
    impersonation_shows_what_others_may(&kubectl);
    grants_are_limited_to_what_is_held(&kubectl);
    roles_are_reconciled_and_aggregated(&kubectl);
    a_certificate_is_approved_and_issued(&cluster, &kubectl);
    the_issuer_publishes_its_keys(&kubectl);
}

fn administrators_may_everything(kubectl: &Kubectl) {
    assert_eq!(kubectl.ok("auth can-i create pods").trim(), "yes");
    assert_eq!(
        kubectl
            .ok_args(&["auth", "can-i", "*", "*", "--all-namespaces"])
            .trim(),
        "yes"
    );
    let who = kubectl.ok("auth whoami");
    assert!(
        who.contains("kubernetes-admin") && who.contains("system:masters"),
        "{who}"
    );
    let list = kubectl.ok("auth can-i --list");
    assert!(list.contains("*.*") && list.contains("[*]"), "{list}");
}

/// The administrator's kubeconfig, with another user in it.
fn as_user(cluster: &Cluster, name: &str, credentials: &[&str]) -> Kubectl {
    let admin = cluster.site.dir().join("server-data/admin.kubeconfig");
    let own = cluster.site.dir().join(format!("{name}.kubeconfig"));
    std::fs::copy(admin, &own).expect("copy the kubeconfig");
    let kubectl = Kubectl::new(&cluster.site, "server", own);
    let mut args = vec!["config", "set-credentials", name];
    args.extend(credentials);
    kubectl.ok_args(&args);
    kubectl.ok(&format!("config set-context --current --user={name}"));
    kubectl
}

fn a_viewer_reads_pods_and_no_secrets(cluster: &Cluster, kubectl: &Kubectl) {
    kubectl.ok("create serviceaccount robot");
    let token = kubectl.ok("create token robot --duration=20m");
    let robot = as_user(cluster, "robot", &[&format!("--token={}", token.trim())]);
    let refused = robot.run("get pods");
    assert_eq!(refused.code, 1);
    assert!(
        refused.stderr.contains(
            "Error from server (Forbidden): pods is forbidden: User \"system:serviceaccount:default:robot\" cannot list \
             resource \"pods\" in API group \"\" in the namespace \"default\""
        ),
        "{refused:?}"
    );
    kubectl.ok("create rolebinding robot-views --clusterrole=view --serviceaccount=default:robot");
    let pods = robot.run("get pods");
    assert_eq!((pods.code, pods.stdout.as_str()), (0, ""), "{pods:?}");
    let refused = robot.run("get secrets");
    assert!(
        refused.code != 0 && refused.stderr.contains("cannot list resource \"secrets\""),
        "{refused:?}"
    );
    let refused = robot.run("get pods -n kube-system");
    assert!(
        refused.code != 0 && refused.stderr.contains("in the namespace \"kube-system\""),
        "{refused:?}"
    );
    assert_eq!(robot.run("auth can-i get secrets").stdout.trim(), "no");
    assert_eq!(robot.ok("auth can-i get pods/log").trim(), "yes");
    let list = robot.ok("auth can-i --list");
    assert!(
        list.contains("configmaps") && !list.contains("secrets"),
        "{list}"
    );
    let who = robot.ok("auth whoami");
    assert!(
        who.contains("system:serviceaccounts:default") && who.contains("JTI="),
        "{who}"
    );
    kubectl.ok("delete serviceaccount robot");
    let gone = robot.run("get pods");
    assert!(
        gone.code != 0 && gone.stderr.contains("Unauthorized"),
        "{gone:?}"
    );
}

fn impersonation_shows_what_others_may(kubectl: &Kubectl) {
    assert_eq!(
        kubectl.run("auth can-i list pods --as=bob").stdout.trim(),
        "no"
    );
    kubectl.ok("create clusterrolebinding bobs --clusterrole=view --group=readers");
    assert_eq!(
        kubectl
            .ok("auth can-i list pods --as=bob --as-group=readers")
            .trim(),
        "yes"
    );
    kubectl.ok("get pods --as=bob --as-group=readers");
    let refused = kubectl.run("get nodes --as=bob");
    assert!(
        refused.stderr.contains(
            "nodes is forbidden: User \"bob\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"
        ),
        "{refused:?}"
    );
    let who = kubectl.ok("auth whoami --as=system:serviceaccount:default:x");
    assert!(who.contains("system:serviceaccounts:default"), "{who}");
}

fn grants_are_limited_to_what_is_held(kubectl: &Kubectl) {
    kubectl.ok("create rolebinding carol-administers --clusterrole=admin --user=carol");
    kubectl.ok("create role own --verb=get --resource=pods --as=carol");
    let refused = kubectl.run("create role more --verb=get --resource=nodes --as=carol");
    assert!(
        refused
            .stderr
            .contains("is attempting to grant RBAC permissions not currently held:")
            && refused
                .stderr
                .contains("{APIGroups:[\"\"], Resources:[\"nodes\"], Verbs:[\"get\"]}"),
        "{refused:?}"
    );
    let refused =
        kubectl.run("create rolebinding up --clusterrole=cluster-admin --user=carol --as=carol");
    assert!(
        refused.code != 0 && refused.stderr.contains("not currently held"),
        "{refused:?}"
    );
}

fn roles_are_reconciled_and_aggregated(kubectl: &Kubectl) {
    let manifest = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: widgets
  labels: {rbac.authorization.k8s.io/aggregate-to-view: \"true\"}
rules:
- {apiGroups: [example.org], resources: [widgets], verbs: [get]}
";
    let outcome = kubectl.apply_text(&["auth", "reconcile"], manifest);
    assert!(
        outcome.code == 0 && outcome.stdout.contains("widgets reconciled"),
        "{outcome:?}"
    );
    wait::until("view, edit and admin have the rule", PATIENCE, || {
        let missing: Vec<_> = ["view", "edit", "admin"]
            .into_iter()
            .filter(|role| {
                !kubectl.json(&format!("clusterrole {role}"))["rules"]
                    .to_string()
                    .contains("widgets")
            })
            .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(missing)
        }
    });
}

fn a_certificate_is_approved_and_issued(cluster: &Cluster, kubectl: &Kubectl) {
    let dir = cluster.site.subdir("dora");
    let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let (key, request, certificate) = (
        path("key.pem"),
        path("request.pem"),
        path("certificate.pem"),
    );
    let new = [
        "req",
        "-new",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-batch",
    ];
    succeed(Command::new("openssl").args(new).args([
        "-subj",
        "/O=readers/CN=dora",
        "-keyout",
        &key,
        "-out",
        &request,
    ]));
    let encoded = succeed(Command::new("base64").args(["-w0", &request]));
    let manifest = format!(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {{name: dora}}\nspec:\n  \
         request: {encoded}\n  signerName: kubernetes.io/kube-apiserver-client\n  usages: [client auth]\n"
    );
    let outcome = kubectl.apply_text(&["create"], &manifest);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(kubectl.ok("get csr dora").contains("Pending"));
    let refused = kubectl.run("certificate approve dora --as=bob");
    assert!(refused.code != 0, "{refused:?}");
    kubectl.ok("certificate approve dora");
    let encoded = wait::until("the certificate is issued", PATIENCE, || {
        let encoded = kubectl.ok("get csr dora -o jsonpath={.status.certificate}");
        if encoded.is_empty() {
            Err(kubectl.ok("get csr dora"))
        } else {
            Ok(encoded)
        }
    });
    assert!(kubectl.ok("get csr dora").contains("Approved,Issued"));
    decode(&dir, &encoded, &certificate);
    let certificate = format!("--client-certificate={certificate}");
    let dora = as_user(
        cluster,
        "dora",
        &[&certificate, &format!("--client-key={key}")],
    );
    let who = dora.ok("auth whoami");
    assert!(
        who.contains("dora") && who.contains("readers") && who.contains("X509SHA256="),
        "{who}"
    );
    dora.ok("get pods");
    kubectl.ok_args(&["delete", "csr", "dora"]);
    let outcome = kubectl.apply_text(&["create"], &manifest);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    kubectl.ok("certificate deny dora");
    assert!(kubectl.ok("get csr dora").contains("Denied"));
}

fn decode(dir: &Path, encoded: &str, to: &str) {
    let from = dir.join("encoded");
    std::fs::write(&from, encoded).expect("write the encoded certificate");
    let decoded = succeed(Command::new("base64").arg("-d").arg(&from));
    std::fs::write(to, decoded).expect("write the certificate");
}

fn the_issuer_publishes_its_keys(kubectl: &Kubectl) {
    let configuration = kubectl.ok("get --raw /.well-known/openid-configuration");
    assert!(
        configuration.contains("\"issuer\":\"https://kubernetes.default.svc.cluster.local\""),
        "{configuration}"
    );
    let keys = kubectl.ok("get --raw /openid/v1/jwks");
    assert!(keys.contains("\"kty\":\"EC\""), "{keys}");
}
