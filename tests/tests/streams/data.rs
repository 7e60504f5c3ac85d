//! Data through the cluster: port-forward, cp, proxies.

use std::time::{Duration, Instant};

use coracle_tests::{
    cluster::Cluster,
    kubectl::{Kubectl, PATIENCE},
    process::{self, Process},
    wait,
};

use super::{BIG, md5};

pub(crate) fn port_forward_brings_the_page(cluster: &Cluster, kubectl: &Kubectl, index: usize) {
    for (kind, target) in [
        (
            "pod",
            format!("pod/{}", kubectl.names("pods -l app=nginx")[0]),
        ),
        ("svc", "svc/nginx".into()),
    ] {
        let log = cluster
            .site
            .dir()
            .join(format!("forward-{index}-{kind}.log"));
        // A Service forwards only ports that it has.
        let wanted: &[&str] = if kind == "pod" {
            &[":80", ":81"]
        } else {
            &[":80"]
        };
        let forward = Process::start(
            kubectl.command(&[&["port-forward", &target], wanted].concat()),
            &log,
        );
        let ports = wait::until("kubectl listens", PATIENCE, || {
            let said = forward.output();
            let ports: Vec<String> = said.lines().filter_map(local_port).collect();
            if ports.len() == wanted.len() {
                Ok(ports)
            } else {
                Err(said)
            }
        });
        let url = format!("http://127.0.0.1:{}/", ports[0]);
        for _ in 0..5 {
            let page = cluster.site.fetch("n1", &url).expect("the page");
            assert!(page.contains("Welcome to nginx!"), "{page}");
        }
        // Many at once, each on a pair of streams of its own.
        let mut load = cluster.site.command("n1", "hey");
        load.args([
            "-n",
            "200",
            "-c",
            "10",
            "-t",
            "20",
            "-disable-keepalive",
            &url,
        ]);
        let report = process::succeed(&mut load);
        assert!(report.contains("[200]\t200 responses"), "{report}");
        // Nothing listens there: this connection fails, and kubectl says why.
        if kind == "pod" {
            assert!(
                cluster
                    .site
                    .fetch("n1", &format!("http://127.0.0.1:{}/", ports[1]))
                    .is_err()
            );
            wait::until("kubectl tells the failure", PATIENCE, || {
                let said = forward.output();
                if said.to_lowercase().contains("connection refused") {
                    Ok(())
                } else {
                    Err(said)
                }
            });
        }
    }
}

pub(crate) fn copies_come_back_intact(cluster: &Cluster, kubectl: &Kubectl, size: usize) {
    let (sent, got) = (
        cluster.site.dir().join("sent"),
        cluster.site.dir().join("got"),
    );
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = vec![0; size];
    for piece in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        piece.copy_from_slice(&state.to_le_bytes()[..piece.len()]);
    }
    std::fs::write(&sent, &bytes).expect("write");
    let _nothing_yet = std::fs::remove_file(&got);
    let started = Instant::now();
    kubectl.ok(&format!("cp {} box:/tmp/big", sent.display()));
    let up = started.elapsed();
    let inside = kubectl.ok("exec box -- md5sum /tmp/big");
    assert_eq!(
        inside.split_whitespace().next(),
        Some(md5(&sent).as_str()),
        "{inside}"
    );
    let started = Instant::now();
    kubectl.ok(&format!("cp box:/tmp/big {}", got.display()));
    let down = started.elapsed();
    assert_eq!(md5(&got), md5(&sent));
    let rate = |time: Duration| (size as f64) / 1048576.0 / time.as_secs_f64();
    if size >= BIG {
        eprintln!(
            "kubectl cp of {} MiB: in {up:?} ({:.0} MiB/s), out {down:?} ({:.0} MiB/s)",
            size >> 20,
            rate(up),
            rate(down)
        );
    }
    kubectl.ok("exec box -- rm /tmp/big");
}

pub(crate) fn proxies_reach_services_pods_and_nodes(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let pod = &kubectl.names("pods -l app=nginx")[0];
    for path in [
        "services/nginx:80/proxy/".to_owned(),
        "services/nginx/proxy/".to_owned(),
        "services/http:nginx:80/proxy/index.html".to_owned(),
        format!("pods/{pod}/proxy/"),
        format!("pods/{pod}:80/proxy/?a=b"),
        // The answer is a redirect to the same with a slash.
        "services/nginx:80/proxy".to_owned(),
    ] {
        let page = kubectl.ok(&format!("get --raw /api/v1/namespaces/default/{path}"));
        assert!(page.contains("Welcome to nginx!"), "{path}: {page}");
    }
    let host = kubectl.ok(&format!(
        "get --raw /api/v1/namespaces/default/pods/{pod}/proxy/hostname"
    ));
    assert_eq!(host.trim(), pod);
    for (path, why) in [
        ("services/nginx:82/proxy/", "no service port available"),
        ("services/nobody/proxy/", "not found"),
        (
            "services/nginx:80/proxy/nothing-here",
            "the server could not find the requested resource",
        ),
    ] {
        let outcome = kubectl.run(&format!("get --raw /api/v1/namespaces/default/{path}"));
        assert!(
            outcome.code != 0 && outcome.stderr.contains(why),
            "{path}: {outcome:?}"
        );
    }
    assert_eq!(kubectl.ok("get --raw /api/v1/nodes/n1/proxy/healthz"), "ok");
    let pods = kubectl.ok("get --raw /api/v1/nodes/n1/proxy/pods");
    assert!(pods.contains("\"PodList\""), "{pods}");
}

/// `Forwarding from 127.0.0.1:40000 -> 80`.
fn local_port(line: &str) -> Option<String> {
    let rest = line.strip_prefix("Forwarding from 127.0.0.1:")?;
    Some(rest.split(' ').next()?.to_owned())
}
