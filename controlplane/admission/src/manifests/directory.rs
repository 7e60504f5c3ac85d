//! The files of a directory, in the order of their names, and the documents in them.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/manifest/loader.go` at v1.37.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

/// Read of all files together.
const MOST_BYTES: usize = 16 << 20;

/// One document of a file.
pub(super) struct Document {
    pub(super) file: PathBuf,
    pub(super) text: String,
}

/// All documents, and a hash of the files; empty if they say nothing.
///
/// # Errors
/// What cannot be read, or is too much.
pub(super) fn read(directory: &Path) -> Result<(Vec<Document>, String), String> {
    let unreadable = |error: std::io::Error| {
        format!(
            "failed to read manifest directory {:?}: {error}",
            directory.display().to_string()
        )
    };
    let entries: Result<Vec<_>, _> = fs::read_dir(directory).map_err(unreadable)?.collect();
    let mut files: Vec<PathBuf> = entries
        .map_err(unreadable)?
        .into_iter()
        .filter(|entry| !entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .filter(|path| is_manifest(path))
        .collect();
    files.sort();
    let (mut documents, mut hash, mut bytes) = (Vec::new(), Sha256::new(), 0);
    for file in files {
        let text = fs::read_to_string(&file).map_err(|error| {
            format!(
                "failed to read file {:?}: {error}",
                file.display().to_string()
            )
        })?;
        bytes += text.len();
        if bytes > MOST_BYTES {
            let directory = directory.display();
            return Err(format!(
                "the manifests in {directory} have more than {MOST_BYTES} bytes"
            ));
        }
        if text.is_empty() {
            continue;
        }
        hash.update(&text);
        hash.update([0]);
        documents.extend(split(&text).into_iter().map(|text| Document {
            file: file.clone(),
            text,
        }));
    }
    let hash = match bytes {
        0 => String::new(),
        _ => format!("sha256:{}", hex::encode(hash.finalize())),
    };
    Ok((documents, hash))
}

fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let extension = extension.unwrap_or_default().to_ascii_lowercase();
    matches!(&*extension, "yaml" | "yml" | "json")
}

/// What stands between lines of `---`.
fn split(text: &str) -> Vec<String> {
    let is_end = |line: &str| {
        let rest = line.strip_prefix("---").map(str::trim);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
    };
    let lines: Vec<&str> = text.lines().collect();
    let documents = lines.split(|line| is_end(line));
    documents
        .map(|lines| lines.join("\n"))
        .filter(|document| !document.trim().is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_read_in_the_order_of_their_names() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        assert!(read(directory.path()).unwrap().1.is_empty());
        write("b.YML", "two\n--- # more\nthree\n---\n\n---");
        write("a.json", "one");
        write("c.txt", "no");
        write("d.yaml", "");
        fs::create_dir(directory.path().join("e.yaml")).unwrap();
        let (documents, hash) = read(directory.path()).unwrap();
        let texts: Vec<&str> = documents.iter().map(|one| &*one.text).collect();
        assert_eq!(texts, ["one", "two", "three"]);
        assert!(documents[2].file.ends_with("b.YML"));
        assert!(hash.starts_with("sha256:") && hash.len() == 71, "{hash}");
        write("a.json", "other");
        assert_ne!(read(directory.path()).unwrap().1, hash);
    }

    #[test]
    fn too_much_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a.yaml"), "#".repeat(MOST_BYTES + 1)).unwrap();
        let error = read(directory.path()).err().unwrap();
        assert!(error.contains("more than"), "{error}");
    }
}
