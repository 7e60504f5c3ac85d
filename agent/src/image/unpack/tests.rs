//! Hostile and honest layers, unpacked for real into a temporary directory.

mod limits;
mod overlay;

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use coracle_ground::is_root_or_skip;
use tar::{Builder, EntryType, Header};

use super::*;

enum Item {
    Dir(&'static str),
    File(&'static str, &'static [u8]),
    Symlink(&'static str, &'static str),
    Link(&'static str, &'static str),
}

/// Builds a tar with the names exactly as given: the builder's own checks are for honest archives.
fn archive(items: &[Item]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for item in items {
        let (kind, name, link, data): (_, _, _, &[u8]) = match item {
            Item::Dir(name) => (EntryType::Directory, name, None, b""),
            Item::File(name, data) => (EntryType::Regular, name, None, data),
            Item::Symlink(name, to) => (EntryType::Symlink, name, Some(to), b""),
            Item::Link(name, to) => (EntryType::Link, name, Some(to), b""),
        };
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        header.set_size(data.len() as u64);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        if let Some(link) = link {
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        }
        header.set_cksum();
        builder.append(&header, data).expect("append");
    }
    builder.into_inner().expect("finish")
}

/// An outer directory with a secret beside the target: whatever changes there has escaped.
struct Place {
    outer: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let outer = tempfile::tempdir().expect("tempdir");
        std::fs::create_dir(outer.path().join("root")).expect("mkdir");
        std::fs::write(outer.path().join("secret"), "untouched").expect("write");
        Self { outer }
    }

    fn root(&self) -> PathBuf {
        self.outer.path().join("root")
    }

    fn assert_nothing_escaped(&self) {
        let names: Vec<_> = std::fs::read_dir(self.outer.path())
            .expect("list")
            .map(|e| e.expect("entry").file_name())
            .collect();
        assert_eq!(
            names.len(),
            2,
            "something was made outside the root: {names:?}"
        );
        assert_eq!(
            std::fs::read(self.outer.path().join("secret")).expect("read"),
            b"untouched"
        );
    }
}

#[test]
fn hostile_paths_never_leave_the_root() {
    if !is_root_or_skip() {
        return;
    }
    let cases: &[(&str, &[Item], bool)] = &[
        ("dot-dot", &[Item::File("../secret", b"x")], false),
        (
            "dot-dot inside",
            &[Item::Dir("a"), Item::File("a/../../secret", b"x")],
            false,
        ),
        ("absolute", &[Item::File("/secret", b"x")], true),
        (
            "symlink up, write through",
            &[Item::Symlink("up", ".."), Item::File("up/secret", b"x")],
            true,
        ),
        (
            "absolute symlink, write through",
            &[Item::Symlink("abs", "/"), Item::File("abs/secret", b"x")],
            true,
        ),
        (
            "symlink as file, then overwritten",
            &[Item::Symlink("s", "../secret"), Item::File("s", b"x")],
            true,
        ),
        (
            "hard link out",
            &[Item::Link("h", "../secret"), Item::File("h", b"x")],
            false,
        ),
        (
            "hard link through symlink",
            &[Item::Symlink("up", ".."), Item::Link("h", "up/secret")],
            false,
        ),
        (
            "whiteout of the parent",
            &[Item::Dir("a"), Item::File("a/.wh...", b"")],
            false,
        ),
        ("whiteout of itself", &[Item::File(".wh..", b"")], false),
        (
            "symlink named dot",
            &[Item::Symlink(".", ".."), Item::File("secret", b"x")],
            true,
        ),
        (
            "directory over symlink",
            &[
                Item::Symlink("d", ".."),
                Item::Dir("d"),
                Item::File("d/secret", b"x"),
            ],
            true,
        ),
    ];
    for (what, items, accepted) in cases {
        let place = Place::new();
        let result = unpack(&archive(items)[..], &place.root(), None);
        place.assert_nothing_escaped();
        assert_eq!(result.is_ok(), *accepted, "{what}: {result:?}");
    }
}

#[test]
fn modes_links_and_contents_are_kept() {
    if !is_root_or_skip() {
        return;
    }
    let place = Place::new();
    let items = [
        Item::File("bin/tool", b"elf"),
        Item::Link("bin/alias", "bin/tool"),
        Item::Symlink("sh", "bin/tool"),
        Item::File("bin/tool2", b"first"),
        Item::File("bin/tool2", b"second"),
    ];
    let bytes = unpack(&archive(&items)[..], &place.root(), None)
        .expect("unpack")
        .bytes;
    assert_eq!(bytes, 3 + 5 + 6);
    let tool = std::fs::metadata(place.root().join("bin/tool")).expect("stat");
    assert_eq!(
        (tool.nlink(), tool.permissions().mode() & 0o7777),
        (2, 0o755)
    );
    assert_eq!(
        std::fs::read_link(place.root().join("sh")).expect("link"),
        Path::new("bin/tool")
    );
    assert_eq!(
        std::fs::read(place.root().join("bin/tool2")).expect("read"),
        b"second"
    );
}

#[test]
fn global_header_is_skipped() {
    if !is_root_or_skip() {
        return;
    }
    let place = Place::new();
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::XGlobalHeader);
    header.set_path("pax_global_header").expect("name");
    let body = b"52 comment=0123456789012345678901234567890123456789\n";
    header.set_size(body.len() as u64);
    header.set_cksum();
    let mut builder = Builder::new(Vec::new());
    builder.append(&header, &body[..]).expect("append");
    let mut stream = builder.into_inner().expect("finish");
    stream.truncate(stream.len() - 1024);
    stream.extend(archive(&[Item::File("file", b"x")]));
    unpack(&stream[..], &place.root(), None).expect("unpack");
    assert!(place.root().join("file").exists() && !place.root().join("pax_global_header").exists());
}

#[test]
fn a_directory_with_content_makes_way_for_a_file() {
    if !is_root_or_skip() {
        return;
    }
    let place = Place::new();
    let items = [
        Item::File("d/deep/f", b"x"),
        Item::Symlink("d/up", "../../secret"),
        Item::File("d", b"file"),
    ];
    unpack(&archive(&items)[..], &place.root(), None).expect("unpack");
    assert_eq!(
        std::fs::read(place.root().join("d")).expect("read"),
        b"file"
    );
    place.assert_nothing_escaped();
}

#[test]
fn a_pipe_needs_no_device_number() {
    if !is_root_or_skip() {
        return;
    }
    let place = Place::new();
    let mut stream = archive(&[Item::File("pipe", b"")]);
    stream[156] = EntryType::Fifo.as_byte();
    // GNU tar and Python leave the fields empty.
    stream[329..345].fill(0);
    let mut header = Header::from_byte_slice(&stream[..512]).clone();
    header.set_cksum();
    stream[..512].copy_from_slice(header.as_bytes());
    unpack(&stream[..], &place.root(), None).expect("unpack");
    assert!(
        std::fs::metadata(place.root().join("pipe"))
            .expect("stat")
            .file_type()
            .is_fifo()
    );
}
