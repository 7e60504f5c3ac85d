//! What a node may have left behind: mounts, processes, cgroups, interfaces, rules. Tests demand:
//! nothing.

use std::{fs, path::Path};

use crate::site::Site;

/// Everything of `site` that is still there, one line each.
pub fn find(site: &Site, host: &str) -> Vec<String> {
    let mut found = mounts_below(site.dir());
    found.extend(shims_below(site.dir()));
    found.extend(cgroups_below(site.cgroup(host).trim_start_matches('/')));
    found.extend(links(site, host));
    found.extend(rules(site, host));
    found
}

/// Mount points below `dir`.
pub fn mounts_below(dir: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points
        .filter(|point| Path::new(point).starts_with(dir))
        .map(|point| format!("mount {point}"))
        .collect()
}

/// Shims and helpers that hold a file below `dir`: their logs lie there.
pub fn shims_below(dir: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    processes
        .filter_map(|process| {
            let cmdline = fs::read(process.join("cmdline")).ok()?;
            let text = String::from_utf8_lossy(&cmdline).replace('\0', " ");
            let ours = text.starts_with("coracle-shim") || text.starts_with("coracle-oci");
            (ours && holds(&process, dir)).then(|| format!("process {}: {text}", process.display()))
        })
        .collect()
}

fn holds(process: &Path, dir: &Path) -> bool {
    let descriptors = fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten();
    descriptors
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|target| target.starts_with(dir))
}

/// cgroup directories of that name in every hierarchy.
fn cgroups_below(name: &str) -> Vec<String> {
    hierarchies()
        .map(|mount| mount.join(name))
        .flat_map(|path| leaves(&path))
        .collect()
}

/// The node's own cgroups, empty ones too, in every hierarchy: nothing of them outlives a reset.
pub fn node_cgroups(site: &Site, host: &str) -> Vec<String> {
    let name = site.cgroup(host);
    let places = hierarchies().map(|mount| mount.join(name.trim_start_matches('/')));
    places
        .filter(|path| path.is_dir())
        .map(|path| format!("cgroup {}", path.display()))
        .collect()
}

fn leaves(path: &Path) -> Vec<String> {
    let children = fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|p| p.is_dir());
    let mut found: Vec<String> = children.flat_map(|child| leaves(&child)).collect();
    if path
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("pod"))
    {
        found.push(format!("cgroup {}", path.display()));
    }
    found
}

fn hierarchies() -> impl Iterator<Item = std::path::PathBuf> {
    let v1 = fs::read_dir("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    v1.filter(|path| path.is_dir())
        .chain([std::path::PathBuf::from("/sys/fs/cgroup")])
}

fn links(site: &Site, host: &str) -> Vec<String> {
    let text = site.within(host, &["ip", "-o", "link", "show"]);
    let names = text
        .lines()
        .filter_map(|line| line.split(": ").nth(1))
        .map(|name| name.split('@').next().unwrap_or(name));
    names
        .filter(|name| !["lo", "eth0"].contains(name))
        .map(|name| format!("link {name}"))
        .collect()
}

fn rules(site: &Site, host: &str) -> Vec<String> {
    let text = site.within(host, &["iptables-save"]);
    let own = text.lines().filter(|line| line.contains("CORACLE"));
    let tables = site.within(host, &["nft", "list", "tables"]);
    let own_tables = tables.lines().filter(|line| line.contains("coracle"));
    own.chain(own_tables)
        .map(|line| format!("rule {line}"))
        .collect()
}
