//! What a pod's processes may do.

use serde_json::{Value, json};

use super::{
    super::{container, good},
    Check, baseline, restricted, three,
};

#[test]
fn privileged_containers() {
    let check = baseline("privileged", "privileged");
    check.context(json!({"privileged": false}), "");
    let not = "must not set securityContext.privileged=true";
    check.context(
        json!({"privileged": true}),
        &format!("container \"c\" {not}"),
    );
    check.spec(
        three(json!({"privileged": true})),
        &format!("containers \"i\", \"c\", \"e\" {not}"),
    );
}

#[test]
fn capabilities_beyond_the_default() {
    let check = baseline("capabilities_baseline", "non-default capabilities").at(&[0, 21, 37]);
    let add = |added: &[&str]| json!({"capabilities": {"add": added}});
    let default = [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ];
    check.context(add(&default), "");
    check.context(json!({"capabilities": null}), "");
    check.context(
        add(&["NET_RAW"]),
        "container \"c\" must not include \"NET_RAW\" in securityContext.capabilities.add",
    );
    check.spec(
        json!({"initContainers": [container("i", add(&["chown"]))], "containers": [container("c", add(&["ALL", "CAP_CHOWN"]))]}),
        "containers \"i\", \"c\" must not include \"ALL\", \"CAP_CHOWN\", \"chown\" in securityContext.capabilities.add",
    );
}

#[test]
fn capabilities_that_are_kept() {
    let check = restricted(
        "capabilities_restricted",
        "unrestricted capabilities",
        &[22, 24, 25, 37],
    );
    let with = |drop: &[&str], add: &[&str]| json!({"capabilities": {"drop": drop, "add": add}});
    check.context(with(&["ALL"], &["NET_BIND_SERVICE"]), "");
    check.context(with(&["FOO", "ALL"], &[]), "");
    let must = "must set securityContext.capabilities.drop=[\"ALL\"]";
    check.spec(
        json!({"containers": [{"name": "c"}]}),
        &format!("container \"c\" {must}"),
    );
    check.context(
        json!({"capabilities": null}),
        &format!("container \"c\" {must}"),
    );
    check.context(with(&["all"], &[]), &format!("container \"c\" {must}"));
    check.context(
        with(&["ALL"], &["CHOWN", "NET_BIND_SERVICE"]),
        "container \"c\" must not include \"CHOWN\" in securityContext.capabilities.add",
    );
    check.spec(
        json!({"containers": [container("a", with(&[], &["KILL"])), container("b", with(&["ALL"], &["CHOWN"])), {"name": "d"}]}),
        &format!("containers \"a\", \"d\" {must}; containers \"a\", \"b\" must not include \"CHOWN\", \"KILL\" in securityContext.capabilities.add"),
    );
    let windows = json!({"os": {"name": "windows"}, "containers": [{"name": "c"}]});
    check.at(&[25, 37]).spec(windows.clone(), "");
    check
        .at(&[22, 24])
        .spec(windows, &format!("container \"c\" {must}"));
    let linux = json!({"os": {"name": "linux"}, "containers": [{"name": "c"}]});
    check.spec(linux, &format!("container \"c\" {must}"));
}

#[test]
fn escalation_of_privileges() {
    let check = restricted(
        "allowPrivilegeEscalation",
        "allowPrivilegeEscalation != false",
        &[8, 24, 25, 37],
    );
    check.context(json!({}), "");
    let must = "must set securityContext.allowPrivilegeEscalation=false";
    check.context(
        json!({"allowPrivilegeEscalation": true}),
        &format!("container \"c\" {must}"),
    );
    check.spec(
        json!({"containers": [{"name": "c"}]}),
        &format!("container \"c\" {must}"),
    );
    check.spec(
        three(json!({"allowPrivilegeEscalation": null})),
        &format!("containers \"i\", \"c\", \"e\" {must}"),
    );
    let windows = json!({"os": {"name": "windows"}, "containers": [{"name": "c"}]});
    check.at(&[25, 37]).spec(windows.clone(), "");
    check
        .at(&[8, 24])
        .spec(windows, &format!("container \"c\" {must}"));
}

#[test]
fn who_may_be_root() {
    let check = restricted("runAsNonRoot", "runAsNonRoot != true", &[0, 34, 35, 37]);
    let set = |value: Value| json!({"runAsNonRoot": value});
    check.spec(json!({"securityContext": set(json!(true))}), "");
    check.spec(
        json!({"securityContext": {}, "initContainers": [], "containers": [container("a", set(json!(true)))]}),
        "",
    );
    let not = "must not set securityContext.runAsNonRoot=false";
    check.spec(
        json!({"securityContext": set(json!(false))}),
        &format!("pod {not}"),
    );
    check.context(set(json!(false)), &format!("container \"c\" {not}"));
    check.spec(
        json!({"securityContext": set(json!(false)), "containers": [container("a", set(json!(false))), container("b", set(json!(false)))]}),
        &format!("pod and containers \"a\", \"b\" {not}"),
    );
    let must = "must set securityContext.runAsNonRoot=true";
    check.spec(
        json!({"securityContext": {}}),
        &format!("pod or containers \"i\", \"c\" {must}"),
    );
    let one = json!({"securityContext": {}, "initContainers": [], "containers": [container("a", set(json!(true))), good("b")]});
    check.spec(one, &format!("pod or container \"b\" {must}"));
    // Nobody is told what follows from what is wrong.
    check.spec(
        json!({"securityContext": set(json!(false)), "containers": [good("a")]}),
        &format!("pod {not}"),
    );
    let own = json!({"hostUsers": false, "securityContext": {}});
    check.at(&[35, 37]).spec(own.clone(), "");
    check
        .at(&[0, 34])
        .spec(own, &format!("pod or containers \"i\", \"c\" {must}"));
    check.spec(
        json!({"hostUsers": true, "securityContext": {}}),
        &format!("pod or containers \"i\", \"c\" {must}"),
    );
}

#[test]
fn who_is_root() {
    let check = restricted("runAsUser", "runAsUser=0", &[23, 34, 35, 37]);
    let user = |uid: u32| json!({"runAsUser": uid});
    check.spec(
        json!({"securityContext": user(1000), "containers": [container("c", user(1))]}),
        "",
    );
    check.spec(
        json!({"securityContext": user(0)}),
        "pod must not set runAsUser=0",
    );
    check.spec(
        json!({"securityContext": user(0), "containers": [container("a", user(0)), container("b", user(0))]}),
        "pod and containers \"a\", \"b\" must not set runAsUser=0",
    );
    let own = json!({"hostUsers": false, "containers": [container("a", user(0))]});
    check.at(&[35, 37]).spec(own.clone(), "");
    check
        .at(&[23, 34])
        .spec(own, "container \"a\" must not set runAsUser=0");
}

#[test]
fn settings_of_the_kernel() {
    let check = baseline("sysctls", "forbidden sysctls");
    let set = |names: &[&str]| {
        let all: Vec<Value> = names
            .iter()
            .map(|name| json!({"name": name, "value": "1"}))
            .collect();
        json!({"securityContext": {"sysctls": all}})
    };
    let always = [
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
    ];
    check.spec(set(&always), "");
    check.spec(
        set(&["net.core.somaxconn", "kernel.shm_rmid_forced", "a.b"]),
        "net.core.somaxconn, a.b",
    );
    let since: [(&str, &[u64], &[u64]); 9] = [
        ("net.ipv4.ip_local_reserved_ports", &[0, 26], &[27, 28, 37]),
        ("net.ipv4.tcp_keepalive_time", &[0, 28], &[29, 31, 37]),
        ("net.ipv4.tcp_fin_timeout", &[0, 28], &[29, 31, 37]),
        ("net.ipv4.tcp_keepalive_intvl", &[0, 28], &[29, 31, 37]),
        ("net.ipv4.tcp_keepalive_probes", &[0, 28], &[29, 31, 37]),
        ("net.ipv4.tcp_rmem", &[0, 31], &[32, 36, 37]),
        ("net.ipv4.tcp_wmem", &[0, 31], &[32, 36, 37]),
        ("net.ipv4.tcp_slow_start_after_idle", &[0, 36], &[37, 99]),
        ("net.ipv4.tcp_notsent_lowat", &[0, 36], &[37, 99]),
    ];
    for (name, before, after) in since {
        Check {
            minors: before,
            ..check
        }
        .spec(set(&[name]), name);
        Check {
            minors: after,
            ..check
        }
        .spec(set(&[name]), "");
    }
}
