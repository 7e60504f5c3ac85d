//! Hostile and honest layers, unpacked for real into a temporary directory.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

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

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Owners, device nodes and trusted xattrs need root.
fn skip_without_root() -> bool {
    if is_root() {
        return false;
    }
    assert!(
        std::env::var_os("REQUIRE_ROOT").is_none(),
        "this test needs root"
    );
    eprintln!("skipped: needs root");
    true
}

#[test]
fn hostile_paths_never_leave_the_root() {
    if skip_without_root() {
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
fn whiteouts_become_overlayfs_own() {
    if skip_without_root() {
        return;
    }
    let place = Place::new();
    let items = [
        Item::File("a/.wh.gone", b""),
        Item::File("b/.wh..wh..opq", b""),
    ];
    unpack(&archive(&items)[..], &place.root(), None).expect("unpack");
    let gone = std::fs::symlink_metadata(place.root().join("a/gone")).expect("stat");
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
    let mut value = [0_u8; 4];
    let n = rustix::fs::getxattr(
        place.root().join("b"),
        "trusted.overlay.opaque",
        &mut value[..],
    )
    .expect("xattr");
    assert_eq!(&value[..n], b"y");
}

#[test]
fn modes_links_and_contents_are_kept() {
    if skip_without_root() {
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
fn an_image_cannot_speak_to_overlayfs() {
    if skip_without_root() {
        return;
    }
    let place = Place::new();
    let mut builder = Builder::new(Vec::new());
    let opaque: [(&str, &[u8]); 1] = [("SCHILY.xattr.trusted.overlay.redirect", b"/secret")];
    builder.append_pax_extensions(opaque).expect("pax");
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Directory);
    header.set_mode(0o755);
    header.set_size(0);
    header.set_uid(0);
    header.set_gid(0);
    builder
        .append_data(&mut header, "d", io::empty())
        .expect("append");
    unpack(
        &builder.into_inner().expect("finish")[..],
        &place.root(),
        None,
    )
    .expect("unpack");
    let mut value = [0_u8; 16];
    let found = rustix::fs::getxattr(
        place.root().join("d"),
        "trusted.overlay.redirect",
        &mut value[..],
    );
    assert!(found.is_err());
}

#[test]
fn a_broken_archive_is_an_error_not_a_panic() {
    let place = Place::new();
    let error = unpack(
        &b"garbage that is no tar header but longer than nothing"[..],
        &place.root(),
        None,
    );
    assert!(matches!(error, Err(UnpackError::Archive(_))), "{error:?}");
}

/// Endless zeros after a header that announces them.
fn announcing(kind: EntryType, size: u64) -> impl Read {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.as_old_mut().name[..4].copy_from_slice(b"name");
    header.set_size(size);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    io::Cursor::new(header.as_bytes().to_vec()).chain(Counted(0))
}

/// Fails the test when it is read far beyond what any header may hold.
struct Counted(u64);

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0 += buf.len() as u64;
        assert!(
            self.0 < 64 << 20,
            "a header was read into memory without bound"
        );
        buf.fill(b'x');
        Ok(buf.len())
    }
}

#[test]
fn extension_records_are_bounded() {
    for kind in [
        EntryType::XHeader,
        EntryType::GNULongName,
        EntryType::GNULongLink,
    ] {
        for size in [3 << 20, 1 << 32, 1 << 50] {
            let place = Place::new();
            let error = unpack(announcing(kind, size), &place.root(), None).expect_err("refused");
            assert!(
                matches!(error, UnpackError::Archive(_)),
                "{kind:?} of {size}: {error:?}"
            );
        }
    }
}

#[test]
fn contents_are_larger_than_headers_may_be() {
    if skip_without_root() {
        return;
    }
    let place = Place::new();
    let data: &'static [u8] = Box::leak(vec![7_u8; 5 << 20].into_boxed_slice());
    unpack(
        &archive(&[Item::File("big", data), Item::File("next", b"x")])[..],
        &place.root(),
        None,
    )
    .expect("unpack");
    assert_eq!(
        std::fs::metadata(place.root().join("big"))
            .expect("stat")
            .len(),
        data.len() as u64
    );
    assert!(place.root().join("next").exists());
}

#[test]
fn global_header_is_skipped() {
    if skip_without_root() {
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
fn a_whiteout_and_the_same_name_again_hide_what_is_below_in_any_order() {
    if skip_without_root() {
        return;
    }
    let opaque = |path: &Path| {
        let mut value = [0_u8; 4];
        rustix::fs::getxattr(path, "trusted.overlay.opaque", &mut value[..])
            .is_ok_and(|length| &value[..length] == b"y")
    };
    let (whiteout, dir, file) = (
        Item::File(".wh.x", b""),
        Item::Dir("x"),
        Item::File("x/new", b"n"),
    );
    for items in [
        [whiteout, dir, file],
        [
            Item::Dir("x"),
            Item::File("x/new", b"n"),
            Item::File(".wh.x", b""),
        ],
    ] {
        let place = Place::new();
        unpack(&archive(&items)[..], &place.root(), None).expect("unpack");
        assert!(opaque(&place.root().join("x")) && place.root().join("x/new").exists());
    }
    let place = Place::new();
    unpack(
        &archive(&[Item::File(".wh.x", b""), Item::File("x/new", b"n")])[..],
        &place.root(),
        None,
    )
    .expect("unpack");
    assert!(
        opaque(&place.root().join("x")),
        "the directory is not listed"
    );
    let place = Place::new();
    unpack(
        &archive(&[Item::File("x", b"n"), Item::File(".wh.x", b"")])[..],
        &place.root(),
        None,
    )
    .expect("unpack");
    assert_eq!(
        std::fs::read(place.root().join("x")).expect("the layer's own file"),
        b"n"
    );
}

#[test]
fn a_directory_with_content_makes_way_for_a_file() {
    if skip_without_root() {
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
fn unlisted_directories_look_as_below() {
    if skip_without_root() {
        return;
    }
    let (place, below) = (Place::new(), Place::new());
    let (upper, lower) = (below.root().join("upper"), below.root().join("lower"));
    for layer in [&upper, &lower] {
        std::fs::create_dir(layer).expect("mkdir");
    }
    let make = |path: PathBuf, mode: u32, owner: u32| {
        std::fs::create_dir_all(&path).expect("mkdir");
        std::os::unix::fs::chown(&path, Some(owner), Some(owner)).expect("chown");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("chmod");
    };
    make(lower.join("tmp"), 0o1777, 0);
    make(lower.join("home/app"), 0o750, 1000);
    make(lower.join("replaced"), 0o700, 7);
    make(lower.join("listed"), 0o700, 7);
    make(lower.join("gone"), 0o700, 7);
    std::fs::write(upper.join("replaced"), "a file").expect("write");
    rustix::fs::setxattr(
        lower.join("tmp"),
        "user.note",
        b"kept",
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap_or_default();
    let items = [
        Item::File("tmp/sub/f", b"x"),
        Item::File("home/app/f", b"x"),
        Item::File("replaced/f", b"x"),
        Item::File("listed/f", b"x"),
        Item::Dir("listed"),
        Item::File("gone/f", b"x"),
        Item::Symlink("gone", "../secret"),
    ];
    let unpacked = unpack(&archive(&items)[..], &place.root(), None).expect("unpack");
    inherit(&place.root(), &unpacked.implied, &[upper, lower]).expect("inherit");
    for (path, mode, owner) in [
        ("tmp", 0o1777, 0),
        ("tmp/sub", 0o755, 0),
        ("home/app", 0o750, 1000),
        ("replaced", 0o755, 0),
        ("listed", 0o755, 0),
    ] {
        let found = std::fs::metadata(place.root().join(path)).expect(path);
        assert_eq!(
            (found.mode() & 0o7777, found.uid()),
            (mode, owner),
            "{path}"
        );
    }
    place.assert_nothing_escaped();
    assert_eq!(
        std::fs::metadata(place.outer.path().join("secret"))
            .expect("stat")
            .mode()
            & 0o777,
        0o644
    );
}

#[test]
fn a_pipe_needs_no_device_number() {
    if skip_without_root() {
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

#[test]
fn a_small_blob_cannot_become_a_large_layer() {
    if skip_without_root() {
        return;
    }
    let place = Place::new();
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..4].copy_from_slice(b"zero");
    header.set_size(1 << 30);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    let stream = io::Cursor::new(header.as_bytes().to_vec()).chain(io::repeat(0));
    let error = unpack(stream, &place.root(), Some(1024)).expect_err("refused");
    assert!(
        format!("{error:?}").contains("larger than this node accepts"),
        "{error:?}"
    );
}
