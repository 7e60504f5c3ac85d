//! Container logs in CRI's format: `<RFC 3339 time> stdout|stderr F|P <text>\n`.
//!
//! Reads, follows, bounds and rotates them; the shim writes them.

pub(crate) mod line;
pub(crate) mod read;
pub(crate) mod rotate;

use std::{
    io::{Read, Seek, SeekFrom},
    path::Path,
};

/// The last lines of a log, bounded, as a termination message.
pub(crate) fn last_words(path: &Path, max_lines: usize, max_bytes: usize) -> Option<String> {
    // Room for the prefix of every line.
    let window = u64::try_from(max_bytes * 4).ok()?;
    let mut file = std::fs::File::open(path).ok()?;
    let len = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(window))).ok()?;
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
    use super::*;

    #[test]
    fn last_words_end_as_they_were_written() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("0.log");
        for (log, expected) in
            [("t stdout F one\nt stdout P DONE\n", "one\nDONE"), ("t stdout F one\nt stderr F DONE\n", "one\nDONE\n")]
        {
            std::fs::write(&path, log).expect("write");
            assert_eq!(last_words(&path, 80, 2048).as_deref(), Some(expected), "{log}");
        }
    }
}
