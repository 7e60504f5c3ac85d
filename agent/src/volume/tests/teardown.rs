//! What is taken away of the volumes that an agent, or an earlier one, has made.

use super::{
    super::teardown::{Failures, tear_down},
    *,
};

/// Tells which directories it was given, and refuses one of them.
#[derive(Default)]
struct Witness(parking_lot::Mutex<Vec<PathBuf>>);

#[async_trait::async_trait]
impl VolumePlugin for Witness {
    fn name(&self) -> &'static str {
        "witness"
    }

    fn supports(&self, _: Source<'_>) -> bool {
        false
    }

    async fn set_up(&self, _: &SetUp<'_>) -> Result<PathBuf, VolumePluginError> {
        Err(VolumePluginError::Unsupported)
    }

    fn tear_down(&self, dir: &Path) -> Result<(), VolumePluginError> {
        self.0.lock().push(dir.to_owned());
        if dir.ends_with("stuck") {
            Err(VolumePluginError::Unsupported)
        } else {
            Ok(())
        }
    }
}

#[test]
fn a_plugin_is_given_each_volume_that_an_earlier_agent_made() {
    let root = tempfile::tempdir().expect("directory");
    let volumes = root.path().join(VOLUMES);
    let witness = Witness(parking_lot::Mutex::default());
    let all = |volumes: &Path| {
        let mut failures = Failures::default();
        tear_down(&witness, volumes, &mut failures);
        failures.first()
    };
    all(&volumes).expect("there is none");
    let own = volumes.join("kubernetes.io~witness");
    for dir in [
        own.join("a"),
        own.join("b"),
        volumes.join("kubernetes.io~other/c"),
    ] {
        std::fs::create_dir_all(dir).expect("directory");
    }
    all(&volumes).expect("tear down");
    let mut given = std::mem::take(&mut *witness.0.lock());
    given.sort();
    assert_eq!(given, [own.join("a"), own.join("b")]);
    std::fs::create_dir(own.join("stuck")).expect("directory");
    all(&volumes).expect_err("what is stuck is told, and kept");
}

#[tokio::test]
async fn a_volume_that_stays_keeps_no_other() {
    let root = tempfile::tempdir().expect("directory");
    let (stuck, well) = (Arc::new(Witness::default()), Arc::new(Witness::default()));
    let plugins: [Box<dyn VolumePlugin>; 2] = [
        Box::new(Named("stuck", Arc::clone(&stuck))),
        Box::new(Named("well", Arc::clone(&well))),
    ];
    let manager = VolumeManager {
        plugins: plugins.into(),
        ..claims::manager(root.path(), claims::nobody())
    };
    let uid = PodUid("u".to_owned());
    let volumes = [
        manager.dir(&uid, "stuck", "stuck"),
        manager.dir(&uid, "stuck", "other"),
        manager.dir(&uid, "well", "v"),
    ];
    for dir in &volumes {
        std::fs::create_dir_all(dir).expect("directory");
    }
    let error = manager.teardown(&uid).await.expect_err("one is stuck");
    assert!(matches!(error, VolumePluginError::Unsupported), "{error}");
    assert_eq!(stuck.0.lock().len(), 2);
    assert_eq!(*well.0.lock(), [manager.dir(&uid, "well", "v")]);
    // Their directories are the record by which the next try finds them.
    assert!(volumes.iter().all(|dir| dir.is_dir()));
    std::fs::remove_dir(&volumes[0]).expect("directory");
    manager.teardown(&uid).await.expect("none is stuck");
    assert!(!manager.pod_dir(&uid).join(VOLUMES).exists());
}

/// A witness under another name.
struct Named(&'static str, Arc<Witness>);

#[async_trait::async_trait]
impl VolumePlugin for Named {
    fn name(&self) -> &'static str {
        self.0
    }

    fn supports(&self, source: Source<'_>) -> bool {
        self.1.supports(source)
    }

    async fn set_up(&self, wanted: &SetUp<'_>) -> Result<PathBuf, VolumePluginError> {
        self.1.set_up(wanted).await
    }

    fn tear_down(&self, dir: &Path) -> Result<(), VolumePluginError> {
        self.1.tear_down(dir)
    }
}
