//! What upstream's conformance asks of the API server's own Service, of endpoints, mirrors, the
//! proxies and published ports, retold on a real node with real pods. `docs/conformance.md` says
//! which test each step retells.

#[path = "network_conformance/proxies.rs"]
mod proxies;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use coracle_tests::{
    cluster::Cluster,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    process, wait,
};
use serde_json::{Value, json};

const NODE: &str = "198.18.0.1";
/// Upstream's for a mirror to follow.
const MIRRORED: Duration = Duration::from_secs(12);
/// What it asks of the slowest of two hundred Services.
const SLOWEST: Duration = Duration::from_secs(50);

/// One cluster for all of it: starting one takes longer than any step.
#[test]
fn the_network_is_what_conformance_asks_for() {
    if !is_root_or_skip() {
        return;
    }
    let cluster = Cluster::up(&[]);
    let kubectl = cluster.kubectl();
    the_api_server_is_an_endpoint(&cluster, &kubectl);
    pods_become_endpoints_by_number_and_name_of_their_port(&kubectl);
    what_matches_no_pod_has_empty_endpoints_that_go_with_it(&kubectl);
    endpoints_of_somebody_are_mirrored(&kubectl);
    pods_share_a_port_of_the_node(&cluster, &kubectl);
    proxies::lead_to_pods_and_services(&cluster, &kubectl);
    many_services_soon_have_their_endpoints(&kubectl);
}

fn within(kubectl: &Kubectl, pod: &str, script: &str) -> String {
    let exec = ["exec", pod, "--", "sh", "-c", script];
    let output = process::run(&mut kubectl.command(&exec));
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// A pod of a container that runs a script.
fn pod(name: &str, labels: &str, ports: &str, script: &str) -> String {
    format!(
        r#"---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{{labels}}}}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "{script}"]
    ports: [{ports}]
"#
    )
}

fn service(name: &str, selector: &str, port: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n\
         spec: {{publishNotReadyAddresses: true, selector: {{{selector}}}, ports: [{{{port}}}]}}\n"
    )
}

/// Address and port of each endpoint, as `Endpoints` have it.
fn endpoints(kubectl: &Kubectl, of: &str) -> BTreeSet<(String, String, u64)> {
    let object = kubectl.json(&format!("endpoints {of}"));
    let subsets = object["subsets"].as_array().cloned().unwrap_or_default();
    let each = |subset: Value| places(&subset["addresses"], "ip", &subset["ports"]);
    subsets.into_iter().flat_map(each).collect()
}

/// The same of its slices, with the slices.
fn slices(kubectl: &Kubectl, of: &str) -> (Vec<Value>, BTreeSet<(String, String, u64)>) {
    let selected = format!("endpointslices -l kubernetes.io/service-name={of}");
    let list = kubectl.json(&selected);
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let each = |slice: &Value| {
        let endpoints = slice["endpoints"].as_array().cloned().unwrap_or_default();
        let addresses = endpoints
            .iter()
            .map(|one| json!({"ip": one["addresses"][0]}));
        places(&addresses.collect(), "ip", &slice["ports"])
    };
    let all = items.iter().flat_map(each).collect();
    (items, all)
}

fn places(addresses: &Value, field: &str, ports: &Value) -> Vec<(String, String, u64)> {
    let list = |of: &Value| of.as_array().cloned().unwrap_or_default();
    let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    let mut all = Vec::new();
    for address in list(addresses) {
        for port in list(ports) {
            let number = port["port"].as_u64().unwrap_or_default();
            all.push((text(&address[field]), text(&port["name"]), number));
        }
    }
    all
}

/// Waits until both have these, the slices as so many objects.
fn has(kubectl: &Kubectl, of: &str, wanted: &[(&str, &str, u64)], objects: usize) -> Vec<Value> {
    let wanted = wanted
        .iter()
        .map(|(ip, name, port)| ((*ip).to_owned(), (*name).to_owned(), *port));
    let wanted: BTreeSet<_> = wanted.collect();
    wait::until(&format!("{wanted:?} of {of}"), PATIENCE, || {
        let (items, sliced) = slices(kubectl, of);
        let legacy = endpoints(kubectl, of);
        match legacy == wanted && sliced == wanted && items.len() == objects {
            true => Ok(items),
            false => Err((legacy, sliced, items.len())),
        }
    })
}

fn the_api_server_is_an_endpoint(cluster: &Cluster, kubectl: &Kubectl) {
    let server = [(NODE, "https", 6443)];
    has(kubectl, "kubernetes", &server, 1);
    kubectl.apply(&pod("client", "app: client", "", "exec sleep 3600"));
    kubectl.pod_ready("client");
    // As a pod's environment names it, with the authority and the token that each has.
    let environment = within(
        kubectl,
        "client",
        "echo $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT",
    );
    assert_eq!(environment.trim(), "10.96.0.1:443");
    let secrets = "/var/run/secrets/kubernetes.io/serviceaccount";
    let authority = within(kubectl, "client", &format!("cat {secrets}/ca.crt"));
    let file = cluster.site.dir().join("ca.crt");
    std::fs::write(&file, authority).expect("write the authority");
    let mut curl = cluster.site.command("n1", "curl");
    curl.args(["--noproxy", "*", "-fsS", "--max-time", "10", "--cacert"]);
    curl.arg(&file).arg("https://10.96.0.1/version");
    assert!(process::succeed(&mut curl).contains("gitVersion"));
    let reach = "timeout 5 sh -c 'echo | nc kubernetes.default.svc 443 >/dev/null && echo reached'";
    let reached = within(kubectl, "client", reach);
    assert_eq!(reached.trim(), "reached");
}

fn pods_become_endpoints_by_number_and_name_of_their_port(kubectl: &Kubectl) {
    let first = "{name: example-name, containerPort: 3000}";
    let second =
        "{name: example-name, containerPort: 3001}, {name: other-port, containerPort: 3002}";
    for (name, ports) in [("pod1", first), ("pod2", second)] {
        let labels = format!("{name}: 'on', shared12: 'on'");
        kubectl.apply(&pod(name, &labels, ports, "exec sleep 3600"));
    }
    kubectl.apply(&service(
        "by-number",
        "pod1: 'on'",
        "name: example, port: 80, targetPort: 3000",
    ));
    kubectl.apply(&service(
        "by-name",
        "shared12: 'on'",
        "name: http, port: 80, targetPort: example-name",
    ));
    let address = |pod: &str| kubectl.ok(&format!("get pod {pod} -o jsonpath={{.status.podIP}}"));
    for name in ["pod1", "pod2"] {
        kubectl.pod_ready(name);
    }
    let [one, two] = ["pod1", "pod2"].map(address);
    has(kubectl, "by-number", &[(&one, "example", 3000)], 1);
    let both = [(&*one, "http", 3000), (&*two, "http", 3001)];
    let found = has(kubectl, "by-name", &both, 2);
    for slice in &found {
        let endpoint = &slice["endpoints"][0];
        let target = &endpoint["targetRef"];
        assert_eq!(target["kind"], "Pod", "{slice}");
        let uid = format!(
            "get pod {} -o jsonpath={{.metadata.uid}}",
            target["name"].as_str().unwrap_or_default()
        );
        assert_eq!(target["uid"], kubectl.ok(&uid).trim(), "{slice}");
        assert_eq!(endpoint["conditions"]["ready"], true, "{slice}");
        assert_eq!(endpoint["nodeName"], "n1", "{slice}");
        let managed = &slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"];
        assert_eq!(managed, "endpointslice-controller.k8s.io");
        assert_eq!(slice["metadata"]["ownerReferences"][0]["name"], "by-name");
    }
    kubectl.ok("delete endpointslices -l kubernetes.io/service-name=by-name");
    has(kubectl, "by-name", &both, 2);
}

fn what_matches_no_pod_has_empty_endpoints_that_go_with_it(kubectl: &Kubectl) {
    kubectl.apply(&service("nobody", "is: nowhere", "name: example, port: 80"));
    let empty = has(kubectl, "nobody", &[], 1);
    let managed = &empty[0]["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"];
    assert_eq!(managed, "endpointslice-controller.k8s.io");
    kubectl.ok("delete service nobody");
    kubectl.count_is("endpoints --field-selector metadata.name=nobody", 0);
    kubectl.count_is("endpointslices -l kubernetes.io/service-name=nobody", 0);
}

fn endpoints_of_somebody_are_mirrored(kubectl: &Kubectl) {
    kubectl.apply(
        "---\napiVersion: v1\nkind: Service\nmetadata: {name: custom}\nspec: {ports: [{name: example, port: 80}]}\n",
    );
    let custom = |address: &str| {
        format!(
            "---\napiVersion: v1\nkind: Endpoints\nmetadata: {{name: custom}}\n\
             subsets: [{{addresses: [{{ip: {address}}}], ports: [{{port: 80}}]}}]\n"
        )
    };
    let mirrored = |wanted: &[(&str, &str, u64)]| {
        let wanted = wanted
            .iter()
            .map(|(ip, name, port)| ((*ip).to_owned(), (*name).to_owned(), *port));
        let wanted: BTreeSet<_> = wanted.collect();
        wait::until(&format!("a mirror of {wanted:?}"), MIRRORED, || {
            let (items, sliced) = slices(kubectl, "custom");
            match sliced == wanted && items.len() == wanted.len() {
                true => Ok(()),
                false => Err(sliced),
            }
        });
    };
    for address in ["10.1.2.3", "10.2.3.4"] {
        kubectl.apply(&custom(address));
        mirrored(&[(address, "", 80)]);
    }
    kubectl.ok("delete endpoints custom");
    mirrored(&[]);
}

/// One number: at 127.0.0.1, at the node's address, and there by another protocol. Where that one
/// leads is shown with pods that are namespaces: no image of these has a server for UDP.
fn pods_share_a_port_of_the_node(cluster: &Cluster, kubectl: &Kubectl) {
    let serve = "mkdir /tmp/w; hostname > /tmp/w/hostname; exec httpd -f -p 8080 -h /tmp/w";
    for (name, address, protocol) in [
        ("host1", "127.0.0.1", "TCP"),
        ("host2", NODE, "TCP"),
        ("host3", NODE, "UDP"),
    ] {
        let port = format!(
            "{{hostPort: 54323, hostIP: {address}, containerPort: 8080, protocol: {protocol}}}"
        );
        kubectl.apply(&pod(name, "app: host", &port, serve));
    }
    for name in ["host1", "host2", "host3"] {
        kubectl.pod_ready(name);
    }
    for (from, to, name) in [(NODE, "127.0.0.1", "host1"), (NODE, NODE, "host2")] {
        wait::until(&format!("{name} at {to}"), PATIENCE, || {
            let mut curl = cluster.site.command("n1", "curl");
            curl.args([
                "--noproxy",
                "*",
                "-fsS",
                "--max-time",
                "5",
                "--interface",
                from,
            ]);
            let output = process::run(curl.arg(format!("http://{to}:54323/hostname")));
            let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            if said == name {
                Ok(())
            } else {
                Err((said, output))
            }
        });
    }
}

fn many_services_soon_have_their_endpoints(kubectl: &Kubectl) {
    const COUNT: usize = 200;
    let each = |number| service(&format!("late-{number}"), "pod1: 'on'", "port: 80");
    let manifest: String = (0..COUNT).map(each).collect();
    let begun = Instant::now();
    kubectl.apply(&manifest);
    wait::until("endpoints of all", SLOWEST, || {
        let list = kubectl.json("endpoints");
        let all = list["items"].as_array().cloned().unwrap_or_default();
        let is_late = |one: &&Value| {
            one["metadata"]["name"]
                .as_str()
                .is_some_and(|name| name.starts_with("late-"))
        };
        let late = all.iter().filter(is_late);
        let filled = late
            .filter(|one| one["subsets"][0]["addresses"][0]["ip"].is_string())
            .count();
        if filled == COUNT { Ok(()) } else { Err(filled) }
    });
    eprintln!(
        "{COUNT} Services have their endpoints after {:?}",
        begun.elapsed()
    );
}
