//! The API server's proxies to a pod and to a Service, with a server in the pod that answers every
//! method, by HTTP and by TLS.

use std::process::Command;

use coracle_tests::{
    cluster::Cluster,
    kubectl::{Kubectl, PATIENCE},
    process, wait,
};

/// What a server says on a port: a page with a link, a word, or the method that it was asked by.
const PORTS: [(u16, bool, &str); 7] = [
    (80, false, r#"<a href="/rewriteme">test</a>"#),
    (160, false, "foo"),
    (162, false, "bar"),
    (8080, false, r#"{"Method":"$request_method","Body":"foo"}"#),
    (443, true, r#"<a href="/tlsrewriteme">test</a>"#),
    (460, true, "tls baz"),
    (462, true, "tls qux"),
];

pub(crate) fn lead_to_pods_and_services(cluster: &Cluster, kubectl: &Kubectl) {
    start(cluster, kubectl);
    let token = kubectl.ok("create token admin").trim().to_owned();
    let ask = |method: &str, path: &str| ask(cluster, &token, method, path);
    let says = |path: &str, wanted: &str| {
        wait::until(&format!("{wanted} at {path}"), PATIENCE, || {
            match ask("GET", path) {
                (200, said) if said == wanted => Ok(()),
                other => Err(other),
            }
        });
    };
    let at = |kind: &str, name: &str| format!("/api/v1/namespaces/default/{kind}/{name}/proxy");
    for (name, wanted) in [
        ("web:portname1", "foo"),
        ("http:web:portname1", "foo"),
        ("web:portname2", "bar"),
        ("http:web:portname2", "bar"),
        ("https:web:tlsportname1", "tls baz"),
        ("https:web:tlsportname2", "tls qux"),
    ] {
        says(&format!("{}/", at("services", name)), wanted);
    }
    for (name, wanted) in [
        ("web:160", "foo"),
        ("http:web:160", "foo"),
        ("web:162", "bar"),
        ("https:web:460", "tls baz"),
        ("https:web:462", "tls qux"),
    ] {
        says(&format!("{}/", at("pods", name)), wanted);
    }
    for (name, page) in [
        ("web", "rewriteme"),
        ("web:80", "rewriteme"),
        ("http:web:80", "rewriteme"),
        ("https:web:443", "tlsrewriteme"),
    ] {
        let below = at("pods", name);
        says(
            &format!("{below}/"),
            &format!(r#"<a href="{below}/{page}">test</a>"#),
        );
    }
    every_method_arrives(&ask, &at);
}

/// With a path below, and without one.
fn every_method_arrives(
    ask: &dyn Fn(&str, &str) -> (u16, String),
    at: &dyn Fn(&str, &str) -> String,
) {
    for (kind, name) in [("pods", "web:8080"), ("services", "web:methods")] {
        for method in ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"] {
            let path = format!("{}/some/path/with/{method}", at(kind, name));
            let body = match method {
                "HEAD" => String::new(),
                _ => format!(r#"{{"Method":"{method}","Body":"foo"}}"#),
            };
            assert_eq!(ask(method, &path), (200, body.clone()), "{path}");
            let path = format!("{}?method={method}", at(kind, name));
            match method {
                // A page's own links would lead elsewhere: they are sent below it.
                "GET" | "HEAD" => assert_eq!(ask(method, &path).0, 301, "{path}"),
                _ => assert_eq!(ask(method, &path), (200, body), "{path}"),
            }
        }
    }
}

/// As a client does that has no kubeconfig.
fn ask(cluster: &Cluster, token: &str, method: &str, path: &str) -> (u16, String) {
    let mut curl = cluster.site.command("n1", "curl");
    curl.args([
        "--noproxy",
        "*",
        "-sSk",
        "--max-time",
        "20",
        "-w",
        "\n%{http_code}",
    ]);
    curl.args(["-H", &format!("Authorization: Bearer {token}")]);
    match method {
        "HEAD" => curl.args(["--head", "-o", "/dev/null"]),
        _ => curl.args(["-X", method]),
    };
    let output = process::run(curl.arg(format!("https://198.18.0.1:6443{path}")));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, code) = said.rsplit_once('\n').unwrap_or_default();
    (code.parse().unwrap_or_default(), body.to_owned())
}

fn start(cluster: &Cluster, kubectl: &Kubectl) {
    let dir = cluster.site.subdir("web");
    let (key, certificate) = (dir.join("key.pem"), dir.join("cert.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=web", "-keyout",
    ]);
    openssl.arg(&key).arg("-out").arg(&certificate);
    process::succeed(&mut openssl);
    let server = |(port, is_tls, says): &(u16, bool, &str)| {
        let ssl = if *is_tls { " ssl" } else { "" };
        format!(
            "server {{ listen {port}{ssl}; ssl_certificate /etc/web/cert.pem; ssl_certificate_key /etc/web/key.pem; \
             default_type text/html; location / {{ return 200 '{says}'; }} }}\n"
        )
    };
    let servers: String = PORTS.iter().map(server).collect();
    let config = format!(
        "daemon off; error_log stderr; pid /tmp/nginx.pid; events {{}}\nhttp {{ access_log off;\n{servers}}}\n"
    );
    std::fs::write(dir.join("nginx.conf"), config).expect("write the configuration");
    let from = format!("--from-file={}", dir.display());
    kubectl.ok_args(&["create", "configmap", "web", &from]);
    kubectl.ok("create serviceaccount admin");
    kubectl.ok("create clusterrolebinding admin --clusterrole=cluster-admin --serviceaccount=default:admin");
    kubectl.apply(WEB);
    kubectl.pod_ready("web");
}

const WEB: &str = r#"---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: web, configMap: {name: web}}]
  containers:
  - name: c
    image: nginx
    imagePullPolicy: IfNotPresent
    command: [nginx, -c, /etc/web/nginx.conf]
    ports: [{containerPort: 80}, {name: dest1, containerPort: 160}, {name: tlsdest1, containerPort: 460}]
    volumeMounts: [{name: web, mountPath: /etc/web}]
    readinessProbe: {httpGet: {port: 80}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports:
  - {name: portname1, port: 80, targetPort: dest1}
  - {name: portname2, port: 81, targetPort: 162}
  - {name: tlsportname1, port: 443, targetPort: tlsdest1}
  - {name: tlsportname2, port: 444, targetPort: 462}
  - {name: methods, port: 8080, targetPort: 8080}
"#;
