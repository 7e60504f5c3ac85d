//! Who a container's process runs as: the image's USER and the pod's settings against `/etc/passwd`
//! and `/etc/group`.
//!
//! Pure but for [`resolve`], which reads the two files inside the mounted root. Never falls back to
//! UID 0: what cannot be resolved is refused (CVE-2024-40635). Source: containerd
//! `pkg/oci/spec_opts.go` (`WithUser`, `WithAdditionalGIDs`).

use std::io::Read;

use coracle_shim_protocol::UserRequest;
use pathrs::{Root, flags::OpenFlags};

use super::Invalid;

/// Kubernetes and the image specification allow no more.
pub(super) const MAX_ID: u32 = i32::MAX as u32;

/// More than any honest `/etc/passwd`.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// A resolved identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
    pub(super) home: String,
}

/// Resolves against the files inside `root`.
pub(super) fn resolve(root: &Root, request: &UserRequest) -> anyhow::Result<User> {
    let passwd = read(root, "/etc/passwd");
    let group = read(root, "/etc/group");
    Ok(plan(request, &passwd, &group)?)
}

/// A file that is absent or not a file is empty: numeric users need none.
fn read(root: &Root, path: &str) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = root.open_subpath(
        path,
        OpenFlags::O_RDONLY | OpenFlags::O_NONBLOCK | OpenFlags::O_CLOEXEC,
    ) && file.metadata().is_ok_and(|metadata| metadata.is_file())
    {
        let _ = file.take(MAX_FILE_BYTES).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

struct Passwd<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

/// An ID in one of the files; an entry with another than those that are allowed is none.
fn entry_id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id <= MAX_ID)
}

fn passwd_entries(text: &str) -> impl Iterator<Item = Passwd<'_>> {
    text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.trim().split(':').collect();
        let &[name, _, uid, gid, ..] = fields.as_slice() else {
            return None;
        };
        Some(Passwd {
            name,
            uid: entry_id(uid)?,
            gid: entry_id(gid)?,
            home: fields.get(5).copied().unwrap_or(""),
        })
    })
}

fn group_entries(text: &str) -> impl Iterator<Item = (&str, u32, &str)> {
    text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.trim().split(':').collect();
        let &[name, _, gid, ..] = fields.as_slice() else {
            return None;
        };
        Some((name, entry_id(gid)?, fields.get(3).copied().unwrap_or("")))
    })
}

/// A numeric ID in range; `None` if it is a name. All digits (or a sign and digits) is never a
/// name.
fn number(text: &str, what: &str) -> Result<Option<u32>, Invalid> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    match text.parse::<u32>() {
        Ok(id) if id <= MAX_ID => Ok(Some(id)),
        _ => Err(Invalid(format!(
            "{what} {text:?} is out of range: must be between 0 and {MAX_ID}"
        ))),
    }
}

pub(super) fn plan(request: &UserRequest, passwd: &str, group: &str) -> Result<User, Invalid> {
    let image_user = request.image_user.as_deref().unwrap_or("").trim();
    let (user_text, group_text) = match image_user.split_once(':') {
        Some((user, group)) => (user, Some(group).filter(|group| !group.is_empty())),
        None => (image_user, None),
    };
    let in_range =
        |id: Option<u32>, what: &str| id.map(|id| number(&id.to_string(), what)).transpose();
    let run_as_user = in_range(request.uid, "runAsUser")?.flatten();
    let run_as_group = in_range(request.gid, "runAsGroup")?.flatten();

    let (uid, entry) = match run_as_user {
        Some(uid) => (uid, passwd_entries(passwd).find(|entry| entry.uid == uid)),
        None if user_text.is_empty() => (0, passwd_entries(passwd).find(|entry| entry.uid == 0)),
        None => find_user(user_text, passwd)?,
    };
    let gid = match (run_as_group, group_text) {
        (Some(gid), _) => gid,
        // The image's group belongs to the image's user.
        (None, Some(text)) if run_as_user.is_none() => find_group(text, group)?,
        _ => entry.as_ref().map_or(0, |entry| entry.gid),
    };
    if request.non_root && uid == 0 {
        return Err(Invalid(
            "container has runAsNonRoot and image will run as root".to_owned(),
        ));
    }
    let groups = groups_of(request, gid, entry.as_ref(), group);
    let home = entry
        .map(|entry| entry.home)
        .filter(|home| !home.is_empty())
        .unwrap_or("/")
        .to_owned();
    Ok(User {
        uid,
        gid,
        groups,
        home,
    })
}

/// By number, which needs no entry, or by name.
fn find_user<'a>(text: &str, passwd: &'a str) -> Result<(u32, Option<Passwd<'a>>), Invalid> {
    if let Some(uid) = number(text, "user")? {
        return Ok((uid, passwd_entries(passwd).find(|entry| entry.uid == uid)));
    }
    let entry = passwd_entries(passwd).find(|entry| entry.name == text);
    entry.map(|entry| (entry.uid, Some(entry))).ok_or_else(|| {
        Invalid(format!(
            "unable to find user {text}: no matching entries in passwd file"
        ))
    })
}

/// By number, which needs no entry, or by name.
fn find_group(text: &str, group: &str) -> Result<u32, Invalid> {
    if let Some(gid) = number(text, "group")? {
        return Ok(gid);
    }
    let entry = group_entries(group).find(|(name, ..)| *name == text);
    entry.map(|(_, gid, _)| gid).ok_or_else(|| {
        Invalid(format!(
            "unable to find group {text}: no matching entries in group file"
        ))
    })
}

/// The primary group, those that the image names the user a member of, and those of the pod; each
/// once.
fn groups_of(request: &UserRequest, gid: u32, entry: Option<&Passwd<'_>>, group: &str) -> Vec<u32> {
    let mut groups = vec![gid];
    if let Some(entry) = entry.filter(|_| !request.strict_groups) {
        let member = |members: &str| members.split(',').any(|member| member == entry.name);
        groups.extend(
            group_entries(group)
                .filter(|(.., members)| member(members))
                .map(|(_, gid, _)| gid),
        );
    }
    groups.extend(&request.supplemental_groups);
    let mut seen = std::collections::BTreeSet::new();
    groups.retain(|gid| seen.insert(*gid));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nweb:x:101:102:web:/srv/web:/bin/false\nbroken\nbad:x:-1:0::/:\nhuge:x:4294967296:0::/:\nnogrp:x:103:4294967295::/:\n";
    const GROUP: &str = "root:x:0:\nweb:x:102:\nssl:x:200:web,other\nnone:x:4294967295:web\n";

    fn image(user: &str) -> UserRequest {
        UserRequest {
            image_user: Some(user.to_owned()),
            ..UserRequest::default()
        }
    }

    #[test]
    fn image_user_resolves_as_written() {
        let table = [
            ("", 0, 0, vec![0], "/root"),
            ("web", 101, 102, vec![102, 200], "/srv/web"),
            ("101", 101, 102, vec![102, 200], "/srv/web"),
            ("web:ssl", 101, 200, vec![200], "/srv/web"),
            ("5000", 5000, 0, vec![0], "/"),
            ("5000:6000", 5000, 6000, vec![6000], "/"),
        ];
        for (user, uid, gid, groups, home) in table {
            let expected = User {
                uid,
                gid,
                groups,
                home: home.to_owned(),
            };
            assert_eq!(
                plan(&image(user), PASSWD, GROUP).unwrap(),
                expected,
                "{user:?}"
            );
        }
    }

    #[test]
    fn unresolvable_user_is_refused() {
        for user in [
            "4294967296",
            "-1",
            "+1",
            "2147483648",
            "nobody-here",
            "web:nogroup",
            "bad",
            "huge",
            "nogrp",
            "web:none",
            "101:-1",
            "99999999999999999999",
        ] {
            // "+1" is a number to parse() and a name to nobody.
            let outcome = plan(&image(user), PASSWD, GROUP);
            assert!(
                user == "+1" || outcome.is_err(),
                "{user:?} became {outcome:?}"
            );
        }
    }

    #[test]
    fn non_root_refuses_root_by_any_name() {
        for user in ["", "0", "root", "0:0"] {
            let request = UserRequest {
                non_root: true,
                ..image(user)
            };
            assert!(plan(&request, PASSWD, GROUP).is_err(), "{user:?}");
        }
    }

    #[test]
    fn strict_groups_are_those_of_the_pod_alone() {
        let request = UserRequest {
            strict_groups: true,
            supplemental_groups: vec![3000],
            ..image("web")
        };
        assert_eq!(
            plan(&request, PASSWD, GROUP).unwrap().groups,
            vec![102, 3000]
        );
    }

    #[test]
    fn pod_settings_override_the_image() {
        let request = UserRequest {
            uid: Some(1000),
            gid: Some(3000),
            supplemental_groups: vec![2000, 3000],
            ..image("web:ssl")
        };
        let expected = User {
            uid: 1000,
            gid: 3000,
            groups: vec![3000, 2000],
            home: "/".to_owned(),
        };
        assert_eq!(plan(&request, PASSWD, GROUP).unwrap(), expected);
    }
}
