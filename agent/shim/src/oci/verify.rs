//! Looks at a container's finished mounts before anything of it runs.
//!
//! Volumes are attached one after the other by path inside the container's root. Who shares a
//! volume with the container can put a link into it meanwhile, and so choose where a volume below
//! it ends up. Instead of winning that race, the outcome is inspected: `/proc`, `/sys` and `/dev`
//! must be what the runtime made of them, or the container is refused (CVE-2019-16884,
//! CVE-2025-31133, CVE-2025-52881). So is a cgroup that the container could write its limits to.
//! Pure; the caller reads the file and ends the container.

use oci_spec::runtime::Spec;

use super::{Invalid, cgroup_mounts};

/// Checks `/proc/<pid>/mountinfo` of the waiting process against its specification.
///
/// # Errors
/// [`Invalid`] names the first mount that must not be there.
pub(super) fn inspect_mounts(mountinfo: &str, spec: &Spec) -> Result<(), Invalid> {
    let linux = spec.linux().as_ref();
    let masked = linux
        .and_then(|linux| linux.masked_paths().as_deref())
        .unwrap_or_default();
    let readonly = linux
        .and_then(|linux| linux.readonly_paths().as_deref())
        .unwrap_or_default();
    let readonly_cgroups = cgroup_mounts::wanted_readonly(spec);
    let mut seen = [0_u32; 3];
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let (Some(point), Some(kind)) = (left.split(' ').nth(4), right.split(' ').next()) else {
            continue;
        };
        for (count, (name, expected)) in
            seen.iter_mut()
                .zip([("/proc", "proc"), ("/sys", "sysfs"), ("/dev", "tmpfs")])
        {
            if point == name {
                *count += 1;
                // A second one hides the first, whatever it is.
                if kind != expected || *count > 1 {
                    return Err(Invalid(format!(
                        "a volume is mounted in the place of {name}"
                    )));
                }
            }
        }
        let access = left.split(' ').nth(5).unwrap_or_default();
        if readonly_cgroups
            && cgroup_mounts::is_own(point, spec)
            && !access.split(',').any(|option| option == "ro")
        {
            return Err(Invalid(format!("{point} is writable")));
        }
        let ours = |paths: &[String]| paths.iter().any(|path| path == point);
        if point.starts_with("/proc/") && !ours(masked) && !ours(readonly) {
            return Err(Invalid(format!(
                "a volume is mounted in the place of {point}"
            )));
        }
    }
    match seen {
        [1, 1, 1] => Ok(()),
        _ => Err(Invalid(
            "the container lacks /proc, /sys or /dev".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
1 0 0:5 / / rw - overlay overlay rw
2 1 0:6 / /proc rw,nosuid - proc proc rw
3 1 0:7 / /dev rw,nosuid - tmpfs tmpfs rw
4 1 0:8 / /sys ro - sysfs sysfs ro
5 2 0:6 /sys /proc/sys ro - proc proc rw
6 2 0:9 / /proc/acpi ro - tmpfs tmpfs rw
7 1 0:9 /x /data rw - ext4 /dev/vda rw";

    fn check(mountinfo: &str) -> Result<(), Invalid> {
        let spec = serde_json::json!({
            "ociVersion": "1.2.0",
            "mounts": [
                { "destination": "/sys/fs/cgroup", "type": "cgroup", "options": ["ro"] },
                { "destination": "/sys/fs/cgroup/volume", "type": "bind", "options": ["rw"] },
            ],
            "linux": { "maskedPaths": ["/proc/acpi"], "readonlyPaths": ["/proc/sys"] },
        });
        inspect_mounts(mountinfo, &serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn what_the_runtime_makes_is_accepted() {
        check(GOOD).unwrap();
    }

    #[test]
    fn a_writable_cgroup_is_refused_unless_it_is_a_volume() {
        for (extra, good) in [
            (
                "8 4 0:9 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs rw,mode=755",
                true,
            ),
            (
                "8 4 0:9 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw,mode=755",
                false,
            ),
            (
                "9 8 0:9 /c /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory",
                false,
            ),
            (
                "9 8 0:9 /c /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory",
                true,
            ),
            ("9 8 0:9 /c /sys/fs/cgroup rw - cgroup2 cgroup2 rw", false),
            (
                "9 8 0:9 / /sys/fs/cgroup/volume rw - cgroup cgroup rw,memory",
                true,
            ),
            (
                "9 8 0:9 / /sys/fs/cgroup/volume/memory rw - cgroup cgroup rw,memory",
                true,
            ),
            (
                "9 8 0:9 / /host/sys/fs/cgroup rw - cgroup cgroup rw,memory",
                true,
            ),
        ] {
            assert_eq!(check(&format!("{GOOD}\n{extra}")).is_ok(), good, "{extra}");
        }
    }

    #[test]
    fn volume_in_a_system_directorys_place_is_refused() {
        for extra in [
            "8 2 0:9 /x /proc rw - ext4 /dev/vda rw",
            "8 2 0:9 /x /proc rw - proc proc rw",
            "8 2 0:9 /x /proc/self/attr rw - ext4 /dev/vda rw",
            "8 3 0:9 /x /dev rw - tmpfs tmpfs rw",
            "8 4 0:9 /x /sys rw - ext4 /dev/vda rw",
        ] {
            assert!(check(&format!("{GOOD}\n{extra}")).is_err(), "{extra}");
        }
        assert!(check("1 0 0:5 / / rw - overlay overlay rw").is_err());
    }
}
