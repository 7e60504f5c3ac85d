//! What must hold for network configurations and for plugins' results: see [`crate::fuzzing`].

use coracle_cni::{
    conf::{NetConf, VERSIONS},
    error::WireError,
    result::CniResult,
};
use serde_json::Value;

use super::{
    capabilities,
    conflist::{self, is_file_name},
    exec,
};
use crate::runtime::types::PortMapping;

/// A plugin is called by a file's name and told network, version and the result before; a list and
/// the own plugin's configuration are refused, or the same when they are written again.
pub fn cni_configuration(bytes: &[u8]) {
    if let Ok(list) = conflist::parse(bytes) {
        let known = capabilities::of_ports(&[PortMapping {
            host_port: 1,
            container_port: 2,
            protocol: "TCP".into(),
            host_ip: String::new(),
        }]);
        let mut previous = None;
        for index in 0..list.plugins.len() {
            assert!(
                is_file_name(conflist::plugin_type(&list, index)),
                "{list:?}"
            );
            let conf = conflist::plugin_conf(&list, index, previous.as_ref(), &known);
            assert_eq!(
                (&conf["name"], &conf["cniVersion"]),
                (
                    &list.name.as_str().into(),
                    &list.cni_version.as_str().into()
                )
            );
            if let Some(previous) = &previous {
                assert_eq!(conf["prevResult"], *previous);
            }
            previous = Some(Value::from(index));
        }
        let written = serde_json::to_vec(&list).expect("a list");
        assert_eq!(conflist::parse(&written), Ok(list));
    }
    if let Ok(conf) = NetConf::parse(bytes) {
        assert!(
            is_file_name(&conf.name) && is_file_name(&conf.bridge),
            "{conf:?}"
        );
        let subnet = conf.ipam.subnet;
        let (first, last) = (conf.ipam.first(), conf.ipam.last());
        assert!(
            first <= last
                && [first, last, conf.ipam.gateway()]
                    .iter()
                    .all(|ip| subnet.contains(ip)),
            "{conf:?}"
        );
        let written = serde_json::to_vec(&conf).expect("a configuration");
        assert_eq!(NetConf::parse(&written).expect("its own text"), conf);
    }
}

/// Every address that a result lists is known, in every version; an error is the same when it is
/// written again.
pub fn cni_result(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    // Those of before 0.3.0 have their addresses elsewhere.
    let is_oldest = ["ip4", "ip6"].iter().any(|key| !value[key].is_null());
    if !is_oldest && let Ok(found) = exec::addresses(&value) {
        assert!(found.len() <= value["ips"].as_array().map_or(0, Vec::len));
        let result: CniResult = serde_json::from_value(value.clone()).expect("it was read");
        for version in VERSIONS {
            let written =
                serde_json::to_value(result.clone().into_version(version)).expect("a result");
            assert_eq!(exec::addresses(&written).expect("its own text"), found);
            let again: CniResult = serde_json::from_value(written).expect("its own text");
            assert_eq!(again, result.clone().into_version(version));
        }
    }
    if let Ok(error) = serde_json::from_value::<WireError>(value) {
        let written = serde_json::to_value(&error).expect("an error");
        assert_eq!(
            serde_json::from_value::<WireError>(written).expect("its own text"),
            error
        );
    }
}
