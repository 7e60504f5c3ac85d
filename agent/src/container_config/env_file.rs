//! `fileKeyRef`: variables out of a file that a container of the same pod wrote into a volume.
//!
//! The file is a stranger's: it is opened without leaving the volume, read only if it is a regular
//! file, and only so much of it. The syntax is the part of the shell's that every shell reads
//! alike: blank lines, lines that begin with `#`, and `NAME='value'`, where the value may span
//! lines and has no quote in it.
//!
//! Source: `pkg/util/env/env.go` at v1.37, KEP-3721.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};

/// Longest file: kubelet's bound on what it holds of one.
const FILE_MAX: u64 = 64 << 10;

/// Why there is no value.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum EnvFileError {
    #[error("open: {0}")]
    Open(String),
    #[error("it is not a regular file")]
    NotAFile,
    #[error("it is longer than {FILE_MAX} bytes")]
    TooLong,
    #[error("it is not UTF-8 text")]
    NotText,
    #[error("line {line}: expected NAME='value'")]
    Syntax { line: usize },
}

/// The value of `key` in the file at `path` below `volume`; `None` if there is no such file or no
/// such key. Blocking.
///
/// # Errors
/// The file cannot be used.
pub(crate) fn read(volume: &Path, path: &str, key: &str) -> Result<Option<String>, EnvFileError> {
    let open = |error: rustix::io::Errno| EnvFileError::Open(io::Error::from(error).to_string());
    let root = rustix::fs::openat(
        CWD,
        volume,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(open)?;
    // A pipe must not hold us up, a link must not lead out.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let file = match rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve) {
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        other => other.map_err(open)?,
    };
    let found = rustix::fs::fstat(&file).map_err(open)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(EnvFileError::NotAFile);
    }
    let mut text = Vec::new();
    File::from(file)
        .take(FILE_MAX + 1)
        .read_to_end(&mut text)
        .map_err(|e| EnvFileError::Open(e.to_string()))?;
    if text.len() as u64 > FILE_MAX {
        return Err(EnvFileError::TooLong);
    }
    find(
        &String::from_utf8(text).map_err(|_| EnvFileError::NotText)?,
        key,
    )
}

/// The last value of `key`. The whole text must be well-formed.
fn find(text: &str, key: &str) -> Result<Option<String>, EnvFileError> {
    let mut found = None;
    let mut rest = text;
    let line_of = |rest: &str| text[..text.len() - rest.len()].matches('\n').count() + 1;
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Ok(found);
        }
        if rest.starts_with('#') {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
            continue;
        }
        let wrong = EnvFileError::Syntax {
            line: line_of(rest),
        };
        let Some((name, value)) = rest.split_once("='") else {
            return Err(wrong);
        };
        let Some((value, after)) = value.split_once('\'') else {
            return Err(wrong);
        };
        let (behind, next) = after.split_once('\n').unwrap_or((after, ""));
        let is_name = !name.is_empty()
            && !name.contains(|c: char| c.is_whitespace() || c == '\'' || c == '=');
        // A remark may follow, after a blank.
        let remark = behind.trim_start();
        let clean = remark.is_empty() || (remark.starts_with('#') && remark.len() < behind.len());
        if !is_name || !clean {
            return Err(wrong);
        }
        if name == key {
            found = Some(value.to_owned());
        }
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_in_the_shells_common_syntax() {
        let text =
            "# remark\n\n  A='one'\nB='two # not a remark'  # remark\nC='1\n2'\nA='last'\nE=''\n";
        for (key, expected) in [
            ("A", Some("last")),
            ("B", Some("two # not a remark")),
            ("C", Some("1\n2")),
            ("E", Some("")),
            ("D", None),
        ] {
            assert_eq!(
                find(text, key).expect("well-formed").as_deref(),
                expected,
                "{key}"
            );
        }
    }

    #[test]
    fn anything_else_is_refused_with_its_line() {
        for (text, line) in [
            ("A=b\n", 1),
            ("A='b'\nB", 2),
            ("A='b'c\n", 1),
            ("A='b\n", 1),
            ("export A='b'", 1),
            ("\n='b'", 2),
        ] {
            assert_eq!(
                find(text, "A"),
                Err(EnvFileError::Syntax { line }),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_file_is_never_read_outside_its_volume() {
        let dir = tempfile::tempdir().expect("directory");
        let volume = dir.path().join("v");
        std::fs::create_dir_all(volume.join("d")).expect("directory");
        std::fs::write(dir.path().join("host"), "A='stolen'").expect("file");
        std::fs::write(volume.join("d/env"), "A='own'").expect("file");
        std::os::unix::fs::symlink("../host", volume.join("up")).expect("link");
        std::os::unix::fs::symlink(dir.path().join("host"), volume.join("absolute")).expect("link");
        nix::unistd::mkfifo(&volume.join("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("pipe");
        std::fs::write(volume.join("long"), vec![b'#'; 70_000]).expect("file");
        assert_eq!(read(&volume, "d/env", "A"), Ok(Some("own".to_owned())));
        assert_eq!(read(&volume, "none", "A"), Ok(None));
        assert_eq!(read(&volume, "pipe", "A"), Err(EnvFileError::NotAFile));
        assert_eq!(read(&volume, "d", "A"), Err(EnvFileError::NotAFile));
        assert_eq!(read(&volume, "long", "A"), Err(EnvFileError::TooLong));
        for path in ["up", "absolute", "../host"] {
            assert!(
                matches!(read(&volume, path, "A"), Err(EnvFileError::Open(_))),
                "{path}"
            );
        }
    }
}
