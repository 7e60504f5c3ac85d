//! Finding and killing what an exec'ed command started.

use std::{collections::BTreeSet, fs};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

/// Descendants are found by parent and by session among the container's processes.
pub(super) fn kill(root: i32, root_ended: bool, members: &[i32]) {
    let mut doomed = BTreeSet::new();
    if !root_ended {
        doomed.insert(root);
    }
    let relations: Vec<_> = members
        .iter()
        .filter_map(|pid| parent_and_session(*pid).map(|(parent, session)| (*pid, parent, session)))
        .collect();
    loop {
        let before = doomed.len();
        for (pid, parent, session) in &relations {
            if doomed.contains(parent) || *session == root {
                doomed.insert(*pid);
            }
        }
        if doomed.len() == before {
            break;
        }
    }
    for pid in &doomed {
        let _ = signal::kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
}

fn parent_and_session(pid: i32) -> Option<(i32, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything; the fields after it are numbers.
    let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some((parent, session))
}
