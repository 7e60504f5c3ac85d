//! Commands in running containers, and their streams.

use std::time::{Duration, Instant};

use coracle_agent::runtime::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::harness::*;

fn words(command: &[&str]) -> Vec<String> {
    command.iter().map(|word| (*word).to_owned()).collect()
}

fn request(command: &[&str], tty: bool) -> ExecRequest {
    ExecRequest {
        command: words(command),
        stdin: true,
        stdout: true,
        stderr: !tty,
        tty,
    }
}

#[tokio::test]
async fn command_gives_output_and_exit_code() {
    let Some(node) = node().await else { return };
    let (_, id) = node.run(&container(&["sleep", "1000"])).await;
    let result = node.exec(&id, "echo out; echo err >&2; exit 5").await;
    assert_eq!(
        (result.exit_code, &*result.stdout, &*result.stderr),
        (5, &b"out\n"[..], &b"err\n"[..])
    );
    let outcome = node
        .runtime()
        .exec_sync(&id, &words(&["nope"]), LIMIT)
        .await;
    assert!(
        outcome
            .unwrap_err()
            .to_string()
            .contains("executable file not found")
    );
    node.finish().await;
}

/// A signal that is blocked or ignored stays so over exec: a shell that waits for its children
/// would wait for ever.
#[tokio::test]
async fn signals_do_what_they_do_in_a_new_process() {
    let Some(node) = node().await else { return };
    let (_, id) = node.run(&container(&["sleep", "1000"])).await;
    for who in ["self", "1"] {
        let result = node
            .exec(&id, &format!("grep Sig /proc/{who}/status"))
            .await;
        let text = String::from_utf8(result.stdout).unwrap();
        let mask = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
        };
        assert_eq!(mask("SigBlk:"), 0, "{who}: {text}");
        // A shell ignores SIGQUIT; the C library keeps two of the real-time signals to itself.
        assert_eq!(mask("SigIgn:") & 0x7fff_fffb, 0, "{who}: {text}");
    }
    let result = node
        .exec(&id, "(sleep 0.1; echo a) & (echo b) & wait")
        .await;
    assert_eq!((result.exit_code, result.stdout.len()), (0, 4));
    node.finish().await;
}

#[tokio::test]
async fn command_runs_in_the_container_as_its_user() {
    let Some(node) = node().await else { return };
    let security = SecurityContext {
        run_as_user: Some(1000),
        supplemental_groups: vec![77],
        ..SecurityContext::default()
    };
    let env = vec![("A".to_owned(), "b c".to_owned())];
    let config = ContainerConfig {
        security,
        env,
        working_dir: Some("/tmp".into()),
        ..container(&["sleep", "1000"])
    };
    let (_, id) = node.run(&config).await;
    let result = node.exec(&id, "id; pwd; echo $A; echo $HOME; hostname; cat /proc/self/cgroup; readlink /proc/1/exe; kill -0 1 && echo same").await;
    let text = String::from_utf8(result.stdout).unwrap();
    for part in [
        "uid=1000(web) gid=1000(web)",
        "77",
        "2000(extra)",
        "/tmp\nb c\n/tmp\n",
        "pod-0",
        &id.0,
        "/bin/busybox",
        "same",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    node.finish().await;
}

#[tokio::test]
async fn late_command_is_killed_with_what_it_left() {
    let Some(node) = node().await else { return };
    let (_, id) = node.run(&container(&["sleep", "1000"])).await;
    let began = Instant::now();
    let command = words(&["sh", "-c", "sleep 987 & sleep 986"]);
    let outcome = node
        .runtime()
        .exec_sync(&id, &command, Duration::from_millis(500))
        .await;
    assert!(
        matches!(outcome, Err(RuntimeError::Timeout { .. })),
        "{outcome:?}"
    );
    assert!(began.elapsed() < Duration::from_secs(5));
    eventually("leftovers are gone", || {
        !run_command("ps axo args").contains("sleep 98")
    })
    .await;
    node.finish().await;
}

#[tokio::test]
async fn descendant_holding_stdout_is_killed_at_the_timeout() {
    let Some(node) = node().await else { return };
    let (_, id) = node.run(&container(&["sleep", "1000"])).await;
    let command = words(&["sh", "-c", "sleep 985 & echo done"]);
    let result = node
        .runtime()
        .exec_sync(&id, &command, Duration::from_millis(700))
        .await
        .unwrap();
    assert_eq!((result.exit_code, &*result.stdout), (0, &b"done\n"[..]));
    eventually("the descendant is gone", || {
        !run_command("ps axo args").contains("sleep 985")
    })
    .await;
    node.finish().await;
}

#[tokio::test]
async fn endless_output_is_bounded() {
    let Some(node) = node().await else { return };
    let (_, id) = node.run(&container(&["sleep", "1000"])).await;
    let command = words(&["head", "-c", "40000000", "/dev/zero"]);
    let result = node
        .runtime()
        .exec_sync(&id, &command, LIMIT)
        .await
        .unwrap();
    assert_eq!((result.exit_code, result.stdout.len()), (0, 16 << 20));
    node.finish().await;
}

#[tokio::test]
async fn stdin_reaches_the_command_and_ends_it() {
    let Some(node) = node().await else { return };
    let (_, id) = node.run(&container(&["sleep", "1000"])).await;
    let mut session = node
        .runtime()
        .exec(
            &id,
            &request(&["sh", "-c", "cat; echo end >&2; exit 4"], false),
        )
        .await
        .unwrap();
    let data = vec![b'x'; 3 << 20];
    let mut stdin = session.stdin.take().unwrap();
    let sent = data.clone();
    let writer = coracle_telemetry::spawn("task of a test", async move {
        stdin.write_all(&sent).await.unwrap();
        stdin.shutdown().await.unwrap();
    });
    let (mut out, mut err) = (Vec::new(), String::new());
    session
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut out)
        .await
        .unwrap();
    session
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut err)
        .await
        .unwrap();
    writer.await.unwrap();
    assert_eq!(out.len(), data.len());
    assert_eq!(err, "end\n");
    assert_eq!(session.exit.await.unwrap(), 4);
    node.finish().await;
}

#[tokio::test]
async fn terminal_has_the_size_it_was_given() {
    let Some(node) = node().await else { return };
    let (_, id) = node.run(&container(&["sleep", "1000"])).await;
    let mut session = node
        .runtime()
        .exec(
            &id,
            &request(
                &[
                    "sh",
                    "-c",
                    "read x; stty size; test -t 0 && echo tty; exit 6",
                ],
                true,
            ),
        )
        .await
        .unwrap();
    session.resize.send((123, 45)).await.unwrap();
    tokio::task::yield_now().await;
    session
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"go\n")
        .await
        .unwrap();
    let mut out = String::new();
    tokio::time::timeout(
        LIMIT,
        session.stdout.take().unwrap().read_to_string(&mut out),
    )
    .await
    .unwrap()
    .unwrap();
    assert!(out.contains("45 123") && out.contains("tty"), "{out:?}");
    assert_eq!(session.exit.await.unwrap(), 6);
    node.finish().await;
}

#[tokio::test]
async fn dropped_session_kills_the_command() {
    let Some(node) = node().await else { return };
    let (_, id) = node.run(&container(&["sleep", "1000"])).await;
    let session = node
        .runtime()
        .exec(&id, &request(&["sleep", "984"], false))
        .await
        .unwrap();
    eventually("it runs", || {
        run_command("ps axo args").contains("sleep 984")
    })
    .await;
    drop(session);
    eventually("it is gone", || {
        !run_command("ps axo args").contains("sleep 984")
    })
    .await;
    node.finish().await;
}

#[tokio::test]
async fn attached_terminal_talks_both_ways_and_is_logged() {
    let Some(node) = node().await else { return };
    let config = ContainerConfig {
        stdin: true,
        tty: true,
        ..shell("echo ready; read x; echo got $x; stty size; exit 2")
    };
    let (_, id) = node.run(&config).await;
    node.logged(&id, "ready").await;
    let mut session = node
        .runtime()
        .attach(&id, &request(&[], true))
        .await
        .unwrap();
    session.resize.send((80, 25)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    session
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"word\n")
        .await
        .unwrap();
    let mut out = String::new();
    tokio::time::timeout(
        LIMIT,
        session.stdout.take().unwrap().read_to_string(&mut out),
    )
    .await
    .unwrap()
    .unwrap();
    assert!(out.contains("got word") && out.contains("25 80"), "{out:?}");
    assert_eq!(session.exit.await.unwrap(), 2);
    assert!(node.log(&id).await.contains("got word"));
    node.finish().await;
}

#[tokio::test]
async fn attached_reader_that_stalls_does_not_stall_the_container() {
    let Some(node) = node().await else { return };
    let config = ContainerConfig {
        stdin: true,
        ..shell("read x; yes | head -n 1000000; echo finished")
    };
    let (_, id) = node.run(&config).await;
    let mut session = node
        .runtime()
        .attach(&id, &request(&[], false))
        .await
        .unwrap();
    session
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"go\n")
        .await
        .unwrap();
    assert_eq!(node.exited(&id).await.0, 0);
    assert!(node.log(&id).await.ends_with("finished\n"));
    node.finish().await;
}

#[tokio::test]
async fn port_forward_reaches_the_pods_loopback() {
    let Some(node) = node().await else { return };
    let (sandbox, id) = node
        .run(&shell("echo hello | nc -l -p 8080; sleep 100"))
        .await;
    eventually("it listens", || {
        run_command(&format!(
            "nsenter --net={} cat /proc/net/tcp /proc/net/tcp6",
            node.dir
                .path()
                .join("run/sandboxes")
                .join(&sandbox.0)
                .join("ns/net")
                .display()
        ))
        .contains(":1F90")
    })
    .await;
    let mut stream = node.runtime().port_forward(&sandbox, 8080).await.unwrap();
    let mut text = String::new();
    tokio::time::timeout(LIMIT, stream.read_to_string(&mut text))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(text, "hello\n");
    assert!(node.runtime().port_forward(&sandbox, 8081).await.is_err());
    node.runtime()
        .stop_container(&id, Duration::ZERO)
        .await
        .unwrap();
    node.finish().await;
}
