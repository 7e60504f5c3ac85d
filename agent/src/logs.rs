//! Container logs in CRI's format: `<RFC 3339 time> stdout|stderr F|P <text>\n`.
//!
//! Reads, follows, bounds and rotates them; the shim writes them.

pub(crate) mod line;
pub(crate) mod read;
pub(crate) mod rotate;

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

/// Of `<logs>/<pod>/<container>/<attempt>.log`, those that belong to the pod.
const OWN_PARTS: usize = 3;

/// Opens a container's log. What is not a regular file, or leads elsewhere by a link, is none: it
/// would be told to whoever may read the pod's log.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let base = path.ancestors().nth(OWN_PARTS).unwrap_or(Path::new("/"));
    let own = path.strip_prefix(base).map_err(io::Error::other)?;
    // A short relative path begins here.
    let base = if base.as_os_str().is_empty() {
        Path::new(".")
    } else {
        base
    };
    let base = rustix::fs::openat(
        CWD,
        base,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::openat2(
        base,
        own,
        flags,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    )?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("the log is not a file"))
    }
}

/// The last lines of a log, bounded, as a termination message.
pub(crate) fn last_words(path: &Path, max_lines: usize, max_bytes: usize) -> Option<String> {
    // Room for the prefix of every line.
    let window = u64::try_from(max_bytes * 4).ok()?;
    let mut file = open(path).ok()?;
    let len = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(window)))
        .ok()?;
    let mut bytes = Vec::new();
    file.take(window).read_to_end(&mut bytes).ok()?;
    let mut text = String::new();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
    for raw in &lines[lines.len().saturating_sub(max_lines)..] {
        if let Some(line) = line::parse(raw) {
            text.push_str(&String::from_utf8_lossy(line.text));
            if !line.partial {
                text.push('\n');
            }
        }
    }
    let start = text.len().saturating_sub(max_bytes);
    let start = (start..=text.len()).find(|&at| text.is_char_boundary(at))?;
    Some(text[start..].to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn last_words_end_as_they_were_written() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("0.log");
        for (log, expected) in [
            ("t stdout F one\nt stdout P DONE\n", "one\nDONE"),
            ("t stdout F one\nt stderr F DONE\n", "one\nDONE\n"),
        ] {
            std::fs::write(&path, log).expect("write");
            assert_eq!(
                last_words(&path, 80, 2048).as_deref(),
                Some(expected),
                "{log}"
            );
        }
    }

    #[test]
    fn a_log_that_leads_elsewhere_is_none() {
        let dir = tempfile::tempdir().expect("directory");
        let pod = dir.path().join("logs/pod");
        std::fs::create_dir_all(pod.join("app")).expect("directory");
        std::fs::create_dir_all(dir.path().join("other")).expect("directory");
        std::fs::write(dir.path().join("other/0.log"), "secret").expect("file");
        std::fs::write(pod.join("app/0.log"), "line").expect("file");
        symlink(dir.path().join("other/0.log"), pod.join("app/1.log")).expect("link");
        symlink(dir.path().join("other"), pod.join("evil")).expect("link");
        assert!(open(&pod.join("app/0.log")).is_ok());
        for path in ["app/1.log", "evil/0.log", "app"] {
            assert!(open(&pod.join(path)).is_err(), "{path}");
            assert_eq!(last_words(&pod.join(path), 10, 100), None, "{path}");
        }
    }
}
