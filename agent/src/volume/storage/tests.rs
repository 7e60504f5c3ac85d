use std::os::unix::fs::{MetadataExt, symlink};

use serde_json::json;

use super::*;

struct World {
    dir: tempfile::TempDir,
    storage: Storage,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let storage = storage(dir.path());
        for part in ["storage", "records"] {
            fs::create_dir(dir.path().join(part)).expect("directory");
        }
        Self { dir, storage }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("storage/pvc-1_default_data")
    }

    fn volume(&self) -> PersistentVolume {
        volume(&self.path())
    }

    fn records(&self) -> usize {
        let records = fs::read_dir(self.dir.path().join("records"));
        records.expect("directory").count()
    }
}

fn storage(dir: &Path) -> Storage {
    Storage::new("n1", &dir.join("storage"), &dir.join("records"))
}

fn volume(path: &Path) -> PersistentVolume {
    serde_json::from_value(json!({
        "metadata": {
            "name": "pvc-1", "uid": "0b9c-1", "labels": {local_path::NODE: "n1"},
            "annotations": {PROVISIONED_BY: local_path::PROVISIONER}, "finalizers": [local_path::FINALIZER],
        },
        "spec": {
            "local": {"path": path}, "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"namespace": "default", "name": "data"},
        },
    }))
    .expect("a volume")
}

fn unused() -> io::Result<bool> {
    Ok(false)
}

#[test]
fn a_volume_of_another_node_or_maker_is_not_ours() {
    let world = World::new();
    let ours = world.volume();
    assert!(world.storage.is_ours(&ours));
    let mut other = ours.clone();
    other.metadata.annotations = None;
    assert!(!world.storage.is_ours(&other));
    let mut other = ours;
    other.metadata.labels = Some([(local_path::NODE.to_owned(), "n2".to_owned())].into());
    assert!(!world.storage.is_ours(&other));
}

#[test]
fn a_directory_is_made_once_for_everybody_to_write_to() {
    let world = World::new();
    world.storage.ensure(&world.volume()).expect("made");
    assert_eq!(
        fs::metadata(world.path()).expect("made").mode() & 0o7777,
        0o777
    );
    fs::write(world.path().join("f"), "x").expect("write");
    // Another run of the agent.
    storage(world.dir.path())
        .ensure(&world.volume())
        .expect("found");
    assert_eq!(
        fs::read_to_string(world.path().join("f")).expect("kept"),
        "x"
    );
    let all = fs::read_dir(world.dir.path().join("storage")).expect("directory");
    let mut names: Vec<_> = all.map(|entry| entry.expect("entry").file_name()).collect();
    names.sort();
    assert_eq!(names, [MARKER, "pvc-1_default_data"]);
}

#[test]
fn a_directory_that_has_gone_is_not_made_again() {
    let world = World::new();
    world.storage.ensure(&world.volume()).expect("made");
    fs::remove_dir(world.path()).expect("remove");
    let error = world.storage.ensure(&world.volume()).expect_err("gone");
    assert!(matches!(error, StorageError::Gone { .. }), "{error}");
    assert!(!world.path().exists());
    // Its disk is not mounted.
    fs::remove_dir_all(world.dir.path().join("storage")).expect("remove");
    let error = world.storage.ensure(&world.volume()).expect_err("gone");
    assert!(matches!(error, StorageError::Gone { .. }), "{error}");
}

#[test]
fn an_agent_that_died_while_it_made_a_directory_makes_it() {
    let world = World::new();
    let record = world.storage.first_record(&world.volume());
    let file = world.storage.file(&world.volume()).expect("a name");
    write(&file, &record).expect("write");
    fs::create_dir(world.dir.path().join("storage/.pvc-1.new")).expect("directory");
    world.storage.ensure(&world.volume()).expect("made");
    assert!(world.path().is_dir());
    // Or after that, and before it wrote that it had.
    write(&file, &record).expect("write");
    fs::write(world.path().join("f"), "x").expect("write");
    world.storage.ensure(&world.volume()).expect("made");
    assert!(world.path().join("f").exists());
}

#[test]
fn nothing_is_made_nor_removed_that_is_not_the_volumes_by_its_name() {
    let world = World::new();
    let (base, victim) = (
        world.dir.path().join("storage"),
        world.dir.path().join("victim"),
    );
    fs::create_dir(&victim).expect("directory");
    fs::write(victim.join("f"), "x").expect("file");
    for path in [
        victim.clone(),
        base.join("pvc-2_default_data"),
        base.join("../victim"),
        base.join("pvc-1_default_data/../../victim"),
        base.join("pvc-1_default_data/"),
        PathBuf::new(),
    ] {
        let volume = volume(&path);
        let error = world.storage.ensure(&volume).expect_err("foreign");
        assert!(
            matches!(error, StorageError::Foreign { .. }),
            "{path:?}: {error}"
        );
        assert!(
            world
                .storage
                .let_go(&volume, false, unused)
                .expect("nothing to do")
        );
    }
    let mut odd = volume(&base.join(".._default_data"));
    odd.metadata.name = Some("..".to_owned());
    world.storage.ensure(&odd).expect_err("no name");
    odd.metadata.uid = Some("../records".to_owned());
    let error = world.storage.ensure(&odd).expect_err("no uid");
    assert!(matches!(error, StorageError::Uid { .. }), "{error}");
    assert_eq!(world.records(), 0);
    assert_eq!(fs::read_dir(&base).expect("directory").count(), 0);
    assert!(victim.join("f").exists());
}

#[test]
fn a_link_in_the_place_of_a_directory_leads_nowhere() {
    let world = World::new();
    let victim = world.dir.path().join("victim");
    fs::create_dir(&victim).expect("directory");
    fs::write(victim.join("f"), "x").expect("file");
    symlink(&victim, world.path()).expect("link");
    world.storage.ensure(&world.volume()).expect_err("a link");
    fs::remove_file(world.path()).expect("remove");
    world.storage.ensure(&world.volume()).expect("made");
    fs::remove_dir(world.path()).expect("remove");
    symlink(&victim, world.path()).expect("link");
    world.storage.ensure(&world.volume()).expect_err("a link");
    assert!(
        world
            .storage
            .let_go(&world.volume(), false, unused)
            .expect("removed")
    );
    assert!(!world.path().is_symlink() && victim.join("f").exists());
}

#[test]
fn what_was_made_is_removed_once_nobody_uses_it() {
    let world = World::new();
    world.storage.ensure(&world.volume()).expect("made");
    fs::write(world.path().join("f"), "x").expect("write");
    assert!(
        !world
            .storage
            .let_go(&world.volume(), false, || Ok(true))
            .expect("asked")
    );
    let unknown = || Err(io::Error::other("unreadable"));
    world
        .storage
        .let_go(&world.volume(), false, unknown)
        .expect_err("it may be used");
    assert!(world.path().join("f").exists());
    assert!(
        world
            .storage
            .let_go(&world.volume(), false, unused)
            .expect("removed")
    );
    assert!(!world.path().exists());
    assert_eq!(world.records(), 0);
    assert!(
        world
            .storage
            .let_go(&world.volume(), false, unused)
            .expect("again")
    );
    let mut deleted = world.volume();
    deleted.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time");
    let error = world.storage.ensure(&deleted).expect_err("it goes");
    assert!(matches!(error, StorageError::Going), "{error}");
}

#[test]
fn a_volume_whose_removal_was_cut_off_is_not_used_again() {
    let world = World::new();
    world.storage.ensure(&world.volume()).expect("made");
    let file = world.storage.file(&world.volume()).expect("a name");
    let going = Record {
        state: State::Going,
        ..read(&file).expect("read").expect("a record")
    };
    write(&file, &going).expect("write");
    let error = world.storage.ensure(&world.volume()).expect_err("it goes");
    assert!(matches!(error, StorageError::Going), "{error}");
    assert!(
        world
            .storage
            .let_go(&world.volume(), false, unused)
            .expect("removed")
    );
    assert!(!world.path().exists());
}

#[test]
fn what_is_retained_stays_and_serves_a_volume_of_that_name_again() {
    let world = World::new();
    world.storage.ensure(&world.volume()).expect("made");
    fs::write(world.path().join("f"), "x").expect("write");
    fs::set_permissions(
        world.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .expect("mode");
    assert!(
        world
            .storage
            .let_go(&world.volume(), true, unused)
            .expect("forgotten")
    );
    assert_eq!(world.records(), 0);
    let mut again = world.volume();
    again.metadata.uid = Some("0b9c-2".to_owned());
    world.storage.ensure(&again).expect("found");
    assert!(world.path().join("f").exists());
    assert_eq!(
        fs::metadata(world.path()).expect("kept").mode() & 0o777,
        0o700
    );
}

#[test]
fn another_storage_directory_leaves_volumes_where_they_are() {
    let world = World::new();
    world.storage.ensure(&world.volume()).expect("made");
    let moved = Storage::new(
        "n1",
        &world.dir.path().join("other"),
        &world.dir.path().join("records"),
    );
    moved.ensure(&world.volume()).expect("found");
    assert!(
        moved
            .let_go(&world.volume(), false, unused)
            .expect("removed")
    );
    assert!(!world.path().exists());
}

#[test]
fn a_disk_that_is_not_mounted_is_not_taken_for_one_without_volumes() {
    let world = World::new();
    let volume = world.volume();
    world.storage.ensure(&volume).expect("made");
    let (base, disk) = (
        world.dir.path().join("storage"),
        world.dir.path().join("disk"),
    );
    // What is there while the disk is not.
    fs::rename(&base, &disk).expect("unmount");
    fs::create_dir(&base).expect("directory");
    let error = world.storage.let_go(&volume, false, unused).unwrap_err();
    assert!(matches!(error, StorageError::Away { .. }), "{error}");
    assert_eq!(world.records(), 1);
    let mut other = volume.clone();
    other.metadata.name = Some("pvc-2".to_owned());
    other.metadata.uid = Some("0b9c-2".to_owned());
    let path = base.join("pvc-2_default_data");
    other.spec.as_mut().unwrap().local.as_mut().unwrap().path = path.display().to_string();
    let error = world.storage.ensure(&other).unwrap_err();
    assert!(matches!(error, StorageError::AnotherDisk { .. }), "{error}");
    // A directory that somebody has removed from the disk itself is gone.
    fs::remove_dir(&base).expect("directory");
    fs::rename(&disk, &base).expect("mount");
    world.storage.ensure(&other).expect("made");
    fs::remove_dir(world.path()).expect("by hand");
    assert!(world.storage.let_go(&volume, false, unused).expect("gone"));
    assert!(
        world
            .storage
            .let_go(&other, false, unused)
            .expect("removed")
    );
    assert_eq!(world.records(), 0);
}

#[test]
fn a_node_that_has_forgotten_a_volume_makes_no_empty_one_in_its_place() {
    let world = World::new();
    let mut volume = world.volume();
    world.storage.note(&volume).expect("noted");
    assert_eq!(world.records(), 1);
    assert!(!world.path().exists(), "others hear of it first");
    let annotations = volume.metadata.annotations.get_or_insert_default();
    annotations.insert(local_path::MADE.to_owned(), "true".to_owned());
    world
        .storage
        .ensure(&volume)
        .expect("it was cut off before");
    // The machine is another of the same name.
    let forget = || {
        let records = world.dir.path().join("records");
        fs::remove_dir_all(&records).expect("forget");
        fs::create_dir(&records).expect("directory");
    };
    forget();
    fs::write(world.path().join("f"), "x").expect("file");
    world
        .storage
        .ensure(&volume)
        .expect("its disk is there still");
    assert!(world.path().join("f").exists());
    forget();
    fs::remove_dir_all(world.path()).expect("a new disk");
    let error = world.storage.ensure(&volume).unwrap_err();
    assert!(matches!(error, StorageError::Gone { .. }), "{error}");
    assert_eq!(world.records(), 0);
}
