//! An agent that is killed at any moment while Services, names and policies change: nobody gets a
//! wrong answer, nobody gets in, and what the kernel holds is the plan.

use std::{collections::BTreeSet, time::Duration};

use coracle_tests::{
    cluster::Cluster,
    faults::plan::Random,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    wait,
};

const ROUNDS: usize = 12;
/// What a change is everywhere within.
const SPREAD: Duration = Duration::from_secs(15);

/// Nobody may reach it.
const SHUT: &str = r#"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: shut}
spec: {podSelector: {matchLabels: {app: shut}}, policyTypes: [Ingress]}
"#;
/// Always the same answer.
const STEADY: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: steady}
spec: {clusterIP: 10.96.0.77, selector: {app: steady}, ports: [{port: 80}]}
"#;

fn pod(name: &str, script: &str) -> String {
    format!(
        r#"
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "{script}"]
"#
    )
}

const SERVES: &str = "mkdir /tmp/w; echo page > /tmp/w/index.html; exec httpd -f -p 80 -h /tmp/w";

#[test]
fn an_agent_killed_at_any_moment_opens_nothing_and_leaves_the_plan() {
    if !is_root_or_skip() {
        return;
    }
    let mut cluster = Cluster::server_and_nodes(1, &[]);
    let kubectl = cluster.kubectl();
    let servers = [pod("steady", SERVES), pod("shut", SERVES)].concat();
    kubectl.apply(&format!("{STEADY}{servers}"));
    for pod in ["steady", "shut"] {
        kubectl.pod_ready(pod);
    }
    let shut = kubectl.ok("get pod shut -o jsonpath={.status.podIP}");
    // What it notes is in its log, which is read when all is over.
    let asks = format!(
        "while :; do \
           timeout 1 wget -q -O /dev/null http://{shut}/ 2>/dev/null && echo got in; \
           timeout 1 wget -q -O /dev/null http://10.96.0.77/ 2>/dev/null && echo page; \
           nslookup steady.default.svc.cluster.local. > /tmp/said 2>&1; \
           grep -q 10.96.0.77 /tmp/said && echo name; grep NXDOMAIN /tmp/said; \
         done"
    );
    kubectl.apply(&pod("asks", &asks));
    kubectl.pod_ready("asks");
    let noted = |what: &str| {
        let log = kubectl.ok("logs asks");
        log.lines().filter(|line| *line == what).count()
    };
    wait::until("answers", PATIENCE, || {
        let all = ["got in", "page", "name"].map(noted);
        all.iter().all(|count| *count > 0).then_some(()).ok_or(all)
    });
    kubectl.apply(SHUT);
    let got_in = wait::until("nobody gets in", SPREAD, || {
        let before = noted("got in");
        let more = wait::quietly(Duration::from_secs(2), || {
            (noted("got in") > before).then_some(())
        });
        more.is_none().then_some(before).ok_or("somebody gets in")
    });

    let seed = 14;
    let mut random = Random::new(seed);
    for round in 0..ROUNDS {
        change(&kubectl, &mut random, round);
        let moment = Duration::from_millis(random.index(300) as u64);
        let _passed = wait::quietly(moment, || None::<()>);
        cluster.nodes[0].agent.as_mut().expect("an agent").kill();
        // Also while nobody is there.
        change(&kubectl, &mut random, round + ROUNDS);
        cluster.start_agent(0);
        let moment = Duration::from_millis(random.index(2500) as u64);
        let _passed = wait::quietly(moment, || None::<()>);
    }
    cluster.wait_ready(1);

    let last = ROUNDS - 1;
    kubectl.apply(&service(&format!("last-{last}"), last));
    let address = kubectl.ok(&format!(
        "get service last-{last} -o jsonpath={{.spec.clusterIP}}"
    ));
    wait::until("the last Service", SPREAD, || {
        cluster.site.fetch("n1", &format!("http://{address}/"))
    });
    let log = kubectl.ok("logs asks");
    assert_eq!(noted("got in"), got_in, "seed {seed}:\n{log}");
    assert!(!log.contains("NXDOMAIN"), "seed {seed}:\n{log}");
    assert!(noted("page") > ROUNDS && noted("name") > ROUNDS, "{log}");
    for table in ["coracle", "coracle-policy"] {
        let held = wait::until("the rules settle", SPREAD, || settled(&cluster, table));
        let delete = ["nft", "delete", "table", "ip", table];
        cluster.site.within("n1", &delete);
        wait::until(&format!("{table} is the plan"), SPREAD, || {
            let (held, now) = (held.clone(), rules(&cluster, table));
            let apart: Vec<_> = held.symmetric_difference(&now).cloned().collect();
            apart.is_empty().then_some(()).ok_or(apart)
        });
    }
}

/// A Service or a policy comes, changes or goes.
fn change(kubectl: &Kubectl, random: &mut Random, number: usize) {
    let name = format!("s-{}", random.index(6));
    match random.index(5) {
        0 | 1 => drop(kubectl.apply(&service(&name, number))),
        2 => drop(kubectl.run(&format!(
            "delete service {name} --ignore-not-found --wait=false"
        ))),
        3 => drop(kubectl.apply(&format!(
                "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}}}\n\
                 spec: {{podSelector: {{matchLabels: {{app: steady}}}}, ingress: [{{}}, {{ports: [{{port: {}}}]}}]}}\n",
                8000 + number
            ),
        )),
        _ => drop(kubectl.run(&format!("delete networkpolicy {name} --ignore-not-found"))),
    }
}

fn service(name: &str, number: usize) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n\
         spec: {{selector: {{app: steady}}, ports: [{{name: a, port: 80}}, {{name: b, port: {}, targetPort: 80}}]}}\n",
        9000 + number
    )
}

/// A table, once it has been the same for a while.
fn settled(cluster: &Cluster, table: &str) -> Result<BTreeSet<String>, &'static str> {
    let before = rules(cluster, table);
    let changed = wait::quietly(Duration::from_secs(2), || {
        (rules(cluster, table) != before).then_some(())
    });
    match changed {
        None if !before.is_empty() => Ok(before),
        None | Some(()) => Err("changes"),
    }
}

/// Lines and elements of a table, in no order.
fn rules(cluster: &Cluster, table: &str) -> BTreeSet<String> {
    let there = cluster.site.within("n1", &["nft", "list", "tables"]);
    if !there
        .lines()
        .any(|line| line == format!("table ip {table}"))
    {
        return BTreeSet::new();
    }
    let listed = cluster
        .site
        .within("n1", &["nft", "list", "table", "ip", table]);
    let parts = listed.split(['\n', ',', '{', '}']);
    parts
        .map(|part| part.replace("elements =", "").trim().to_owned())
        .filter(|part| !part.is_empty())
        .collect()
}
