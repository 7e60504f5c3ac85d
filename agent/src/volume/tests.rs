mod claims;
mod teardown;

use std::os::unix::fs::PermissionsExt;

use coracle_telemetry::ErrorChain;
use k8s_openapi::api::core::v1::KeyToPath;

use super::{
    payload::{FileProjection, Payload, Selection, Words, checked},
    *,
};

fn payload(files: &[(&str, &str)]) -> Payload {
    files
        .iter()
        .map(|&(path, text)| {
            (
                path.to_owned(),
                FileProjection::new(text.as_bytes().to_vec(), 0o640),
            )
        })
        .collect()
}

fn shown(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("directory").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && entry.path().is_file() {
            found.insert(name, std::fs::read_to_string(entry.path()).expect("file"));
        }
    }
    found
}

fn texts(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    files
        .iter()
        .map(|&(name, text)| (name.to_owned(), text.to_owned()))
        .collect()
}

#[test]
fn files_are_exchanged_as_a_whole() {
    let dir = tempfile::tempdir().expect("directory");
    let steps: [(&[(&str, &str)], bool); 4] = [
        (&[("a", "1"), ("b", "2")], true),
        (&[("a", "1"), ("b", "2")], false),
        (&[("a", "3")], true),
        (&[("a", "3"), ("c", "4")], true),
    ];
    for (files, changed) in steps {
        assert_eq!(
            atomic_writer::write(dir.path(), &payload(files), None).expect("write"),
            changed,
            "{files:?}"
        );
        assert_eq!(shown(dir.path()), texts(files));
    }
    let data: Vec<_> = std::fs::read_dir(dir.path())
        .expect("directory")
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with(".."))
        .collect();
    assert_eq!(data.len(), 2, "only ..data and its target stay");
}

#[test]
fn a_try_that_fails_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("directory");
    let hidden = |dir: &std::path::Path| {
        let names = std::fs::read_dir(dir)
            .expect("directory")
            .flatten()
            .map(|entry| entry.file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with(".."))
            .count()
    };
    let within = payload(&[("zz", "1"), ("zz/y", "2")]);
    let error = atomic_writer::write(dir.path(), &within, None).expect_err("a file within a file");
    assert_eq!(error.to_string(), "invalid path \"zz/y\": \"zz\" is a file");
    // No file system takes such a name.
    let too_long = payload(&[("a", "1"), (&"n".repeat(300), "2")]);
    let place = dir.path().join("n".repeat(300));
    for _ in 0..2 {
        let error = atomic_writer::write(dir.path(), &too_long, None).expect_err("too long");
        assert_eq!(hidden(dir.path()), 0);
        // The same words each time, whatever the time: so that its events count as one.
        assert_eq!(error.to_string(), format!("create {}", place.display()));
    }
    assert!(atomic_writer::write(dir.path(), &payload(&[("a", "1")]), None).expect("write"));
    std::fs::create_dir(dir.path().join("..2026_01_01_of_a_writer_that_died")).expect("directory");
    atomic_writer::write(dir.path(), &too_long, None).expect_err("too long");
    assert_eq!(hidden(dir.path()), 2, "..data and its target");
    assert_eq!(
        shown(dir.path()),
        texts(&[("a", "1")]),
        "what was there stays"
    );
}

#[test]
fn nested_paths_and_modes_are_kept() {
    let dir = tempfile::tempdir().expect("directory");
    atomic_writer::write(dir.path(), &payload(&[("d/e/f", "x")]), None).expect("write");
    let file = dir.path().join("d/e/f");
    assert_eq!(std::fs::read_to_string(&file).expect("read"), "x");
    assert_eq!(
        std::fs::metadata(&file).expect("file").permissions().mode() & 0o777,
        0o640
    );
}

#[test]
fn items_choose_and_name_files() {
    let data = BTreeMap::from([
        ("k".to_owned(), b"v".to_vec()),
        ("l".to_owned(), b"w".to_vec()),
    ]);
    let item = |key: &str, path: &str, mode| KeyToPath {
        key: key.to_owned(),
        path: path.to_owned(),
        mode,
        ..KeyToPath::default()
    };
    let words = Words {
        object: "configmap",
        key: "config",
    };
    let select = |items: Option<&[KeyToPath]>, default_mode, optional| {
        Selection {
            name: "c",
            items,
            default_mode,
            optional,
        }
        .project(words, Some(data.clone()))
    };
    let all = select(None, Some(0o600), false).expect("all");
    assert_eq!(all.keys().collect::<Vec<_>>(), ["k", "l"]);
    assert!(all.values().all(|file| file.mode == 0o600));
    let one = select(Some(&[item("k", "x/y", Some(0o400))]), None, false).expect("one");
    assert_eq!(
        one,
        Payload::from([("x/y".to_owned(), FileProjection::new(b"v".to_vec(), 0o400))])
    );
    let missing = select(Some(&[item("z", "z", None)]), None, false);
    assert_eq!(
        missing.expect_err("missing").to_string(),
        "references non-existent config key: z"
    );
    assert_eq!(
        select(Some(&[item("z", "z", None)]), None, true).expect("optional"),
        Payload::new()
    );
    let absent = |optional| {
        Selection {
            name: "c",
            optional,
            ..Selection::default()
        }
        .project(words, None)
    };
    assert_eq!(absent(true).expect("optional"), Payload::new());
    assert_eq!(
        absent(false).expect_err("missing").to_string(),
        "configmap \"c\" not found"
    );
}

#[test]
fn paths_that_leave_the_volume_are_refused() {
    for path in [
        "../a", "a/../b", "/a", "", "..data", ".", "./", "./..data", "a/..",
    ] {
        assert!(checked(path).is_err(), "{path}");
    }
    for (path, clean) in [
        ("a/b..c", "a/b..c"),
        ("./a", "a"),
        ("a//b/./c/", "a/b/c"),
        ("a/..b", "a/..b"),
    ] {
        assert_eq!(checked(path).expect("fine"), clean);
    }
}

#[test]
fn a_path_in_another_form_is_the_same_file() {
    let dir = tempfile::tempdir().expect("directory");
    let items = [KeyToPath {
        key: "k".to_owned(),
        path: "./a".to_owned(),
        ..KeyToPath::default()
    }];
    let selection = Selection {
        name: "c",
        items: Some(&items),
        ..Selection::default()
    };
    let words = Words {
        object: "configmap",
        key: "config",
    };
    let payload = selection
        .project(words, Some([("k".to_owned(), b"x".to_vec())].into()))
        .expect("payload");
    for changed in [true, false] {
        assert_eq!(
            atomic_writer::write(dir.path(), &payload, None).expect("write"),
            changed
        );
    }
    assert_eq!(shown(dir.path()), texts(&[("a", "x")]));
}

#[test]
fn host_paths_are_checked_by_type() {
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("file");
    let cases = [
        (dir.path().to_owned(), "Directory", true),
        (file.clone(), "File", true),
        (file.clone(), "Directory", false),
        (dir.path().join("none"), "Directory", false),
        (dir.path().join("none"), "Socket", false),
        (dir.path().join("made"), "DirectoryOrCreate", true),
        (dir.path().join("touched"), "FileOrCreate", true),
        (file, "", true),
        (PathBuf::from("/dev/null"), "CharDevice", true),
        (PathBuf::from("/dev/null"), "BlockDevice", false),
    ];
    for (path, kind, fine) in cases {
        assert_eq!(
            host_path::check(&path, kind).is_ok(),
            fine,
            "{} {kind}",
            path.display()
        );
    }
}

/// Mode, owner and group of a file as its readers see it.
fn owned(path: &Path) -> (u32, u32, u32) {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(path).expect("file");
    (found.mode() & 0o7777, found.uid(), found.gid())
}

#[test]
fn files_are_the_groups_when_they_appear() {
    let dir = tempfile::tempdir().expect("directory");
    let mut files = payload(&[("d/k", "1")]);
    files.get_mut("d/k").expect("file").owner = Some(7001);
    assert!(atomic_writer::write(dir.path(), &files, Some(7002)).expect("write"));
    assert_eq!(owned(&dir.path().join("d/k")), (0o640, 7001, 7002));
    assert_eq!(owned(&dir.path().join("d")), (0o2755, 0, 7002));
    assert_eq!(owned(dir.path()).2, 7002);
    assert!(
        !atomic_writer::write(dir.path(), &files, Some(7002)).expect("write"),
        "nothing to do"
    );
    // As an agent leaves it that died between the files and their group.
    std::os::unix::fs::chown(dir.path().join("..data/."), None, Some(0)).expect("chown");
    assert!(atomic_writer::write(dir.path(), &files, Some(7002)).expect("write"));
    assert_eq!(owned(&dir.path().join("d/k")), (0o640, 7001, 7002));
}

#[test]
fn links_that_a_death_left_out_are_made_good() {
    let dir = tempfile::tempdir().expect("directory");
    let files = payload(&[("a", "1"), ("b", "2")]);
    atomic_writer::write(dir.path(), &files, None).expect("write");
    std::fs::remove_file(dir.path().join("b")).expect("remove");
    std::os::unix::fs::symlink("..data/gone", dir.path().join("gone")).expect("link");
    std::fs::create_dir(dir.path().join("..2020_01_01_00_00_00.0")).expect("directory");
    assert!(!atomic_writer::write(dir.path(), &files, None).expect("write"));
    assert_eq!(shown(dir.path()), texts(&[("a", "1"), ("b", "2")]));
    assert_eq!(std::fs::read_dir(dir.path()).expect("directory").count(), 4);
}

#[test]
fn a_volume_is_missed_in_upstreams_words() {
    let source = VolumePluginError::NotFound {
        kind: "secret",
        name: "s".to_owned(),
    };
    let error = VolumeError::SetUp {
        volume: "v".to_owned(),
        source,
    };
    assert_eq!(
        error.to_string(),
        "MountVolume.SetUp failed for volume \"v\" "
    );
    assert_eq!(
        ErrorChain(&error).to_string(),
        "MountVolume.SetUp failed for volume \"v\" : secret \"s\" not found"
    );
}
