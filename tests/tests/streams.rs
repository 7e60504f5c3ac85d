//! Streams and figures as the real kubectl sees them, old and new: exec, attach, port-forward, cp,
//! proxies.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use coracle_tests::{
    cluster::Cluster,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    process::{self, Process},
    wait, workspace,
};

/// What `kubectl cp` carries.
const BIG: usize = 100 << 20;

/// There is no registry.
const PULL: &str = "--image-pull-policy=IfNotPresent";

/// One cluster for the whole story: starting one takes longer than any single step.
#[test]
fn kubectl_streams_in_every_form() {
    if !is_root_or_skip() {
        return;
    }
    let cluster = Cluster::up(&[]);
    let kubectl = cluster.kubectl();
    kubectl.ok(&format!(
        "apply -f {}",
        workspace().join("examples/nginx.yaml").display()
    ));
    kubectl.ok(
        "run box --image=busybox --image-pull-policy=IfNotPresent --restart=Never -- sleep 3600",
    );
    // Ends its loop, and so its pod, with its input: for attach.
    for (index, _) in clients(&kubectl).iter().enumerate() {
        let script = "while read line; do echo got $line; echo err $line >&2; done; exit 3";
        let pod = format!("echo-{index}");
        let run = [
            "run",
            &pod,
            "--image=busybox",
            PULL,
            "--restart=Never",
            "--stdin",
            "--attach=false",
        ];
        kubectl.ok_args(&[&run[..], &["--", "sh", "-c", script]].concat());
        if index == 0 {
            let run = [
                "run",
                "echo-open",
                "--image=busybox",
                PULL,
                "--restart=Never",
                "--stdin",
                "--leave-stdin-open",
            ];
            kubectl.ok_args(&[&run[..], &["--attach=false", "--", "sh", "-c", script]].concat());
        }
    }
    kubectl.rolled_out("nginx");
    kubectl.pod_ready("box");
    for (index, (version, client)) in clients(&kubectl).iter().enumerate() {
        let started = Instant::now();
        exec_keeps_streams_apart_and_tells_the_exit_code(client);
        exec_takes_binary_input(&cluster, client);
        exec_with_a_terminal_has_its_size(client);
        run_waits_for_the_end_of_its_command(client, index);
        kubectl.pod_ready(&format!("echo-{index}"));
        attach_joins_the_main_process(client, &format!("echo-{index}"));
        port_forward_brings_the_page(&cluster, client, index);
        copies_come_back_intact(&cluster, client, 1 << 20);
        eprintln!("kubectl {version}: all streams in {:?}", started.elapsed());
    }
    attach_joins_the_main_process(&kubectl, "echo-open");
    copies_come_back_intact(&cluster, &kubectl, BIG);
    proxies_reach_services_pods_and_nodes(&cluster);
    top_shows_nodes_pods_and_containers(&kubectl);
    metrics_are_prometheus_text(&kubectl);
}

/// kubectl 1.37 and older ones.
fn clients(newest: &Kubectl) -> Vec<(&'static str, Kubectl)> {
    let older = ["1.35", "1.29"].map(|version| (version, newest.version(version)));
    [("1.37", newest.clone())]
        .into_iter()
        .chain(older)
        .collect()
}

/// Runs with input.
fn feed(mut command: Command, input: &[u8]) -> Output {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("start");
    let mut stdin = child.stdin.take().expect("piped");
    std::thread::scope(|scope| {
        // May end early with a command that reads no further.
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output().expect("wait")
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn exec_keeps_streams_apart_and_tells_the_exit_code(kubectl: &Kubectl) {
    let output = process::run(&mut kubectl.command(&[
        "exec",
        "box",
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; exit 7",
    ]));
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(text(&output.stdout), "out\n");
    assert!(text(&output.stderr).starts_with("err\n"), "{output:?}");
    assert!(text(&output.stderr).contains("exit code 7"), "{output:?}");
    let missing = kubectl.run("exec box -- no-such-command");
    assert_ne!(missing.code, 0, "{missing:?}");
    let nobody = kubectl.run("exec nobody -- true");
    assert!(
        nobody.stderr.contains("pods \"nobody\" not found"),
        "{nobody:?}"
    );
}

fn exec_takes_binary_input(cluster: &Cluster, kubectl: &Kubectl) {
    let bytes: Vec<u8> = (0..3_000_000_u32)
        .map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[1])
        .collect();
    let path = cluster.site.dir().join("input");
    std::fs::write(&path, &bytes).expect("write");
    let output = feed(
        kubectl.command(&["exec", "-i", "box", "--", "md5sum"]),
        &bytes,
    );
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        text(&output.stdout).split_whitespace().next(),
        Some(md5(&path).as_str())
    );
    let output = feed(kubectl.command(&["exec", "-i", "box", "--", "cat"]), &bytes);
    assert!(
        output.stdout == bytes,
        "{} bytes came back",
        output.stdout.len()
    );
}

/// A terminal comes from `script`: kubectl asks for one only if it has one.
fn exec_with_a_terminal_has_its_size(kubectl: &Kubectl) {
    // The size follows the start.
    let inside = "until stty size 2>/dev/null | grep 97; do usleep 20000; done; tty; read line; echo got $line; exit 5";
    let command = kubectl.command(&[
        "exec",
        "-it",
        "box",
        "--",
        "sh",
        "-c",
        &format!("'{inside}'"),
    ]);
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let line = format!("stty rows 31 cols 97; {}", words.join(" "));
    let mut script = Command::new("script");
    script.args(["-qefc", &line, "/dev/null"]);
    let output = feed(script, b"hello\n");
    let said = text(&output.stdout);
    assert!(said.contains("31 97"), "{said}");
    assert!(
        said.contains("/dev/pts/") || said.contains("/dev/console"),
        "{said}"
    );
    assert!(said.contains("got hello"), "{said}");
    assert_eq!(output.status.code(), Some(5), "{said}");
}

fn run_waits_for_the_end_of_its_command(kubectl: &Kubectl, index: usize) {
    let pod = format!("once-{index}");
    let script = "read line; echo you said $line; exit 4";
    let run = [
        "run",
        &pod,
        "--image=busybox",
        PULL,
        "--restart=Never",
        "-i",
        "--rm",
        "--",
        "sh",
        "-c",
        script,
    ];
    let command = kubectl.command(&run);
    let output = feed(command, b"hello\n");
    assert!(
        text(&output.stdout).contains("you said hello"),
        "{output:?}"
    );
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(
        kubectl
            .run(&format!("get pod {pod}"))
            .stderr
            .contains("not found")
    );
}

/// The same command, ended after some seconds.
fn limited(command: &Command) -> Command {
    let mut limited = Command::new("timeout");
    limited
        .arg("3")
        .arg(command.get_program())
        .args(command.get_args());
    limited
}

fn attach_joins_the_main_process(kubectl: &Kubectl, pod: &str) {
    let attach = || {
        let command = kubectl.command(&["attach", "-i", pod]);
        // Without `stdinOnce` the process goes on after its input's end, and who is attached stays
        // so.
        if pod == "echo-open" {
            limited(&command)
        } else {
            command
        }
    };
    let output = feed(attach(), b"one\ntwo\n");
    assert!(
        text(&output.stdout).contains("got one\ngot two\n"),
        "{output:?}"
    );
    assert!(text(&output.stderr).contains("err two"), "{output:?}");
    let logs = wait::until("the end is logged", PATIENCE, || {
        let logs = kubectl.ok(&format!("logs {pod}"));
        if logs.contains("got two") {
            Ok(logs)
        } else {
            Err(logs)
        }
    });
    assert!(logs.contains("got one"), "{logs}");
    if pod == "echo-open" {
        // It takes the next one who attaches.
        assert_eq!(
            kubectl.ok(&format!("get pod {pod} -o jsonpath={{.status.phase}}")),
            "Running"
        );
        let output = feed(attach(), b"three\n");
        assert!(text(&output.stdout).contains("got three"), "{output:?}");
        return;
    }
    let code = wait::until("the process ends with its input", PATIENCE, || {
        let path = "{.status.containerStatuses[0].state.terminated.exitCode}";
        let code = kubectl.ok(&format!("get pod {pod} -o jsonpath={path}"));
        if code.is_empty() {
            Err("running")
        } else {
            Ok(code)
        }
    });
    assert_eq!(code, "3");
}

fn port_forward_brings_the_page(cluster: &Cluster, kubectl: &Kubectl, index: usize) {
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

/// `Forwarding from 127.0.0.1:40000 -> 80`.
fn local_port(line: &str) -> Option<String> {
    let rest = line.strip_prefix("Forwarding from 127.0.0.1:")?;
    Some(rest.split(' ').next()?.to_owned())
}

fn md5(path: &Path) -> String {
    let said = process::succeed(Command::new("md5sum").arg(path));
    said.split_whitespace().next().expect("a sum").to_owned()
}

fn copies_come_back_intact(cluster: &Cluster, kubectl: &Kubectl, size: usize) {
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

fn proxies_reach_services_pods_and_nodes(cluster: &Cluster) {
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

fn top_shows_nodes_pods_and_containers(kubectl: &Kubectl) {
    let nodes = kubectl.ok("top nodes --no-headers");
    let row: Vec<&str> = nodes.split_whitespace().collect();
    assert!(
        row.len() == 5 && row[0] == "n1" && row[1].ends_with('m') && row[3].ends_with("Mi"),
        "{nodes}"
    );
    assert!(row[2].ends_with('%') && row[4].ends_with('%'), "{nodes}");
    // Busy for the looks of the agent.
    let mut busy = kubectl.command(&[
        "exec",
        "box",
        "--",
        "timeout",
        "30",
        "sh",
        "-c",
        "while true; do :; done",
    ]);
    let mut busy = busy
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("start");
    wait::until("the busy pod is seen as busy", PATIENCE, || {
        let pods = kubectl.ok("top pods --no-headers");
        let row = pods
            .lines()
            .find(|line| line.starts_with("box "))
            .map(str::to_owned);
        let cpu = row.and_then(|row| {
            row.split_whitespace()
                .nth(1)?
                .strip_suffix('m')?
                .parse::<u32>()
                .ok()
        });
        if cpu.is_some_and(|cpu| cpu > 100) {
            Ok(())
        } else {
            Err(pods)
        }
    });
    let _ended_already = busy.kill();
    let _status = busy.wait();
    let selected = kubectl.ok("top pods -l app=nginx --no-headers");
    assert_eq!(selected.lines().count(), 3, "{selected}");
    let containers = kubectl.ok("top pods --containers -l app=nginx --no-headers");
    assert!(
        containers
            .lines()
            .all(|line| line.split_whitespace().nth(1) == Some("nginx")),
        "{containers}"
    );
    let one = kubectl.ok("top pod box --no-headers");
    assert!(one.starts_with("box "), "{one}");
}

fn metrics_are_prometheus_text(kubectl: &Kubectl) {
    let has = |path: &str, wanted: &[&str]| {
        let text = kubectl.ok(&format!("get --raw {path}"));
        for name in wanted {
            assert!(
                text.lines().any(|line| line.starts_with(name)),
                "{path}: no {name}\n{text}"
            );
        }
    };
    has(
        "/metrics",
        &[
            "apiserver_request_total{code=\"200\"",
            "apiserver_request_duration_seconds_bucket{",
            "apiserver_current_inflight_requests{",
            "apiserver_longrunning_requests{",
            "apiserver_registered_watchers{",
            "apiserver_storage_objects{resource=\"pods\"}",
            "etcd_request_duration_seconds_count{operation=\"txn\"}",
            "process_resident_memory_bytes ",
        ],
    );
    has(
        "/api/v1/nodes/n1/proxy/metrics",
        &[
            "kubelet_running_pods ",
            "kubelet_running_containers{container_state=\"running\"}",
            "process_cpu_seconds_total ",
        ],
    );
    has(
        "/api/v1/nodes/n1/proxy/metrics/resource",
        &[
            "container_cpu_usage_seconds_total{container=\"nginx\",namespace=\"default\",pod=\"nginx-",
            "container_memory_working_set_bytes{",
            "node_cpu_usage_seconds_total ",
            "pod_memory_working_set_bytes{namespace=\"default\",pod=\"box\"}",
        ],
    );
}
