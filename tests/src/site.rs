//! Hosts on one test's ground: namespaces joined by a bridge, a directory, a cgroup; undone with
//! it, however the test ends.
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
};

use coracle_ground::Ground;

use crate::process::{run, succeed};

/// A directory, network namespaces and a cgroup of one test, undone when it is dropped.
#[derive(Debug)]
pub struct Site {
    ground: Ground,
}

impl Site {
    /// Makes the directory and the hub.
    pub fn new() -> Self {
        let site = Self {
            ground: Ground::new(),
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
        self.ground.path()
    }

    /// A directory below it, made.
    pub fn subdir(&self, name: &str) -> PathBuf {
        let path = self.dir().join(name);
        std::fs::create_dir_all(&path).expect("make a directory");
        path
    }

    /// A directory in memory, as `/run` is on every Debian.
    pub fn memory_dir(&self, name: &str) -> PathBuf {
        let path = self.subdir(name);
        succeed(
            Command::new("mount")
                .args(["-t", "tmpfs", "-o", "mode=0755", self.ground.name()])
                .arg(&path),
        );
        path
    }

    /// The cgroup of a host's node.
    pub fn cgroup(&self, host: &str) -> String {
        format!("/{}/{host}", self.ground.name())
    }

    /// The full name of a host's namespace.
    pub fn namespace(&self, host: &str) -> String {
        format!("{}-{host}", self.ground.name())
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
        if std::env::var_os("CORACLE_KEEP").is_some() && std::thread::panicking() {
            let dir = self.dir().display();
            match self.ground.keep() {
                Ok(()) => eprintln!("CORACLE_KEEP is set: {dir} and its namespaces stay"),
                Err(error) => eprintln!("CORACLE_KEEP is set, but {dir} goes: {error}"),
            }
        }
    }
}
