//! What must hold for images whoever made them: see [`crate::fuzzing`].

use std::{collections::HashMap, fs, io::Cursor, os::unix::fs::MetadataExt, path::Path};

use oci_client::{Reference, manifest::OciManifest};
use reqwest::Url;
use tar::Header;

use super::{
    archive,
    blob::{Compression, Decompressed},
    capacity::Claim,
    config,
    distribution::{
        self,
        challenge::{self, Challenge},
        guard::Guard,
    },
    index::Layout,
    layer::is_sha256,
    pull, reference,
    unpack::unpack,
};
use crate::{fuzzing::directory::directory, runtime::ImageConfig};

/// Of a tar.
const BLOCK: usize = 512;

/// A reference is refused, or the same when its full form is read, and another implementation reads
/// it so, too.
pub fn image_reference(text: &str) {
    let Ok(found) = reference::parse(text) else {
        return;
    };
    let whole = found.whole();
    assert_eq!(
        reference::parse(&whole).expect("its own text"),
        found,
        "{whole}"
    );
    assert_eq!(
        Reference::try_from(text).expect("a reference"),
        found,
        "{text}"
    );
    if let Some(name) = reference::tag_name(&found) {
        assert_eq!(
            reference::tag_name(&reference::parse(&name).expect("a name")),
            Some(name)
        );
    }
    if let Some(digest) = found.digest() {
        let name = reference::digest_name(&found, digest);
        assert_eq!(
            reference::parse(&name).expect("a name").digest(),
            Some(digest)
        );
    }
}

/// A config, a manifest and an index name digests and nothing else.
pub fn image_documents(bytes: &[u8]) {
    if let Ok((config, diff_ids)) = config::parse(bytes) {
        assert!(diff_ids.iter().all(|id| is_sha256(id)), "{diff_ids:?}");
        let written = serde_json::to_vec(&config).expect("a config");
        assert_eq!(
            serde_json::from_slice::<ImageConfig>(&written).expect("its own text"),
            config
        );
    }
    match serde_json::from_slice(bytes) {
        Ok(OciManifest::Image(manifest)) => {
            let diff_ids: Vec<String> = manifest
                .layers
                .iter()
                .map(|layer| layer.digest.clone())
                .collect();
            let Ok(specs) = pull::layer_specs(&manifest, &diff_ids) else {
                return;
            };
            assert_eq!(specs.len(), manifest.layers.len());
            assert!(specs.iter().all(|spec| {
                spec.blob
                    .as_ref()
                    .is_some_and(|(digest, _)| is_sha256(digest))
            }));
        }
        Ok(OciManifest::ImageIndex(index)) => {
            if let Ok(digest) = distribution::ours(&index) {
                assert!(is_sha256(&digest), "{digest}");
            }
        }
        Err(_) => {}
    }
}

/// A challenge leads to no address of this machine, its link or its cloud, and the password to the
/// registry alone.
pub fn registry_challenge(text: &str) {
    let Some(Challenge::Bearer { realm, service }) = challenge::parse(text.lines()) else {
        return;
    };
    assert!(realm.len() + service.map_or(0, |service| service.len()) <= 2 * text.len());
    let Ok(url) = realm.parse::<Url>() else {
        return;
    };
    for base in ["https://registry.test", "http://registry.test:5000"] {
        let base: Url = base.parse().expect("a URL");
        let guard = Guard::new(base.clone());
        assert_eq!(
            guard.takes_credentials(&url),
            url.origin() == base.origin(),
            "{url}"
        );
        if guard.check(&url).is_err() {
            continue;
        }
        assert!(url.scheme() == "https" || base.scheme() == "http", "{url}");
        let address = url
            .host_str()
            .expect("a host")
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>();
        let inner = address.is_ok_and(|address| match address.to_canonical() {
            std::net::IpAddr::V4(v4) => {
                v4.is_loopback() || v4.is_link_local() || v4.is_unspecified()
            }
            std::net::IpAddr::V6(v6) => {
                v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unspecified()
            }
        });
        assert!(!inner, "{url}");
    }
}

/// Nothing of a layer lands outside of its directory, or is linked in there from outside; its size
/// covers its files.
pub fn image_layer(bytes: &[u8]) {
    let outer = directory();
    let root = outer.join("root");
    fs::create_dir(&root).expect("a directory");
    let secret = outer.join("secret");
    fs::write(&secret, "untouched").expect("a file");
    let state = |path: &Path| {
        let found = fs::symlink_metadata(path).expect("still there");
        (
            found.ino(),
            found.mode(),
            found.uid(),
            found.gid(),
            found.nlink(),
            found.mtime(),
            found.mtime_nsec(),
        )
    };
    let before = (state(&secret), state(&outer));
    let outcome = Decompressed::new(Cursor::new(with_checksums(bytes)), Claim::alone())
        .ok()
        .map(|stream| unpack(stream, &root, None));
    assert_eq!((state(&secret), state(&outer)), before, "changed outside");
    assert_eq!(fs::read(&secret).expect("a file"), b"untouched");
    assert_eq!(names(&outer), ["root", "secret"]);

    let mut files = HashMap::new();
    walk(&root, &mut files);
    assert!(
        files.values().all(|(links, _, found)| links == found),
        "{files:?}"
    );
    if let Some(Ok(size)) = outcome {
        let held: u64 = files.values().map(|(_, size, _)| size).sum();
        assert!(
            held <= size.bytes,
            "{held} bytes in a layer of {}",
            size.bytes
        );
    }
}

/// By inode: links, size, and how often it was found.
fn walk(path: &Path, files: &mut HashMap<u64, (u64, u64, u64)>) {
    for entry in fs::read_dir(path).expect("a directory") {
        let entry = entry.expect("an entry");
        let found = entry.metadata().expect("an entry");
        if found.is_dir() {
            walk(&entry.path(), files);
        } else {
            // Symbolic links have their target's length.
            let size = if found.is_file() { found.len() } else { 0 };
            files
                .entry(found.ino())
                .or_insert((found.nlink(), size, 0))
                .2 += 1;
        }
    }
}

/// An archive is refused and leaves nothing half made, or its images are whole and named.
pub fn image_archive(bytes: &[u8]) {
    let outer = directory();
    let file = outer.join("archive");
    fs::write(&file, with_checksums(bytes)).expect("a file");
    let layout = Layout::open(outer.join("store")).expect("a store");
    for record in archive::import(&layout, &file).unwrap_or_default() {
        assert!(is_sha256(&record.id), "{}", record.id);
        let held: u64 = record
            .layers
            .iter()
            .map(|layer| layout.layer_size(layer).expect("a layer"))
            .sum();
        assert_eq!(record.size_bytes, held);
        for tag in &record.repo_tags {
            assert_eq!(
                reference::tag_name(&reference::parse(tag).expect("a name")).as_ref(),
                Some(tag)
            );
        }
        layout
            .update(|index| index.insert(record.clone()))
            .expect("the index");
        assert!(
            layout
                .read()
                .expect("the index")
                .find(Some(&record.id), &[])
                .is_some()
        );
    }
    assert_eq!(names(&layout.staging_dir()), [""; 0]);
    assert_eq!(names(&outer), ["archive", "store"]);
}

/// What is in a directory, in order.
fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).expect("a directory");
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

/// The tar with a sum in each header that fits the header, so that chance need not find it; other
/// bytes as they are.
fn with_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    while let Some(block) = bytes.get_mut(at..at + BLOCK) {
        at += BLOCK;
        // Compressed, or the end.
        if block[0] == 0 || Compression::detect(block).is_some() {
            break;
        }
        let mut header = Header::new_old();
        header.as_mut_bytes().copy_from_slice(block);
        header.set_cksum();
        block.copy_from_slice(header.as_bytes());
        let Some(size) = header
            .entry_size()
            .ok()
            .and_then(|size| usize::try_from(size).ok())
        else {
            break;
        };
        let Some(next) = size
            .checked_next_multiple_of(BLOCK)
            .and_then(|size| at.checked_add(size))
        else {
            break;
        };
        at = next;
    }
    bytes
}
