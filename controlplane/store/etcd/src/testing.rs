//! An etcd for a test: processes on loopback addresses of their own, ended with the value, at the
//! latest with the test.
//!
//! The program is `etcd` in `CORACLE_TOOLS` (`tests/deps.sh`), else of the system.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::config::EtcdConfig;

/// Where files may be that nobody needs after the test: a sync costs nothing there.
const MEMORY: &str = "/dev/shm";

/// Members of one etcd.
pub struct Etcd {
    members: Vec<Member>,
    /// Of the data.
    dir: TempDir,
    scheme: &'static str,
}

struct Member {
    command: Vec<String>,
    client: String,
    child: Option<Child>,
}

impl Etcd {
    /// Starts so many members; `None`, and a word about it, where there is no etcd.
    ///
    /// # Panics
    /// If there is none and `REQUIRE_ROOT` is set, as all tests have it; if it does not start.
    #[must_use]
    pub fn start(members: u16) -> Option<Self> {
        Self::start_with(members, "http", &[])
    }

    /// The same with a scheme for clients, and more flags.
    ///
    /// # Panics
    /// As [`Etcd::start`].
    #[must_use]
    pub fn start_with(members: u16, scheme: &'static str, flags: &[String]) -> Option<Self> {
        let program = program()?;
        let dir = if Path::new(MEMORY).is_dir() {
            tempfile::tempdir_in(MEMORY)
        } else {
            tempfile::tempdir()
        };
        let dir = dir.expect("tests can make temporary directories");
        let hosts: Vec<(String, u16)> = (0..members).map(|_| address()).collect();
        let peers: Vec<String> = hosts
            .iter()
            .enumerate()
            .map(|(number, (host, port))| format!("m{number}=http://{host}:{}", port + 1))
            .collect();
        let all = hosts.iter().enumerate().map(|(number, (host, port))| {
            let client = format!("{scheme}://{host}:{port}");
            let peer = format!("http://{host}:{}", port + 1);
            let data = dir.path().join(format!("m{number}"));
            let mut command = vec![program.display().to_string()];
            for (flag, value) in [
                ("name", &format!("m{number}")),
                ("data-dir", &data.display().to_string()),
                ("listen-client-urls", &client),
                ("advertise-client-urls", &client),
                ("listen-peer-urls", &peer),
                ("initial-advertise-peer-urls", &peer),
                ("initial-cluster", &peers.join(",")),
                ("heartbeat-interval", &"50".to_owned()),
                ("election-timeout", &"500".to_owned()),
            ] {
                command.push(format!("--{flag}={value}"));
            }
            command.extend_from_slice(flags);
            Member {
                command,
                client,
                child: None,
            }
        });
        let mut etcd = Self {
            members: all.collect(),
            dir,
            scheme,
        };
        for number in 0..etcd.members.len() {
            etcd.run(number);
        }
        Some(etcd)
    }

    /// How to reach all members.
    #[must_use]
    pub fn config(&self) -> EtcdConfig {
        EtcdConfig::new(self.urls())
    }

    /// What clients call them.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.members
            .iter()
            .map(|member| member.client.clone())
            .collect()
    }

    /// The scheme of clients.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// Starts a member, again after [`Etcd::kill`].
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn run(&mut self, number: usize) {
        let log = self.dir.path().join(format!("m{number}.log"));
        let log = File::options().create(true).append(true).open(log);
        let log = log.expect("a log can be written");
        let member = &mut self.members[number];
        let mut command = Command::new("setpriv");
        // Also when the test is killed.
        command
            .args(["--pdeathsig", "KILL", "--"])
            .args(&member.command);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ETCD_") {
                command.env_remove(name);
            }
        }
        command
            .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        member.child = Some(command.spawn().expect("etcd starts"));
    }

    /// Ends a member at once.
    pub fn kill(&mut self, number: usize) {
        if let Some(mut child) = self.members[number].child.take() {
            // One that has ended by itself is ended, too.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Lets a member do nothing, but stay.
    pub fn pause(&self, number: usize) {
        self.signal(number, Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self, number: usize) {
        self.signal(number, Signal::CONT);
    }

    fn signal(&self, number: usize, signal: Signal) {
        let child = self.members[number].child.as_ref();
        let pid = child.and_then(|child| Pid::from_raw(child.id().cast_signed()));
        if let Some(pid) = pid {
            kill_process(pid, signal).expect("the member is there");
        }
    }

    /// All that is on the disks of the members, one file after the other.
    ///
    /// # Panics
    /// If it cannot be read.
    #[must_use]
    pub fn files(&self) -> Vec<u8> {
        let mut found = Vec::new();
        let mut directories = vec![self.dir.path().to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).expect("the data is there") {
                let path = entry.expect("the data is there").path();
                if path.is_dir() {
                    directories.push(path);
                } else {
                    let mut file = std::fs::read(path).unwrap_or_default();
                    // The log is made long before it is filled.
                    let end = file.iter().rposition(|byte| *byte != 0);
                    file.truncate(end.map_or(0, |end| end + 1));
                    found.append(&mut file);
                }
            }
        }
        found
    }

    /// Where a member keeps its data.
    #[must_use]
    pub fn data(&self, number: usize) -> PathBuf {
        self.dir.path().join(format!("m{number}"))
    }

    /// What a member has logged.
    #[must_use]
    pub fn log(&self, number: usize) -> String {
        let path = self.dir.path().join(format!("m{number}.log"));
        std::fs::read_to_string(path).unwrap_or_default()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for number in 0..self.members.len() {
            self.kill(number);
        }
    }
}

/// A loopback address that no other test has at this time, and a port.
fn address() -> (String, u16) {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = format!("127.{}.{middle}.{low}", 64 + (high & 0x3f));
    (host, 2379 + 2 * NEXT.fetch_add(1, Ordering::Relaxed))
}

fn program() -> Option<PathBuf> {
    let tools = std::env::var_os("CORACLE_TOOLS").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = tools
        .into_iter()
        .chain(std::env::split_paths(&path))
        .map(|dir| dir.join("etcd"))
        .find(|program| program.is_file());
    assert!(
        found.is_some() || std::env::var_os("REQUIRE_ROOT").is_none(),
        "there is no etcd: tests/deps.sh brings it"
    );
    if found.is_none() {
        #[allow(clippy::print_stderr, reason = "tests say what they do not do")]
        {
            eprintln!("skipped: there is no etcd");
        }
    }
    found
}
