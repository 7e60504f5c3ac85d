//! What overlayfs makes of layers over each other.

use super::*;

#[test]
fn whiteouts_become_overlayfs_own() {
    if !is_root_or_skip() {
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
fn an_image_cannot_speak_to_overlayfs() {
    if !is_root_or_skip() {
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
fn a_whiteout_and_the_same_name_again_hide_what_is_below_in_any_order() {
    if !is_root_or_skip() {
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
fn unlisted_directories_look_as_below() {
    if !is_root_or_skip() {
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
