//! The ground of one test: a directory, and a name for all that the test makes elsewhere in the
//! kernel. It is undone however the test ends: returned, panicked, interrupted or killed.
//!
//! ```text
//!   DIR          /tmp/NAME, with what is mounted below it; network namespaces pinned in DIR/ns
//!   namespaces   /run/netns/NAME-*
//!   cgroups      NAME at the top of every hierarchy
//!   processes    in those, or with standard error below DIR
//! ```
//! A test that is killed runs no destructor, so none removes anything here. A process beside the
//! test does (`undo.sh`), in a group of its own, once the lock on `DIR/owner` is free: the kernel
//! frees it with the owner's last breath. If that process is killed, too, the next ground's owner
//! finds a directory whose lock is free. Grounds of others are locked and stay, so any number of
//! suites may run side by side.
//!
//! Not here: what a cluster needs besides (`coracle-tests`). A temporary directory with nothing but
//! files in it needs none of this.

#![forbid(unsafe_code)]

use std::{
    fs::{self, File},
    io,
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Once,
        atomic::{AtomicU32, Ordering},
    },
};

/// What undoes a ground, read by `bash`: there is nothing to build or to find beside the test.
const UNDO: &str = include_str!("undo.sh");

/// How many grounds without an owner one process takes away at most, before its own first one.
const ABANDONED_MAX: usize = 32;

/// Whether this test can run: it needs root. Where `REQUIRE_ROOT` is set, to whatever, as all tests
/// of the workspace read it, the absence of root is a failure, not a skip.
///
/// # Panics
/// In that case.
#[allow(clippy::print_stderr, reason = "the output of a test")]
pub fn is_root_or_skip() -> bool {
    if own_uid() == Some(0) {
        return true;
    }
    assert!(
        std::env::var_os("REQUIRE_ROOT").is_none(),
        "REQUIRE_ROOT is set, but this test does not run as root"
    );
    eprintln!("skipped: needs root");
    false
}

fn own_uid() -> Option<u32> {
    fs::metadata("/proc/self").map(|own| own.uid()).ok()
}

/// A ground that is undone when this is dropped, or when its owner ends otherwise.
#[derive(Debug)]
pub struct Ground {
    name: String,
    path: PathBuf,
    /// Holds the lock; `None` once the ground is let go.
    owner: Option<File>,
    keeper: Child,
}

impl Ground {
    /// Makes the directory, locks it and starts what will undo it. The first one of a process takes
    /// away what others have left.
    ///
    /// # Panics
    /// If no directory can be made, or `bash` cannot be started: no test can go on without.
    pub fn new() -> Self {
        Self::with_suffix("")
    }

    /// The same with some letters and digits at the end of its name, for people to read.
    pub fn named(test: &str) -> Self {
        Self::with_suffix(&format!("-{test}"))
    }

    fn with_suffix(suffix: &str) -> Self {
        static BEFORE_THE_FIRST: Once = Once::new();
        let parent =
            fs::canonicalize(std::env::temp_dir()).expect("there is a temporary directory");
        BEFORE_THE_FIRST.call_once(|| {
            for path in abandoned(&parent).into_iter().take(ABANDONED_MAX) {
                // It has bounds of its own, and gives up if another suite is faster.
                let _told_by_itself = undo(&path).stderr(Stdio::inherit()).status();
            }
        });
        let (path, owner) = claim(&parent, suffix).unwrap_or_else(|error| {
            panic!("make a test's directory in {}: {error}", parent.display())
        });
        let name = path.file_name().expect("it has a name");
        Self {
            name: name.to_string_lossy().into_owned(),
            keeper: undo(&path)
                .stderr(Stdio::piped())
                .spawn()
                .unwrap_or_else(|error| panic!("start bash for {}: {error}", path.display())),
            owner: Some(owner),
            path,
        }
    }

    /// The name of all that belongs to it: `ct<pid>x<number>`, and what the test wanted after it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The PID of the process that will undo it.
    pub fn keeper(&self) -> u32 {
        self.keeper.id()
    }

    /// Leaves everything where it is, for somebody to look at.
    ///
    /// # Errors
    /// Nothing stays then.
    pub fn keep(&self) -> io::Result<()> {
        fs::remove_file(self.path.join("owner"))
    }
}

impl Default for Ground {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Ground {
    #[allow(clippy::print_stderr, reason = "the output of a test")]
    fn drop(&mut self) {
        drop(self.owner.take());
        let mut told = String::new();
        // Until its end: it has bounds of its own, the test's namespaces shall be gone by then.
        let read = self.keeper.stderr.take().map(|mut stderr| {
            io::Read::read_to_string(&mut stderr, &mut told).and_then(|_| self.keeper.wait())
        });
        if let Some(Err(error)) = read {
            told += &format!("could not wait for bash: {error}\n");
        }
        for line in told.lines() {
            eprintln!("undoing {}: {line}", self.name);
        }
    }
}

/// A directory of a name that nobody has, and its lock. It gets the name with the lock in it:
/// nobody finds it without an owner.
fn claim(parent: &Path, suffix: &str) -> io::Result<(PathBuf, File)> {
    static GROUNDS: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    let number = GROUNDS.fetch_add(1, Ordering::Relaxed);
    let unnamed = parent.join(format!(".ct{pid}x{number}"));
    fs::create_dir_all(&unnamed)?;
    let owner = File::create(unnamed.join("owner"))?;
    owner.try_lock()?;
    // Another process may have had this PID, and have left something that could not be removed.
    let names = (number..1000).step_by(100);
    let mut outcome = Err(io::ErrorKind::AlreadyExists.into());
    for number in names {
        let path = parent.join(format!("ct{pid}x{number}{suffix}"));
        match fs::rename(&unnamed, &path) {
            Ok(()) => return Ok((path, owner)),
            Err(error) => outcome = Err(error),
        }
    }
    outcome
}

/// Grounds in a directory whose owner has ended, and what should have undone them, too. Only those
/// of this user.
fn abandoned(parent: &Path) -> Vec<PathBuf> {
    let own = own_uid();
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let names = entries.filter(|entry| is_name(&entry.file_name().to_string_lossy()));
    let is_abandoned = |path: &PathBuf| {
        let owner = File::open(path.join("owner"));
        owner.is_ok_and(|owner| {
            let user = owner.metadata().map(|owner| owner.uid()).ok();
            // Given back at once: what undoes it takes the lock itself.
            user == own && owner.try_lock().is_ok()
        })
    };
    names
        .map(|entry| entry.path())
        .filter(is_abandoned)
        .collect()
}

/// `ct<pid>x<number>`, also with a suffix.
fn is_name(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let name = name.split_once('-').map_or(name, |(name, _)| name);
    let numbers = name
        .strip_prefix("ct")
        .and_then(|rest| rest.split_once('x'));
    numbers.is_some_and(|(pid, number)| is_number(pid) && is_number(number))
}

/// The command that undoes the ground in `path` once nobody owns it. In a process group of its own:
/// signals to the test's group do not reach it.
fn undo(path: &Path) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", UNDO, "undo.sh"]).arg(path);
    command.env("LC_ALL", "C").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_names_are_looked_at() {
        for (name, is) in [
            ("ct1x0", true),
            ("ct4194304x12", true),
            ("ct-12-name", false),
            ("ctx1", false),
            ("ct1x", false),
            ("ct1x0-reach-Nftables", true),
            ("ct-1x0", false),
            ("cat1x0", false),
        ] {
            assert_eq!(is_name(name), is, "{name}");
        }
    }
}
