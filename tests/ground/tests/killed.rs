//! What a test leaves that is killed: nothing. A victim makes a ground and all that can be on one,
//! and is killed; each is this program again, with `VICTIM` in its environment.
//!
//! Needs root; skips visibly without, fails if `REQUIRE_ROOT` is set.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails and talks this way"
)]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use coracle_ground::{Ground, is_root_or_skip};
use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};

/// How long what outlives a victim may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Not a test by itself: makes a ground, says so, and waits to be killed.
#[test]
#[ignore = "the others start it"]
fn victim() {
    let ground = Ground::named("victim");
    let (name, path) = (ground.name(), ground.path());
    run("ip", &["netns", "add", &format!("{name}-host")]);
    let memory = path.join("in memory");
    fs::create_dir(&memory).unwrap();
    run("mount", &["-t", "tmpfs", name, memory.to_str().unwrap()]);
    fs::write(memory.join("file"), "x").unwrap();
    for top in hierarchies() {
        // A hierarchy may refuse it, as cpuset does without CPUs.
        let _ = fs::create_dir_all(top.join(name).join("pod/container"));
    }
    let within = format!("--net=/run/netns/{name}-host");
    let starts = |command: &mut Command, stderr: Stdio| {
        // In a group of its own, as what a shim starts.
        command.process_group(0).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(stderr);
        command.spawn().unwrap().id()
    };
    let sleep = |stderr| starts(Command::new("sleep").arg("600"), stderr);
    let mut inside = Command::new("nsenter");
    let inside = starts(inside.args([&within, "sleep", "600"]), Stdio::null());
    let log = fs::File::create(path.join("log")).unwrap();
    let (logging, contained) = (sleep(log.into()), sleep(Stdio::null()));
    let procs = hierarchies().map(|top| top.join(name).join("pod/container/cgroup.procs"));
    let joined = procs.filter(|procs| fs::write(procs, contained.to_string()).is_ok());
    assert_ne!(joined.count(), 0, "a process joined its cgroup");
    println!(
        "\nground {} {} {inside} {logging} {contained}",
        path.display(),
        ground.keeper()
    );
    // Until whoever has started it ends.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// A victim, and what it has said of its ground.
struct Victim {
    child: Child,
    /// Open, so that it can say more.
    _stdout: BufReader<ChildStdout>,
    path: PathBuf,
    keeper: Pid,
    processes: Vec<String>,
}

impl Victim {
    /// Starts one with its ground in `parent`.
    fn start(parent: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim", "--ignored", "--nocapture"])
            .env("TMPDIR", parent)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let lines = stdout.by_ref().lines().map_while(Result::ok);
        let mut said = lines.filter_map(|line| line.strip_prefix("ground ").map(str::to_owned));
        let said = said.next().expect("the victim has made its ground");
        let mut words = said.split(' ').map(str::to_owned);
        Self {
            child,
            _stdout: stdout,
            path: words.next().unwrap().into(),
            keeper: Pid::from_raw(words.next().unwrap().parse().unwrap()),
            processes: words.collect(),
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// What is there of its ground, one line each.
    fn left(&self) -> Vec<String> {
        let name = self.path.file_name().unwrap().to_str().unwrap();
        let mut left = Vec::new();
        if self.path.exists() {
            left.push(format!("directory {}", self.path.display()));
        }
        let pins = fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let pins = pins.map(|pin| pin.file_name().to_string_lossy().into_owned());
        left.extend(pins.filter(|pin| pin.starts_with(name)));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mounts = mounts.lines().filter(|line| line.contains(name));
        left.extend(mounts.map(|line| format!("mount {line}")));
        let cgroups = hierarchies().map(|top| top.join(name));
        let cgroups = cgroups.filter(|path| path.exists());
        left.extend(cgroups.map(|path| format!("cgroup {}", path.display())));
        let alive = self.processes.iter().filter(|pid| is_alive(pid));
        left.extend(alive.map(|pid| format!("process {pid}")));
        left
    }

    #[allow(clippy::disallowed_methods, reason = "waits for the kernel")]
    fn wait_until_nothing_is_left(&self) {
        let end = Instant::now() + LIMIT;
        while !self.left().is_empty() {
            assert!(Instant::now() < end, "left behind: {:#?}", self.left());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn nothing_is_left_of_a_killed_test() {
    if !is_root_or_skip() {
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    // Of the test alone; of all that a terminal or a runner of tests reaches.
    for (signal, group) in [
        (Signal::SIGKILL, false),
        (Signal::SIGINT, true),
        (Signal::SIGTERM, true),
        (Signal::SIGKILL, true),
    ] {
        let mut victim = Victim::start(parent.path());
        let left = victim.left();
        assert!(left.len() > 6, "directory, pin, mounts, cgroups: {left:#?}");
        if group {
            killpg(victim.pid(), signal).unwrap();
        } else {
            kill(victim.pid(), signal).unwrap();
        }
        victim.child.wait().unwrap();
        victim.wait_until_nothing_is_left();
    }
}

#[test]
fn a_ground_without_owner_or_keeper_goes_with_the_next_and_no_other_does() {
    if !is_root_or_skip() {
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    let mut alive = Victim::start(parent.path());
    let mut dead = Victim::start(parent.path());
    kill(dead.keeper, Signal::SIGKILL).unwrap();
    dead.child.kill().unwrap();
    dead.child.wait().unwrap();
    let left = dead.left();
    assert!(left.len() > 6, "nobody has undone it: {left:#?}");
    let there = alive.left();
    let mut next = Victim::start(parent.path());
    // A process that has said what its own ground is has undone the others.
    assert_eq!(dead.left(), Vec::<String>::new());
    assert_eq!(alive.left(), there);
    for victim in [&mut alive, &mut next] {
        // Nobody kills these: they end, and wait until all is undone.
        drop(victim.child.stdin.take());
        assert!(victim.child.wait().unwrap().success());
        assert_eq!(victim.left(), Vec::<String>::new());
    }
}

#[test]
fn what_is_to_be_kept_stays() {
    let ground = Ground::new();
    let path = ground.path().to_owned();
    ground.keep().unwrap();
    drop(ground);
    assert!(path.is_dir());
    fs::remove_dir_all(path).unwrap();
}

fn is_alive(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // What nobody has waited for is none.
    status
        .rsplit(") ")
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

/// As in a ground: of version 2, and below it those of version 1.
fn hierarchies() -> impl Iterator<Item = PathBuf> {
    let top = PathBuf::from("/sys/fs/cgroup");
    let below = fs::read_dir(&top)
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let below: Vec<PathBuf> = below
        .filter(|path| path.join("cgroup.procs").exists() && !path.is_symlink())
        .collect();
    // Version 2 has its own file at the top; its other directories are cgroups of somebody.
    if top.join("cgroup.procs").exists() {
        vec![top].into_iter()
    } else {
        below.into_iter()
    }
}

fn run(program: &str, words: &[&str]) {
    let status = Command::new(program).args(words).status().unwrap();
    assert!(status.success(), "{program} {words:?}: {status}");
}
