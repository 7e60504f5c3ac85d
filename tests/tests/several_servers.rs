//! Two servers on one etcd, each on a host of its own; the second has joined by token.

use std::{path::PathBuf, process::Command, time::Duration};

use coracle_tests::{
    binary, image_archive, is_root_or_skip,
    kubectl::Kubectl,
    process::{Process, run, succeed},
    residue,
    site::Site,
    tool, wait,
};

/// How long a debug build may take for anything on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// A name that no machine has.
const STABLE: &str = "api.coracle.test";

/// The hosts, and what runs on them.
struct Servers {
    first: Option<Process>,
    second: Option<Process>,
    agent: Option<Process>,
    _etcd: Process,
    site: Site,
}

impl Servers {
    fn new() -> Self {
        let mut site = Site::new();
        for (host, last) in [("etcd", 9), ("s1", 1), ("s2", 2), ("n1", 11)] {
            site.add_host(host, last);
        }
        let mut etcd = site.command("etcd", tool("etcd"));
        let (url, peer) = ("http://198.18.0.9:2379", "http://127.0.0.1:2380");
        etcd.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH)
            .arg("--data-dir")
            .arg(site.subdir("etcd"))
            .args(["--listen-client-urls", url, "--advertise-client-urls", url])
            .args([
                "--listen-peer-urls",
                peer,
                "--initial-advertise-peer-urls",
                peer,
            ])
            .args(["--initial-cluster", &format!("default={peer}")]);
        let etcd = Process::start(etcd, &site.dir().join("etcd.log"));
        Self {
            first: None,
            second: None,
            agent: None,
            _etcd: etcd,
            site,
        }
    }

    fn data(&self, host: &str) -> PathBuf {
        self.site.dir().join(format!("{host}-data"))
    }

    /// `coracle server` on a host that calls itself so.
    fn server(&self, host: &str, args: &[&str]) -> Process {
        let mut command = self.site.command(host, "unshare");
        let script = format!("hostname {host} && exec \"$0\" \"$@\"");
        command
            .args(["--uts", "sh", "-c", &script])
            .arg(binary("coracle"))
            .args(["server", "--data-dir"])
            .arg(self.data(host))
            .args(args);
        Process::start(command, &self.site.dir().join(format!("{host}.log")))
    }

    fn start_first(&mut self) {
        let args = [
            "--bind",
            "198.18.0.1:6443",
            "--store",
            "etcd=http://198.18.0.9:2379",
            "--control-plane-endpoint",
            STABLE,
        ];
        self.first = Some(self.server("s1", &args));
        self.ready("s1");
    }

    /// Starts the second server, which joins if it is given a token.
    fn start_second(&mut self, token: Option<&str>) {
        let mut args = vec!["--bind", "198.18.0.2:6443"];
        if let Some(token) = token {
            args.extend(["--join", "https://198.18.0.1", "--token", token]);
        }
        self.second = Some(self.server("s2", &args));
    }

    /// kubectl on a server's host, with the kubeconfig of `whose` and at the server's own address.
    fn kubectl(&self, host: &str, whose: &str) -> Kubectl {
        let own = self.data(whose).join("admin.kubeconfig");
        let config = self
            .site
            .dir()
            .join(format!("{whose}-at-{host}.kubeconfig"));
        if let Ok(text) = std::fs::read_to_string(own) {
            let address = format!("https://198.18.0.{}:6443", &host[1..]);
            let text = text.replace(&format!("https://{STABLE}:6443"), &address);
            std::fs::write(&config, text).expect("write a kubeconfig");
        }
        Kubectl::new(&self.site, host, config)
    }

    fn ready(&self, host: &str) {
        wait::until(&format!("{host} is ready"), PATIENCE, || {
            let outcome = self.kubectl(host, host).run("get --raw /readyz");
            if outcome.stdout == "ok" {
                Ok(())
            } else {
                let log = self.site.dir().join(format!("{host}.log"));
                Err((outcome, std::fs::read_to_string(log)))
            }
        });
    }

    /// Waits until the Service of the API leads to exactly these, by both of its objects.
    fn leads_to(&self, host: &str, expected: &str) {
        let kubectl = self.kubectl(host, host);
        wait::until(
            &format!("the Service leads to {expected}"),
            PATIENCE,
            || {
                let found = [
                    "get endpoints kubernetes -o jsonpath={.subsets[*].addresses[*].ip}",
                    "get endpointslice kubernetes -o jsonpath={.endpoints[*].addresses[0]}",
                ]
                .map(|line| kubectl.run(line).stdout);
                if found.iter().all(|found| found == expected) {
                    Ok(())
                } else {
                    Err(found)
                }
            },
        );
    }

    fn token(&self, args: &[&str]) -> String {
        let mut command = Command::new(binary("coracle"));
        command.arg("token").args(args).arg("--data-dir");
        succeed(command.arg(self.data("s1"))).trim().to_owned()
    }

    fn start_node(&mut self) {
        let (data, running) = (self.data("n1"), self.site.subdir("n1-run"));
        let mut import = Command::new(binary("coracle"));
        import.args(["image", "import", "--data-dir"]).arg(&data);
        succeed(import.arg(image_archive("busybox")));
        let address = self.kubectl("s1", "s1");
        let token = {
            let mut command = self.site.command("s1", binary("coracle"));
            command
                .args(["token", "create", "--kubeconfig"])
                .arg(address.kubeconfig());
            succeed(&mut command).trim().to_owned()
        };
        let mut command = self.site.command("n1", binary("coracle"));
        command
            .args([
                "agent",
                "--server",
                "https://198.18.0.1:6443",
                "--token",
                &token,
            ])
            .args(["--node-name", "n1", "--node-ip", "198.18.0.11"])
            .args([
                "--eviction-hard",
                "",
                "--cgroup-root",
                &self.site.cgroup("n1"),
            ])
            .arg("--data-dir")
            .arg(data)
            .arg("--run-dir")
            .arg(running);
        self.agent = Some(Process::start(command, &self.site.dir().join("n1.log")));
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.stop();
            let mut reset = self.site.command("n1", binary("coracle"));
            reset
                .args([
                    "reset",
                    "--node-name",
                    "n1",
                    "--cgroup-root",
                    &self.site.cgroup("n1"),
                ])
                .arg("--data-dir")
                .arg(self.data("n1"))
                .arg("--run-dir")
                .arg(self.site.subdir("n1-run"));
            run(&mut reset);
            let mut left = residue::find(&self.site, "n1");
            left.extend(residue::node_cgroups(&self.site, "n1"));
            if !left.is_empty() {
                eprintln!("left on n1 after reset:\n{}", left.join("\n"));
            }
        }
    }
}

#[test]
fn a_second_server_joins_and_either_may_go() {
    if !is_root_or_skip() {
        return;
    }
    let mut servers = Servers::new();
    servers.start_first();
    let command = servers.token(&["server", "--print-join-command"]);
    let token = servers.token(&["server"]);
    assert_eq!(
        command,
        format!("coracle server --join https://{STABLE}:6443 --token {token}")
    );
    killed_while_it_joins_it_is_there_in_full_or_not_at_all(&mut servers, &token);
    servers.start_second(Some(&token));
    servers.ready("s2");
    for host in ["s1", "s2"] {
        servers.leads_to(host, "198.18.0.1 198.18.0.2");
    }
    certificates_have_all_names(&servers);
    a_node_is_reached_through_either(&mut servers);

    servers.first.as_mut().expect("it runs").kill();
    servers.leads_to("s2", "198.18.0.2");
    // Without the one that it has joined.
    let status = servers.second.as_mut().expect("it runs").stop();
    assert!(status.success(), "{status}");
    servers.start_second(None);
    servers.ready("s2");
    servers.start_first();
    servers.leads_to("s2", "198.18.0.1 198.18.0.2");
    let status = servers.second.as_mut().expect("it runs").stop();
    assert!(status.success(), "{status}");
    let kubectl = servers.kubectl("s1", "s1");
    let line = "get endpoints kubernetes -o jsonpath={.subsets[*].addresses[*].ip}";
    assert_eq!(kubectl.ok(line), "198.18.0.1", "it has gone by itself");
}

/// SIGKILL after a little longer each time.
fn killed_while_it_joins_it_is_there_in_full_or_not_at_all(servers: &mut Servers, token: &str) {
    let mut joined = 0;
    for round in 0..12 {
        servers.start_second(Some(token));
        let enough = Duration::from_millis(60 * round);
        let second = servers.second.as_mut().expect("it was started");
        wait::quietly(enough, || second.ended());
        second.kill();
        let server = servers.data("s2").join("server");
        let is_there = server.exists();
        assert_eq!(
            server.join("joined.json").exists(),
            is_there,
            "round {round}"
        );
        if is_there {
            joined += 1;
            for file in [
                "pki/ca.crt",
                "pki/ca.key",
                "pki/kubelet-ca.key",
                "pki/sa.key",
                "token",
            ] {
                let [ours, theirs] = ["s1", "s2"].map(|host| {
                    let path = servers.data(host).join("server").join(file);
                    std::fs::read(path).expect("the file is there")
                });
                assert_eq!(ours, theirs, "round {round}: {file}");
            }
        }
    }
    println!("killed 12 times while it joined: {joined} times it had");
    // From the beginning once more, if it was quick.
    let _not_there = std::fs::remove_dir_all(servers.data("s2"));
}

/// kubectl believes each server by the other's kubeconfig, and each has the stable name.
fn certificates_have_all_names(servers: &Servers) {
    for (host, whose) in [("s1", "s2"), ("s2", "s1")] {
        let kubectl = servers.kubectl(host, whose);
        assert_eq!(
            kubectl.ok("get --raw /readyz"),
            "ok",
            "{host} by {whose}'s kubeconfig"
        );
        let ca = servers.data(whose).join("server/pki/ca.crt");
        for name in [STABLE, host, "localhost", "kubernetes.default.svc"] {
            let mut curl = servers.site.command(host, "curl");
            let address = format!("198.18.0.{}", &host[1..]);
            curl.args(["--noproxy", "*", "-fsS", "--max-time", "10", "--cacert"])
                .arg(&ca)
                .args(["--connect-to", &format!("{name}:6443:{address}:6443")])
                .arg(format!("https://{name}:6443/livez"));
            assert_eq!(succeed(&mut curl), "ok", "{host} as {name}");
        }
    }
}

fn a_node_is_reached_through_either(servers: &mut Servers) {
    servers.start_node();
    let (one, two) = (servers.kubectl("s1", "s1"), servers.kubectl("s2", "s2"));
    let script = "echo here I am; sleep 3600";
    let args = [
        "run",
        "box",
        "--image=busybox",
        "--image-pull-policy=IfNotPresent",
    ];
    two.ok_args(&[&args[..], &["--restart=Never", "--", "sh", "-c", script]].concat());
    two.pod_ready("box");
    for kubectl in [&one, &two] {
        assert_eq!(kubectl.ok("logs box").trim(), "here I am");
        assert_eq!(kubectl.ok("exec box -- hostname").trim(), "box");
    }
    // What one issues is good at the other, and a wrong one is not.
    let issued = one.ok("create token default");
    let review = |token: &str| {
        format!(
            "apiVersion: authentication.k8s.io/v1\nkind: TokenReview\nspec:\n  token: {token}\n"
        )
    };
    for (token, expected) in [(issued.trim(), "true"), ("wrong", "")] {
        let verb = ["create", "-o", "jsonpath={.status.authenticated}"];
        let reviewed = two.apply_text(&verb, &review(token));
        assert_eq!(reviewed.stdout, expected, "{reviewed:?}");
    }
    two.ok("delete pod box --grace-period=1");
}
