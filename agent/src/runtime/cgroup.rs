//! The pod's cgroup: made with its limits in every hierarchy, emptied, removed. v1, hybrid and v2.
//!
//! Container cgroups below it are libcontainer's and the shim's. Blocking; short.

mod limits;

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use super::{ContainerStats, Resources, RuntimeError};

/// A killed process keeps its cgroup busy until the kernel is done with it.
const REMOVE_ATTEMPTS: u32 = 100;
const REMOVE_PAUSE: Duration = Duration::from_millis(5);

/// Controllers that containers are put under on v2.
const V2_CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// Mounted hierarchies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hierarchies {
    /// v1: mount point and controllers.
    v1: Vec<(PathBuf, Vec<String>)>,
    /// v2 mount point.
    unified: Option<PathBuf>,
}

/// Ends what runs in a cgroup and removes it, everything below it, and every parent that is empty
/// then.
///
/// # Errors
/// What cannot be removed; trying again is harmless.
pub(crate) fn remove(path: &str) -> Result<(), RuntimeError> {
    let hierarchies = Hierarchies::detect()
        .map_err(|source| state("read", "/proc/self/mountinfo".into(), source))?;
    hierarchies.destroy(path, &BTreeSet::new())
}

impl Hierarchies {
    /// Those of this process's mount namespace.
    pub(super) fn detect() -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string("/proc/self/mountinfo")?))
    }

    fn parse(mountinfo: &str) -> Self {
        let mut found = Self::default();
        for line in mountinfo.lines() {
            let Some((left, right)) = line.split_once(" - ") else {
                continue;
            };
            let mut right = right.split(' ');
            let (kind, options) = (right.next().unwrap_or(""), right.nth(1).unwrap_or(""));
            let Some(point) = left.split(' ').nth(4) else {
                continue;
            };
            match kind {
                "cgroup" => {
                    let controllers: Vec<String> = options.split(',').map(str::to_owned).collect();
                    // A named hierarchy (systemd's) has no limits to give.
                    let named = controllers.iter().any(|option| option.starts_with("name="));
                    let twice = found.v1.iter().any(|(_, known)| known == &controllers);
                    if !named && !twice {
                        found.v1.push((PathBuf::from(point), controllers));
                    }
                }
                "cgroup2" if found.unified.is_none() => found.unified = Some(PathBuf::from(point)),
                _ => {}
            }
        }
        found
    }

    /// Nothing but the unified hierarchy.
    pub(super) fn is_v2(&self) -> bool {
        self.v1.is_empty() && self.unified.is_some()
    }

    /// Mount points in which a pod has a cgroup.
    pub(super) fn points(&self) -> impl Iterator<Item = &Path> {
        let unified = self.unified.as_deref().filter(|_| self.v1.is_empty());
        self.v1
            .iter()
            .map(|(point, _)| point.as_path())
            .chain(unified)
    }

    fn v1_point(&self, controller: &str) -> Option<&Path> {
        let has = |controllers: &[String]| controllers.iter().any(|own| own == controller);
        self.v1
            .iter()
            .find(|(_, controllers)| has(controllers))
            .map(|(point, _)| point.as_path())
    }

    /// Makes the cgroup with all parents and writes its limits. Idempotent.
    pub(super) fn create(&self, path: &str, resources: &Resources) -> Result<(), RuntimeError> {
        let relative = path.trim_matches('/');
        for point in self.points() {
            make(point, relative, self.is_v2())
                .map_err(|source| state("make the cgroup", point.join(relative), source))?;
        }
        self.write_limits(relative, resources)
    }

    /// Makes the next moves of processes between cgroups quick. The first one in a while waits for
    /// a grace period of the kernel's RCU (5 to 20 ms); those within some 20 ms after it do not. So
    /// one that moves nothing is made ahead of time: this process into the cgroup that it is in
    /// already. Says nothing when that fails: it is only slower.
    pub(super) fn hasten_moves(&self) {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        if let Some(directory) = self.locate(&own) {
            let _ = fs::write(directory.join("cgroup.procs"), "0");
        }
    }

    /// Where a process is in one of the hierarchies, from the text of its `/proc/<pid>/cgroup`.
    fn locate(&self, own: &str) -> Option<PathBuf> {
        own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let point = match controllers.split(',').next().unwrap_or("") {
                "" => self.unified.as_deref().filter(|_| self.v1.is_empty()),
                controller => self.v1_point(controller),
            };
            Some(point?.join(path.trim_matches('/')))
        })
    }

    /// Every process in the cgroup and below, in any hierarchy.
    pub(super) fn processes(&self, path: &str) -> Vec<i32> {
        let relative = path.trim_matches('/');
        let mut found = BTreeSet::new();
        if !relative.is_empty() {
            self.points()
                .for_each(|point| collect(&point.join(relative), &mut found));
        }
        found.into_iter().collect()
    }

    /// Kills every process in it until there is none (bounded), then removes it and every parent
    /// that is empty and not one of `kept`.
    #[allow(
        clippy::disallowed_methods,
        reason = "runs where it may block; the kernel gives no event to wait for on v1"
    )]
    pub(super) fn destroy(&self, path: &str, kept: &BTreeSet<String>) -> Result<(), RuntimeError> {
        let relative = path.trim_matches('/');
        if relative.is_empty() {
            return Ok(());
        }
        let mut last = None;
        for attempt in 0..REMOVE_ATTEMPTS {
            // All at once, where the kernel does that.
            if let Some(point) = self.unified.as_deref().filter(|_| self.is_v2()) {
                let _ = fs::write(point.join(relative).join("cgroup.kill"), "1");
            }
            // Each time anew: what forked meanwhile is still there, and what was killed takes a
            // while to go.
            for pid in self.processes(path) {
                let _ = nix::sys::signal::kill(
                    nix::unistd::Pid::from_raw(pid),
                    nix::sys::signal::Signal::SIGKILL,
                );
            }
            last = self
                .points()
                .filter_map(|point| remove_tree(&point.join(relative)).err())
                .last();
            if last.is_none() {
                break;
            }
            if attempt + 1 < REMOVE_ATTEMPTS {
                thread::sleep(REMOVE_PAUSE);
            }
        }
        if let Some((path, source)) = last {
            return Err(state("remove the cgroup", path, source));
        }
        // Parents that other pods share go with the last one's: the first that is not empty ends
        // the walk.
        for point in self.points() {
            let mut parent = Path::new(relative).parent();
            let stays = |parent: &Path| {
                parent
                    .to_str()
                    .is_none_or(|parent| parent.is_empty() || kept.contains(parent))
            };
            while let Some(relative) = parent.filter(|parent| !stays(parent)) {
                if fs::remove_dir(point.join(relative)).is_err() {
                    break;
                }
                parent = relative.parent();
            }
        }
        Ok(())
    }

    /// Usage of a container's cgroup.
    pub(super) fn stats(&self, path: &str) -> ContainerStats {
        let relative = path.trim_matches('/');
        let number = |path: PathBuf| {
            fs::read_to_string(path)
                .ok()
                .and_then(|text| text.trim().parse::<u64>().ok())
        };
        let field = |path: PathBuf, name: &str| {
            let text = fs::read_to_string(path).ok()?;
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        let (cpu, used, inactive, processes) = match (self.is_v2(), &self.unified) {
            (true, Some(point)) => {
                let directory = point.join(relative);
                (
                    field(directory.join("cpu.stat"), "usage_usec ").map(|micros| micros * 1000),
                    number(directory.join("memory.current")),
                    field(directory.join("memory.stat"), "inactive_file "),
                    number(directory.join("pids.current")),
                )
            }
            _ => {
                let below =
                    |controller: &str| self.v1_point(controller).map(|point| point.join(relative));
                (
                    below("cpuacct").and_then(|directory| number(directory.join("cpuacct.usage"))),
                    below("memory")
                        .and_then(|directory| number(directory.join("memory.usage_in_bytes"))),
                    below("memory").and_then(|directory| {
                        field(directory.join("memory.stat"), "total_inactive_file ")
                    }),
                    below("pids").and_then(|directory| number(directory.join("pids.current"))),
                )
            }
        };
        ContainerStats {
            cpu_usage_nanos: cpu.unwrap_or(0),
            // As cAdvisor: pages of files that nobody has read lately can be had back at any time.
            memory_working_set_bytes: used.unwrap_or(0).saturating_sub(inactive.unwrap_or(0)),
            processes: processes.unwrap_or(0),
        }
    }
}

/// Level by level: an empty parent may be removed by a pod that ends at the same time, then it
/// starts again.
fn make(point: &Path, relative: &str, v2: bool) -> io::Result<()> {
    const RACES: u32 = 10;
    let mut outcome = Ok(());
    for _ in 0..RACES {
        outcome = make_once(point, relative, v2);
        match &outcome {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            _ => return outcome,
        }
    }
    outcome
}

fn make_once(point: &Path, relative: &str, v2: bool) -> io::Result<()> {
    let mut directory = point.to_path_buf();
    for part in relative.split('/') {
        if v2 {
            for controller in V2_CONTROLLERS {
                let _ = fs::write(
                    directory.join("cgroup.subtree_control"),
                    format!("+{controller}"),
                );
            }
        }
        let parent = directory.clone();
        directory.push(part);
        match fs::create_dir(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // A v1 cpuset is born empty, and then takes no process.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let own = fs::read_to_string(directory.join(file));
            if !v2 && own.is_ok_and(|text| text.trim().is_empty()) {
                fs::write(directory.join(file), fs::read(parent.join(file))?)?;
            }
        }
    }
    if v2 {
        for controller in V2_CONTROLLERS {
            let _ = fs::write(
                directory.join("cgroup.subtree_control"),
                format!("+{controller}"),
            );
        }
    }
    Ok(())
}

fn collect(directory: &Path, found: &mut BTreeSet<i32>) {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    found.extend(
        text.lines()
            .filter_map(|line| line.parse::<i32>().ok())
            .filter(|pid| *pid > 0),
    );
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), found);
        }
    }
}

fn remove_tree(directory: &Path) -> Result<(), (PathBuf, io::Error)> {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err((directory.to_owned(), error)),
        _ => Ok(()),
    }
}

fn state(operation: &'static str, path: PathBuf, source: io::Error) -> RuntimeError {
    RuntimeError::State {
        operation,
        path,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hybrid_is_v1_without_named_hierarchies() {
        let text = "\
31 30 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
34 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
        let found = Hierarchies::parse(text);
        assert!(!found.is_v2());
        assert_eq!(
            found.points().collect::<Vec<_>>(),
            [Path::new("/sys/fs/cgroup/cpu,cpuacct")]
        );
        assert_eq!(
            found.v1_point("cpuacct"),
            Some(Path::new("/sys/fs/cgroup/cpu,cpuacct"))
        );
    }

    #[test]
    fn own_cgroup_is_located() {
        let mount = "31 30 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n34 30 0:29 / /cg2 rw - cgroup2 cgroup2 rw";
        let v1 = Hierarchies::parse(mount);
        let v2 = Hierarchies::parse("34 30 0:29 / /cg2 rw - cgroup2 cgroup2 rw");
        let table = [
            (
                &v1,
                "9:name=systemd:/\n2:cpuacct:/x\n1:cpu:/a:b\n0::/c",
                Some("/sys/fs/cgroup/cpu/a:b"),
            ),
            (&v1, "1:cpu:/\n0::/c", Some("/sys/fs/cgroup/cpu")),
            (&v2, "0::/system.slice/c", Some("/cg2/system.slice/c")),
            (&v1, "0::/c", None),
            (&v2, "", None),
        ];
        for (hierarchies, own, expected) in table {
            assert_eq!(
                hierarchies.locate(own),
                expected.map(PathBuf::from),
                "{own:?}"
            );
        }
    }

    /// Root only: cgroups of the kernel.
    #[test]
    fn a_class_keeps_its_weight_when_its_last_pod_goes() {
        let hierarchies = Hierarchies::detect().expect("cgroups");
        let ground = coracle_ground::Ground::new();
        let root = ground.name();
        let class = format!("{root}/kubepods/besteffort");
        let pod = format!("/{class}/podu");
        let least = Resources {
            cpu_shares: Some(2),
            ..Resources::default()
        };
        hierarchies
            .create(&format!("/{class}"), &least)
            .expect("make the class");
        let kept = BTreeSet::from([class.clone()]);
        hierarchies
            .create(&pod, &Resources::default())
            .expect("make the pod's");
        hierarchies.destroy(&pod, &kept).expect("remove the pod's");
        let (point, file) = match &hierarchies.unified {
            Some(point) if hierarchies.is_v2() => (point.as_path(), "cpu.weight"),
            _ => (
                hierarchies.v1_point("cpu").expect("the cpu controller"),
                "cpu.shares",
            ),
        };
        let weight = fs::read_to_string(point.join(&class).join(file)).expect("the class is there");
        assert_eq!(weight.trim(), if hierarchies.is_v2() { "1" } else { "2" });
        assert!(!point.join(pod.trim_matches('/')).exists());
        hierarchies
            .destroy(&class, &BTreeSet::new())
            .expect("remove all");
        assert!(!point.join(root).exists(), "nothing is left");
    }
}
