//! What a container may not do, see or keep.

use coracle_agent::runtime::*;

use super::harness::*;

fn with(security: SecurityContext, script: &str) -> ContainerConfig {
    ContainerConfig {
        security,
        ..shell(script)
    }
}

#[tokio::test]
async fn default_container_is_confined() {
    let Some(node) = node().await else { return };
    // Two streams have no order between them: only one is looked at.
    let script = "exec 2>/dev/null; grep -E 'CapBnd|CapEff|NoNewPrivs|Seccomp:' /proc/self/status; \
        mount -t tmpfs x /tmp || echo no-mount; unshare -U true || echo no-unshare; \
        touch /proc/sys/x || echo no-sys; cat /proc/kcore | wc -c; ls /sys/firmware | wc -l; \
        mknod /tmp/disk b 254 0; cat /tmp/disk > /dev/null || echo no-device; echo forked $(echo yes)";
    let (code, log) = node.output(&shell(script)).await;
    assert_eq!(code, 0, "{log}");
    for part in [
        "CapBnd:\t00000000a80425fb",
        "CapEff:\t00000000a80425fb",
        "Seccomp:\t2",
        "NoNewPrivs:\t0",
        "no-mount",
        "no-unshare",
        "no-sys",
        "\n0\n0\n",
        "no-device",
        "forked yes",
    ] {
        assert!(log.contains(part), "{part:?} in {log}");
    }
    node.finish().await;
}

#[tokio::test]
async fn exec_is_as_confined_as_the_container() {
    let Some(node) = node().await else { return };
    let security = [
        SecurityContext::default(),
        SecurityContext {
            run_as_user: Some(1000),
            ..SecurityContext::default()
        },
        SecurityContext {
            run_as_user: Some(1000),
            allow_privilege_escalation: Some(false),
            cap_drop: vec!["ALL".into()],
            ..SecurityContext::default()
        },
    ];
    for security in security {
        let command = "grep -E '^(Cap|NoNewPrivs|Seccomp:|Uid|Gid|Groups)' /proc/self/status";
        let (_, id) = node
            .run(&with(
                security,
                &format!("{command}; echo end; exec sleep 1000"),
            ))
            .await;
        node.logged(&id, "end").await;
        let own = node.log(&id).await;
        let result = node.exec(&id, &format!("{command}; echo end")).await;
        assert_eq!(String::from_utf8_lossy(&result.stdout), own);
        assert!(own.contains("Seccomp:\t2"), "{own}");
        node.runtime()
            .stop_container(&id, std::time::Duration::ZERO)
            .await
            .unwrap();
    }
    node.finish().await;
}

#[tokio::test]
async fn no_new_privileges_and_dropped_capabilities_hold() {
    let Some(node) = node().await else { return };
    let security = SecurityContext {
        allow_privilege_escalation: Some(false),
        cap_drop: vec!["ALL".into()],
        cap_add: vec!["NET_BIND_SERVICE".into()],
        readonly_rootfs: true,
        ..SecurityContext::default()
    };
    let (_, log) = node
        .output(&with(
            security,
            "grep -E 'CapBnd|NoNewPrivs' /proc/self/status; touch /x || echo read-only",
        ))
        .await;
    for part in ["CapBnd:\t0000000000000400", "NoNewPrivs:\t1", "read-only"] {
        assert!(log.contains(part), "{part:?} in {log}");
    }
    node.finish().await;
}

#[tokio::test]
async fn privileged_container_is_not_confined() {
    let Some(node) = node().await else { return };
    let security = SecurityContext {
        privileged: true,
        ..SecurityContext::default()
    };
    let script = "grep Seccomp: /proc/self/status; mount -t tmpfs x /tmp && echo mounted; mknod /n c 1 3 && echo x > /n && echo device";
    let (_, log) = node.output(&with(security, script)).await;
    for part in ["Seccomp:\t0", "mounted", "device"] {
        assert!(log.contains(part), "{part:?} in {log}");
    }
    node.finish().await;
}

#[tokio::test]
async fn only_standard_streams_are_open() {
    let Some(node) = node().await else { return };
    let (_, id) = node
        .run(&shell("ls /proc/1/fd; echo end; exec sleep 1000"))
        .await;
    node.logged(&id, "end").await;
    assert_eq!(node.log(&id).await, "0\n1\n2\nend\n");
    let result = node.exec(&id, "ls /proc/$$/fd; true").await;
    assert_eq!(result.stdout, b"0\n1\n2\n");
    node.finish().await;
}

#[tokio::test]
async fn working_dir_cannot_be_a_descriptor() {
    let Some(node) = node().await else { return };
    std::os::unix::fs::symlink("/proc/self/fd", node.layer().join("link")).unwrap();
    let sandbox = node
        .runtime()
        .run_pod_sandbox(&node.sandbox())
        .await
        .unwrap();
    for number in 3..12 {
        for directory in [
            format!("/proc/self/fd/{number}"),
            format!("/link/{number}"),
            format!("/link/{number}/../../.."),
        ] {
            let config = ContainerConfig {
                working_dir: Some(directory.clone()),
                ..shell("pwd; ls")
            };
            let outcome = node.runtime().create_container(&sandbox.id, &config).await;
            assert!(outcome.is_err(), "{directory}");
        }
    }
    node.finish().await;
}

#[tokio::test]
async fn supervisors_program_cannot_be_written() {
    let Some(node) = node().await else { return };
    let security = SecurityContext {
        privileged: true,
        ..SecurityContext::default()
    };
    let before = std::fs::read(shim_path()).unwrap();
    let config = SandboxConfig {
        host_pid: true,
        ..node.sandbox()
    };
    let sandbox = node.runtime().run_pod_sandbox(&config).await.unwrap();
    let shim = shim_pid(&node, &sandbox.id);
    let script = format!(
        "echo evil > /proc/{shim}/exe; dd if=/bin/busybox of=/proc/{shim}/exe conv=notrunc; echo tried"
    );
    let id = node
        .runtime()
        .create_container(&sandbox.id, &with(security, &script))
        .await
        .unwrap();
    node.runtime().start_container(&id).await.unwrap();
    node.exited(&id).await;
    let log = node.log(&id).await;
    assert!(
        log.contains("tried") && !log.contains("records out"),
        "{log}"
    );
    assert_eq!(std::fs::read(shim_path()).unwrap(), before);
    node.finish().await;
}

#[tokio::test]
async fn run_as_non_root_refuses_root() {
    let Some(node) = node().await else { return };
    let sandbox = node
        .runtime()
        .run_pod_sandbox(&node.sandbox())
        .await
        .unwrap();
    let security = SecurityContext {
        run_as_non_root: true,
        ..SecurityContext::default()
    };
    let outcome = node
        .runtime()
        .create_container(&sandbox.id, &with(security, "true"))
        .await;
    assert!(
        matches!(outcome, Err(RuntimeError::InvalidConfig { .. })),
        "{outcome:?}"
    );
    node.finish().await;
}

#[tokio::test]
async fn user_may_open_its_streams_by_name() {
    let Some(node) = node().await else { return };
    for tty in [false, true] {
        let security = SecurityContext {
            run_as_user: Some(1000),
            ..SecurityContext::default()
        };
        let config = ContainerConfig {
            tty,
            ..with(
                security,
                "echo by-name > /dev/stdout; echo by-name > /dev/stderr",
            )
        };
        let (code, log) = node.output(&config).await;
        assert_eq!((code, log.matches("by-name").count()), (0, 2), "{log}");
    }
    node.finish().await;
}

#[tokio::test]
async fn own_limits_cannot_be_written() {
    let Some(node) = node().await else { return };
    let script = "grep -E ' - (cgroup2?|tmpfs) ' /proc/self/mountinfo | grep ' /sys/fs/cgroup' | grep -v ' ro,'; \
        for f in /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/cpu/cpu.cfs_quota_us \
            /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/memory.max /sys/fs/cgroup/cgroup.procs; do \
            test -e $f || continue; (cat $f > /tmp/now; cat /tmp/now > $f) 2>/dev/null && echo wrote $f; done; \
        touch /sys/fs/cgroup/new 2>/dev/null && echo made; grep -c ' /sys/fs/cgroup' /proc/self/mountinfo | grep -v '^0'";
    let (_, log) = node.output(&shell(script)).await;
    let lines: Vec<&str> = log.lines().collect();
    assert!(
        matches!(lines.as_slice(), [count] if count.parse::<u32>().is_ok()),
        "{log}"
    );
    node.finish().await;
}

#[tokio::test]
async fn strict_groups_leave_the_images_out() {
    let Some(node) = node().await else { return };
    for (strict_groups, groups) in [(false, "1000 2000 3000"), (true, "1000 3000")] {
        let security = SecurityContext {
            run_as_user: Some(1000),
            supplemental_groups: vec![3000],
            strict_groups,
            ..SecurityContext::default()
        };
        let (_, log) = node.output(&with(security, "id -G")).await;
        assert_eq!(log.trim(), groups);
    }
    node.finish().await;
}

#[tokio::test]
async fn a_debugger_joins_the_processes_of_its_target_alone() {
    let Some(node) = node().await else { return };
    let (sandbox, target) = node.run(&container(&["sleep", "54321"])).await;
    let debug = |target: &ContainerId| {
        let security = SecurityContext {
            debug_target: Some(target.clone()),
            ..SecurityContext::default()
        };
        with(security, "cat /proc/1/cmdline")
    };
    let id = node
        .runtime()
        .create_container(&sandbox, &debug(&target))
        .await
        .unwrap();
    node.runtime().start_container(&id).await.unwrap();
    node.exited(&id).await;
    assert!(node.log(&id).await.contains("54321"));
    node.runtime()
        .stop_container(&target, std::time::Duration::ZERO)
        .await
        .unwrap();
    let outcome = node
        .runtime()
        .create_container(&sandbox, &debug(&target))
        .await;
    assert!(outcome.is_err(), "its PID may be anybody's by now");
    node.finish().await;
}

/// What would change the node, tried as root of a default container. Every write is of what is
/// there already, or harmless.
#[tokio::test]
async fn node_cannot_be_changed_through_proc_and_sys() {
    let Some(node) = node().await else { return };
    let script = "try() { test -e \"$1\" || return 0; if (cat \"$1\" > /tmp/now 2>/dev/null; cat /tmp/now > \"$1\") 2>/dev/null; then echo \"wrote $1\"; fi; }; \
        for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/vm/panic_on_oom /proc/sys/kernel/hostname \
            /proc/irq/default_smp_affinity /sys/kernel/uevent_helper /sys/kernel/mm/transparent_hugepage/enabled \
            /sys/fs/cgroup/release_agent /sys/fs/cgroup/*/release_agent /sys/fs/cgroup/*/cgroup.procs; do try $f; done; \
        (echo h > /proc/sysrq-trigger) 2>/dev/null && echo wrote sysrq; \
        mkdir /tmp/c; mount -t cgroup -o memory c /tmp/c 2>/dev/null && echo wrote mount; \
        mount -o remount,rw /proc/sys 2>/dev/null && echo wrote remount; umount /proc/sys 2>/dev/null && echo wrote umount; \
        for f in /proc/kcore /proc/keys /proc/timer_list /proc/sched_debug; do test -s $f && echo read $f; done; \
        ls /proc/scsi /proc/acpi /sys/firmware 2>/dev/null | grep -v : | grep . ; echo end";
    let (code, log) = node.output(&shell(script)).await;
    assert_eq!((code, &*log), (0, "end\n"));
    node.finish().await;
}

/// CVE-2019-5736: the kernel is told to run what set the container up once more, as its program or
/// its interpreter.
#[tokio::test]
async fn program_that_is_its_own_supervisor_finds_nothing_to_write() {
    let Some(node) = node().await else { return };
    std::fs::write(node.layer().join("bin/evil"), "#!/proc/self/exe\n").unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(
        node.layer().join("bin/evil"),
        std::fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    let helper = shim_path().with_file_name("coracle-oci");
    let before = (
        std::fs::read(shim_path()).unwrap(),
        std::fs::read(&helper).unwrap(),
    );
    let (_, id) = node
        .run(&shell(
            "while :; do for e in /proc/[0-9]*/exe; do (echo evil > $e) 2>/dev/null; done; done",
        ))
        .await;
    for command in ["/bin/evil", "/proc/self/exe"] {
        let sandbox = node
            .runtime()
            .run_pod_sandbox(&node.sandbox())
            .await
            .unwrap();
        // Refused, or run to no effect.
        if let Ok(id) = node
            .runtime()
            .create_container(&sandbox.id, &container(&[command]))
            .await
            && node.runtime().start_container(&id).await.is_ok()
        {
            assert_ne!(node.exited(&id).await.0, 0, "{command}");
        }
        let words = [command.to_owned()];
        let _ = node
            .runtime()
            .exec_sync(&id, &words, std::time::Duration::from_secs(5))
            .await;
    }
    assert_eq!(
        (
            std::fs::read(shim_path()).unwrap(),
            std::fs::read(&helper).unwrap()
        ),
        before
    );
    assert_eq!(
        node.exec(&id, "echo still").await.stdout,
        b"still\n",
        "and the helper works"
    );
    node.finish().await;
}
