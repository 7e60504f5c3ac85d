//! Streams into processes: exec, run and attach.

use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
};

use coracle_tests::{
    cluster::Cluster,
    kubectl::{Kubectl, PATIENCE},
    process, wait,
};

use super::{PULL, md5};

pub(crate) fn exec_keeps_streams_apart_and_tells_the_exit_code(kubectl: &Kubectl) {
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

pub(crate) fn exec_takes_binary_input(cluster: &Cluster, kubectl: &Kubectl) {
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
pub(crate) fn exec_with_a_terminal_has_its_size(kubectl: &Kubectl) {
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

pub(crate) fn run_waits_for_the_end_of_its_command(kubectl: &Kubectl, index: usize) {
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

pub(crate) fn attach_joins_the_main_process(kubectl: &Kubectl, pod: &str) {
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

/// The same command, ended after some seconds.
fn limited(command: &Command) -> Command {
    let mut limited = Command::new("timeout");
    limited
        .arg("3")
        .arg(command.get_program())
        .args(command.get_args());
    limited
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
