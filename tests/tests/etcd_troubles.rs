//! An etcd that is full, slow, lost, of somebody else or not what it was: one sentence that says
//! what to do, to the client or as the server's last word; no damage; and on it goes afterwards.

#[path = "etcd_troubles/ground.rs"]
mod ground;

use std::{path::Path, process::Command, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use coracle_tests::{
    is_root_or_skip,
    kubectl::PATIENCE,
    machines::{Machines, Plan},
    process::{Process, succeed},
    wait,
};
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use ground::{
    answered, certificates, config_map, controllers_work, etcd, is_sentence, make, names, plan,
    refused, said, server_flags, server_runs,
};

/// How long etcd is away: longer than a Lease. `LOST_SECS=180` for minutes.
const LOST_SECS: u64 = 20;
/// Room for what a server makes at its start, and for some objects of [`LARGE`].
const QUOTA: usize = 16 << 20;
const LARGE: usize = 900_000;

#[test]
fn a_slow_or_lost_etcd_is_waited_for_and_one_that_has_gone_back_is_noticed() {
    if !is_root_or_skip() {
        return;
    }
    let mut machines = Machines::start(plan(&[]));
    make(&machines, "before");
    in_pulses_it_is_slow_and_nothing_fails(&machines);
    lost_for_a_while_it_is_missed_in_a_sentence(&mut machines);
    what_is_under_the_prefix_must_be_ours(&mut machines);
    an_older_backup_ends_the_server_and_the_next_one_knows_what_is_there(&mut machines);
}

fn in_pulses_it_is_slow_and_nothing_fails(machines: &Machines) {
    let member = machines.all[0].etcd.as_ref().expect("it runs").pid();
    std::thread::scope(|scope| {
        let pulses = scope.spawn(move || {
            for _ in 0..20 {
                for signal in [Signal::SIGSTOP, Signal::SIGCONT] {
                    kill(member, signal).expect("the member is there");
                    wait::quietly(Duration::from_millis(250), || None::<()>);
                }
            }
        });
        let mut number = 0;
        while !pulses.is_finished() {
            number += 1;
            let outcome = said(machines, &format!("create configmap slow-{number}"));
            assert_eq!(outcome.code, 0, "{outcome:?}");
        }
        eprintln!("{number} objects were made meanwhile");
        let outcome = said(machines, "get configmaps -o name");
        assert!(
            outcome.stdout.matches("slow-").count() == number,
            "{outcome:?}"
        );
    });
}

fn lost_for_a_while_it_is_missed_in_a_sentence(machines: &mut Machines) {
    let before = names(machines);
    machines.all[0].etcd.as_mut().expect("it runs").kill();
    // kubectl tries ten times what was certainly not done: it will be there in the end.
    let patient = machines
        .kubectl(0)
        .command(&["create", "configmap", "patient"]);
    let mut patient = Process::start(patient, &machines.site.dir().join("patient.log"));
    let missed = "etcd at http://198.18.0.1:2379 cannot be reached";
    for body in [None, Some(config_map("lost"))] {
        let status = answered(machines, body.as_ref());
        let message = status["message"].as_str().unwrap_or_default();
        eprintln!("{} {message}", status["code"]);
        assert!(
            status["code"] == 503 && message.contains(missed),
            "{status}"
        );
    }
    let seconds = std::env::var("LOST_SECS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok());
    let lost = Duration::from_secs(seconds.unwrap_or(LOST_SECS));
    wait::quietly(lost, || None::<()>);
    server_runs(machines);
    machines.start_etcd(0);
    machines.wait_ready(0);
    let ended = wait::until("kubectl has ended", 2 * PATIENCE, || {
        patient.ended().ok_or("it tries")
    });
    assert!(ended.success() || lost > PATIENCE, "{}", patient.output());
    let mut after = names(machines);
    after.retain(|name| name != "patient");
    assert_eq!(after, before);
    make(machines, "after-a-loss");
    controllers_work(machines, "after-a-loss");
    server_runs(machines);
}

fn what_is_under_the_prefix_must_be_ours(machines: &mut Machines) {
    let before = names(machines);
    machines.all[0].server.as_mut().expect("it runs").stop();
    let stranger = machines.site.subdir("stranger");
    refused(
        machines,
        &stranger,
        "/coracle in etcd holds another cluster, with certificate authority",
    );
    let key = BASE64.encode("/coracle/.cluster");
    let found = etcd(machines, "kv/range", &json!({"key": key}));
    let record = found["kvs"][0]["value"]
        .as_str()
        .expect("a record")
        .to_owned();
    let text = BASE64.decode(&record).expect("base64");
    let mut older: Value = serde_json::from_slice(&text).expect("JSON");
    let data = machines.server_data(0);
    for (version, expected) in [
        (
            0,
            "holds data of version 0, and this release reads version 1: start the release before this one",
        ),
        (
            9,
            "holds data of version 9, and this release reads version 1: run the release that wrote it",
        ),
    ] {
        older["dataVersion"] = version.into();
        let value = BASE64.encode(older.to_string());
        etcd(machines, "kv/put", &json!({"key": key, "value": value}));
        refused(machines, &data, expected);
        let kept = etcd(machines, "kv/range", &json!({"key": key}));
        assert_eq!(kept["kvs"][0]["value"], value, "it was left alone");
    }
    etcd(machines, "kv/put", &json!({"key": key, "value": record}));
    machines.start_server(0);
    machines.wait_ready(0);
    assert_eq!(names(machines), before);
}

fn an_older_backup_ends_the_server_and_the_next_one_knows_what_is_there(machines: &mut Machines) {
    let (data, backup) = (machines.etcd_data(0), machines.site.dir().join("backup"));
    let copy = |from: &Path, to: &Path| {
        let _there_is_none = std::fs::remove_dir_all(to);
        succeed(Command::new("cp").arg("-a").arg(from).arg(to));
    };
    machines.all[0].etcd.as_mut().expect("it runs").stop();
    copy(&data, &backup);
    machines.start_etcd(0);
    machines.wait_ready(0);
    let before = names(machines);
    for number in 0..20 {
        make(machines, &format!("forgotten-{number}"));
    }
    machines.all[0].etcd.as_mut().expect("it runs").stop();
    copy(&backup, &data);
    machines.start_etcd(0);
    let server = machines.all[0].server.as_mut().expect("it runs");
    let ended = wait::until("the server has ended", PATIENCE, || {
        server.ended().ok_or("it runs")
    });
    let said = server.output();
    let last = said.lines().last().unwrap_or_default();
    eprintln!("{last}");
    assert!(
        !ended.success()
            && last.contains("etcd has gone back from revision")
            && last.contains("only a new start"),
        "{ended}: {said}"
    );
    machines.start_server(0);
    machines.wait_ready(0);
    assert_eq!(names(machines), before);
    make(machines, "after-a-restore");
    controllers_work(machines, "after-a-restore");
}

#[test]
fn a_full_etcd_is_told_and_goes_on_once_there_is_room() {
    if !is_root_or_skip() {
        return;
    }
    let mut machines = Machines::start(plan(&[format!("--quota-backend-bytes={QUOTA}")]));
    let large = machines.site.dir().join("large");
    std::fs::write(&large, "x".repeat(LARGE)).expect("write it");
    let create = |machines: &Machines, number: usize| {
        said(
            machines,
            &format!(
                "create configmap large-{number} --from-file={}",
                large.display()
            ),
        )
    };
    let mut made = 0;
    let full = loop {
        let outcome = create(&machines, made);
        if outcome.code != 0 {
            break outcome;
        }
        made += 1;
        assert!(made < QUOTA / LARGE + 2, "it does not fill");
    };
    eprintln!("full after {made} objects");
    is_sentence(
        &full,
        "is full (alarm NOSPACE): delete objects or raise its --quota-backend-bytes, then compact and defragment",
    );
    // Reads go on, and so do deletions.
    assert_eq!(names(&machines).len(), made);
    for number in 0..made - 1 {
        machines
            .kubectl(0)
            .ok(&format!("delete configmap large-{number}"));
    }
    server_runs(&mut machines);
    // As the sentence says.
    let newest = etcd(&machines, "kv/range", &json!({"key": BASE64.encode("/")}));
    etcd(
        &machines,
        "kv/compaction",
        &json!({"revision": newest["header"]["revision"], "physical": true}),
    );
    etcd(&machines, "maintenance/defragment", &json!({}));
    let alarms = etcd(&machines, "maintenance/alarm", &json!({"action": "GET"}));
    let mut disarm = alarms["alarms"][0].clone();
    assert_eq!(disarm["alarm"], "NOSPACE");
    disarm["action"] = "DEACTIVATE".into();
    etcd(&machines, "maintenance/alarm", &disarm);
    make(&machines, "after-it-was-full");
    controllers_work(&machines, "after-it-was-full");
    assert_eq!(
        names(&machines),
        ["after-it-was-full", &format!("large-{}", made - 1)]
    );
    server_runs(&mut machines);
}

#[test]
fn a_wrong_certificate_is_told_and_nothing_else_goes_over_the_line() {
    if !is_root_or_skip() {
        return;
    }
    let mut machines = Machines::new(Plan {
        scheme: Some("https"),
        ..plan(&[])
    });
    let ours = certificates(&machines.site.dir().join("ours"));
    let theirs = certificates(&machines.site.dir().join("theirs"));
    let shown = machines.site.dir().join("shown");
    let show = |whose: &Path| {
        std::fs::create_dir_all(&shown).expect("make it");
        for name in ["server.pem", "server.key", "ca.pem"] {
            std::fs::copy(whose.join(name), shown.join(name)).expect("copy it");
        }
    };
    let flag = |name: &str, file: &str| format!("--{name}={}", shown.join(file).display());
    machines.plan.etcd_flags = vec![
        flag("cert-file", "server.pem"),
        flag("key-file", "server.key"),
        flag("trusted-ca-file", "ca.pem"),
        "--client-cert-auth=true".to_owned(),
    ];
    show(&ours);
    machines.start_etcd(0);
    let data = machines.server_data(0);
    for (ca, client, expected) in [
        (
            &theirs,
            &ours,
            "shows a certificate that --etcd-cacert does not vouch for",
        ),
        (
            &ours,
            &theirs,
            "does not take our certificate: look at --etcd-cert and --etcd-key",
        ),
    ] {
        machines.plan.server_flags = server_flags(ca, client);
        refused(&machines, &data, expected);
    }
    machines.plan.server_flags = server_flags(&ours, &ours);
    machines.start_server(0);
    machines.wait_ready(0);
    make(&machines, "before");
    // Under a running server.
    machines.all[0].etcd.as_mut().expect("it runs").kill();
    show(&theirs);
    machines.start_etcd(0);
    wait::until("the certificate is told", PATIENCE, || {
        let outcome = said(&machines, "create configmap meanwhile");
        assert!(outcome.code != 0, "{outcome:?}");
        let is_told = outcome.stderr.contains("--etcd-cacert does not vouch for");
        if is_told {
            eprintln!("{}", outcome.stderr.trim_end());
            Ok(())
        } else {
            Err(outcome)
        }
    });
    server_runs(&mut machines);
    machines.all[0].etcd.as_mut().expect("it runs").kill();
    show(&ours);
    machines.start_etcd(0);
    machines.wait_ready(0);
    make(&machines, "after");
    assert_eq!(names(&machines), ["after", "before"]);
    server_runs(&mut machines);
}
