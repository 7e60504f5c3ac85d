//! One test's ground: a directory, namespaces joined by a bridge, a cgroup; all named after the
//! test's process.
//!
//! ```text
//!   namespace NAME-hub: br0 198.18.0.254/24      (no uplink: nothing can leave the machine)
//!      |            |             |
//!   NAME-server   NAME-n1       NAME-n2    ...   eth0 198.18.0.<k>/24, default route into the bridge
//! ```
//! The default route leads nowhere; it exists because the kernel wants a route before it translates
//! a Service address.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::process::{run, succeed};

static SITES: AtomicU32 = AtomicU32::new(0);

/// A directory, network namespaces and a cgroup of one test, undone when it is dropped.
#[derive(Debug)]
pub struct Site {
    name: String,
    dir: PathBuf,
    hosts: Vec<String>,
    /// What is mounted below `dir`.
    memory: Mutex<Vec<PathBuf>>,
}

impl Site {
    /// Makes the directory and the hub.
    pub fn new() -> Self {
        let name = format!(
            "ct{}x{}",
            std::process::id(),
            SITES.fetch_add(1, Ordering::Relaxed)
        );
        let dir = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&dir).expect("make the test's directory");
        let site = Self {
            name,
            dir,
            hosts: Vec::new(),
            memory: Mutex::default(),
        };
        let hub = site.namespace("hub");
        succeed(Command::new("ip").args(["netns", "add", &hub]));
        site.within("hub", &["ip", "link", "set", "lo", "up"]);
        site.within("hub", &["ip", "link", "add", "br0", "type", "bridge"]);
        site.within(
            "hub",
            &["ip", "address", "add", "198.18.0.254/24", "dev", "br0"],
        );
        site.within("hub", &["ip", "link", "set", "br0", "up"]);
        site
    }

    /// Adds a host with the address `198.18.0.<last>`.
    pub fn add_host(&mut self, host: &str, last: u8) -> String {
        let namespace = self.namespace(host);
        succeed(Command::new("ip").args(["netns", "add", &namespace]));
        self.hosts.push(host.to_owned());
        let port = format!("p{last}");
        self.within(
            "hub",
            &[
                "ip", "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns",
                &namespace,
            ],
        );
        self.within("hub", &["ip", "link", "set", &port, "master", "br0", "up"]);
        let address = format!("198.18.0.{last}");
        for line in [
            "ip link set lo up".to_owned(),
            format!("ip address add {address}/24 dev eth0"),
            "ip link set eth0 up".to_owned(),
            "ip route add default via 198.18.0.254".to_owned(),
        ] {
            self.within(host, &line.split(' ').collect::<Vec<_>>());
        }
        address
    }

    /// Cuts a host off from the others, or joins it again.
    pub fn set_link(&self, last: u8, up: bool) {
        self.within(
            "hub",
            &[
                "ip",
                "link",
                "set",
                &format!("p{last}"),
                if up { "up" } else { "down" },
            ],
        );
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A directory below it, made.
    pub fn subdir(&self, name: &str) -> PathBuf {
        let path = self.dir.join(name);
        std::fs::create_dir_all(&path).expect("make a directory");
        path
    }

    /// A directory in memory, as `/run` is on every Debian.
    pub fn memory_dir(&self, name: &str) -> PathBuf {
        let path = self.subdir(name);
        succeed(
            Command::new("mount")
                .args(["-t", "tmpfs", "-o", "mode=0755", &self.name])
                .arg(&path),
        );
        self.memory
            .lock()
            .expect("nobody panics with it")
            .push(path.clone());
        path
    }

    /// The cgroup of a host's node.
    pub fn cgroup(&self, host: &str) -> String {
        format!("/{}/{host}", self.name)
    }

    /// The full name of a host's namespace.
    pub fn namespace(&self, host: &str) -> String {
        format!("{}-{host}", self.name)
    }

    /// A command inside a host's network namespace. Not `ip netns exec`: that hides the cgroup
    /// mounts.
    pub fn command(&self, host: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", self.namespace(host)))
            .arg(program);
        command
    }

    /// Runs a command inside a host to its successful end.
    pub fn within(&self, host: &str, line: &[&str]) -> String {
        succeed(self.command(host, line[0]).args(&line[1..]))
    }

    /// The body of an HTTP page, or why there is none. Goes through curl inside the host's
    /// namespace.
    pub fn fetch(&self, host: &str, url: &str) -> Result<String, String> {
        let output = run(self.command(host, "curl").args([
            "--noproxy",
            "*",
            "-fsSv",
            "--max-time",
            "5",
            url,
        ]));
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

impl Default for Site {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let keep = std::env::var_os("CORACLE_KEEP").is_some() && std::thread::panicking();
        if keep {
            eprintln!(
                "CORACLE_KEEP is set: {} and its namespaces stay",
                self.dir.display()
            );
            return;
        }
        for host in self.hosts.iter().map(String::as_str).chain(["hub"]) {
            run(Command::new("ip").args(["netns", "delete", &self.namespace(host)]));
        }
        crate::residue::remove_cgroups(&self.name);
        for path in self.memory.get_mut().expect("nobody panics with it") {
            run(Command::new("umount").args(["-R", "-l"]).arg(path));
        }
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            eprintln!("could not remove {}: {error}", self.dir.display());
        }
    }
}
