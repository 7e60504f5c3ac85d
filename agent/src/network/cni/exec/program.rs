//! One run of a plugin: a configuration in, an answer out.
//!
//! A plugin runs others (flannel runs bridge, bridge runs host-local). Those must not go on when it
//! is given up: what they attached after its DEL would stay. So it leads a process group, which
//! ends as a whole.

use std::{
    io,
    process::{Output, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    time::{sleep, timeout},
};

/// For what a plugin says: results have a few hundred bytes.
const OUTPUT_MAX: u64 = 1 << 20;
/// How often, and how far apart, a program that is being written is tried again.
const RETRIES: usize = 5;
const PAUSE: Duration = Duration::from_secs(1);
/// For what an ended plugin has said.
const GRACE: Duration = Duration::from_secs(2);

/// Runs a plugin with `input` on its stdin to its end, or until this is dropped: then it ends with
/// all that it has started.
pub(super) async fn answer(mut plugin: Command, input: String) -> io::Result<Output> {
    plugin
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = spawn(&mut plugin).await?;
    let group = Group::of(&child);
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut pipe) = stdin {
            // A plugin that does not read its configuration tells why on stdout.
            drop(pipe.write_all(input.as_bytes()).await);
        }
        Ok(())
    };
    // The first that fails ends the plugin.
    let said = async { tokio::try_join!(write, read(stdout), read(stderr)) };
    tokio::pin!(said);
    let (((), stdout, stderr), status) = tokio::select! {
        said = &mut said => (said?, child.wait().await?),
        status = child.wait() => (rest(said).await?, status?),
    };
    group.has_ended();
    Ok(Output {
        status,
        stdout,
        stderr,
    })
}

/// Starts a plugin. A program that is being written (by whoever installs it, in place) cannot be
/// started, and will be there in a moment.
///
/// Source: `RawExec.ExecPlugin` in containernetworking/cni `pkg/invoke/raw_exec.go`.
async fn spawn(plugin: &mut Command) -> io::Result<Child> {
    for _ in 0..RETRIES {
        match plugin.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => sleep(PAUSE).await,
            started => return started,
        }
    }
    plugin.spawn()
}

/// What is still on its way when a plugin has ended. Whatever it has left behind may keep its
/// output open for ever.
async fn rest<T>(said: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match timeout(GRACE, said).await {
        Ok(said) => said,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "it has ended, and what it has started keeps its output open",
        )),
    }
}

/// All that a plugin says, which is held in memory.
async fn read(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(OUTPUT_MAX + 1).read_to_end(&mut bytes).await?;
    }
    if bytes.len() as u64 > OUTPUT_MAX {
        let why = format!("it writes more than {OUTPUT_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// A plugin and all that it has started; killed when this is dropped.
struct Group(Option<Pid>);

impl Group {
    fn of(leader: &Child) -> Self {
        let id = leader.id().and_then(|id| i32::try_from(id).ok());
        Self(id.map(Pid::from_raw))
    }

    /// Its number may be somebody else's from now on.
    fn has_ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // ESRCH: it has ended by itself.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[tokio::test]
    async fn a_program_that_is_being_written_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("plugin");
        fs::copy("/bin/cat", &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let writer = fs::File::options().write(true).open(&program).unwrap();
        let busy = std::process::Command::new(&program).spawn().unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ExecutableFileBusy);
        let run = coracle_telemetry::spawn("a plugin", {
            let plugin = Command::new(&program);
            async move { answer(plugin, "{}".to_owned()).await }
        });
        sleep(Duration::from_millis(200)).await;
        assert!(!run.is_finished(), "it is given up at once");
        drop(writer);
        assert_eq!(run.await.unwrap().unwrap().stdout, b"{}");
    }

    #[tokio::test]
    async fn a_plugin_that_talks_without_end_is_ended() {
        let said = async |script: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]);
            answer(shell, "{}".to_owned()).await
        };
        let output = said("cat; echo why >&2; exit 3").await.unwrap();
        assert_eq!(
            (output.status.code(), &*output.stdout, &*output.stderr),
            (Some(3), &b"{}"[..], &b"why\n"[..])
        );
        for stream in ["1", "2"] {
            let error = said(&format!("while :; do echo on and on; done >&{stream}")).await;
            assert_eq!(
                error.unwrap_err().to_string(),
                "it writes more than 1048576 bytes"
            );
        }
    }

    #[tokio::test]
    async fn what_an_ended_plugin_leaves_behind_holds_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let started = dir.path().join("started");
        let mut shell = Command::new("sh");
        let script = "sleep 600 & echo $! >\"$0\"; echo {}";
        shell.args(["-c", script]).arg(&started);
        let run = timeout(Duration::from_secs(20), answer(shell, "{}".to_owned()));
        let error = run.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("keeps its output open"), "{error}");
        let pid = fs::read_to_string(&started).unwrap();
        let stat = std::path::Path::new("/proc").join(pid.trim()).join("stat");
        let is_there = || fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z "));
        let gone = timeout(Duration::from_secs(20), async {
            while is_there() {
                sleep(Duration::from_millis(10)).await;
            }
        });
        gone.await.unwrap();
        // What lets go of the output may stay.
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 1 >/dev/null 2>&1 & echo {}"]);
        let output = answer(shell, "{}".to_owned()).await.unwrap();
        assert_eq!(output.stdout, b"{}\n");
    }

    #[tokio::test]
    async fn what_a_plugin_has_started_ends_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let started = dir.path().join("started");
        let mut shell = Command::new("sh");
        let script = "sleep 600 & echo $! >\"$0.part\"; mv \"$0.part\" \"$0\"; wait";
        shell.args(["-c", script]).arg(&started);
        let run = coracle_telemetry::spawn("a plugin", answer(shell, "{}".to_owned()));
        let limit = Duration::from_secs(20);
        let pid = tokio::time::timeout(limit, async {
            loop {
                match std::fs::read_to_string(&started) {
                    Ok(text) => return text.trim().to_owned(),
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        });
        let pid = pid.await.unwrap();
        run.abort();
        let stat = std::path::PathBuf::from("/proc").join(pid).join("stat");
        let gone = tokio::time::timeout(limit, async {
            // Without a parent that waits for it, it may stay as a zombie.
            while std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z ")) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        gone.await.unwrap();
    }
}
