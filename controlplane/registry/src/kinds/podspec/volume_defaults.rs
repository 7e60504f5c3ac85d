//! The defaults of volumes.
//!
//! Source: `pkg/apis/core/v1/defaults.go` at v1.37.

use serde_json::{Map, Value};

use super::defaults::image_tag_is_latest;
use crate::{fill, value::string};

/// `0644`, in the decimal that JSON knows.
const FILE_MODE: i64 = 0o644;

/// Fills in one entry of `volumes`.
pub(super) fn volume(volume: &mut Value) {
    // A volume without a source is an emptyDir.
    if let Some(map) = volume.as_object_mut()
        && !map
            .iter()
            .any(|(key, value)| key != "name" && !value.is_null())
    {
        map.insert("emptyDir".to_owned(), Map::new().into());
    }
    source(volume);
}

/// Fills in a volume's source, whichever it is.
fn source(source: &mut Value) {
    fill::within(source, "secret", |secret| {
        fill::value(secret, "defaultMode", FILE_MODE)
    });
    fill::within(source, "configMap", |config| {
        fill::value(config, "defaultMode", FILE_MODE)
    });
    fill::within(source, "downwardAPI", |downward| {
        fill::value(downward, "defaultMode", FILE_MODE);
        downward_items(downward);
    });
    fill::within(source, "projected", |projected| {
        fill::value(projected, "defaultMode", FILE_MODE);
        fill::each(projected, "sources", |source| {
            fill::within(source, "serviceAccountToken", |token| {
                fill::value(token, "expirationSeconds", 3600)
            });
            fill::within(source, "downwardAPI", downward_items);
        });
    });
    fill::within(source, "hostPath", |path| fill::value(path, "type", ""));
    fill::within(source, "image", |image| {
        let latest = image_tag_is_latest(string(&image["reference"]));
        fill::text(
            image,
            "pullPolicy",
            if latest { "Always" } else { "IfNotPresent" },
        );
    });
    fill::within(source, "ephemeral", |ephemeral| {
        fill::within(ephemeral, "volumeClaimTemplate", |template| {
            fill::within(template, "spec", |spec| {
                fill::value(spec, "volumeMode", "Filesystem")
            });
        });
    });
    fill::within(source, "iscsi", |iscsi| {
        fill::text(iscsi, "iscsiInterface", "default")
    });
    fill::within(source, "rbd", |rbd| {
        fill::text(rbd, "pool", "rbd");
        fill::text(rbd, "user", "admin");
        fill::text(rbd, "keyring", "/etc/ceph/keyring");
    });
    fill::within(source, "azureDisk", |disk| {
        fill::value(disk, "cachingMode", "ReadWrite");
        fill::value(disk, "kind", "Shared");
        fill::value(disk, "fsType", "ext4");
        fill::value(disk, "readOnly", false);
    });
    fill::within(source, "scaleIO", |scale_io| {
        fill::text(scale_io, "storageMode", "ThinProvisioned");
        fill::text(scale_io, "fsType", "xfs");
    });
}

fn downward_items(downward: &mut Value) {
    fill::each(downward, "items", |item| {
        fill::within(item, "fieldRef", |field| {
            fill::text(field, "apiVersion", "v1")
        });
    });
}
