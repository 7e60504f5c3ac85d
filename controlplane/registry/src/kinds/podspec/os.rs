//! Checks of a pod's operating system, and of what goes with one of them alone.
//!
//! Source: `validateOS`, `validateLinux`, `validateWindows` and `validateWindowsHostProcessPod` in
//! `pkg/apis/core/validation/validation.go` at v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::defaults::CONTAINER_LISTS;
use crate::value::{items, string};

const NOT_OF_WINDOWS: &str = "cannot be set for a windows pod";
const NOT_OF_LINUX: &str = "windows options cannot be set for a linux pod";

/// Of a pod's security context, in upstream's order, with what stands beside it in the spec.
const POD_FIELDS: [&str; 15] = [
    "securityContext.appArmorProfile",
    "securityContext.seLinuxOptions",
    "hostUsers",
    "hostPID",
    "hostIPC",
    "securityContext.seccompProfile",
    "securityContext.fsGroup",
    "securityContext.fsGroupChangePolicy",
    "securityContext.sysctls",
    "shareProcessNamespace",
    "securityContext.runAsUser",
    "securityContext.runAsGroup",
    "securityContext.supplementalGroups",
    "securityContext.supplementalGroupsPolicy",
    "securityContext.seLinuxChangePolicy",
];

/// Of a container's security context.
const CONTAINER_FIELDS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

/// `os`, and the fields that it excludes.
pub(super) fn validate(errors: &mut FieldErrors, path: &str, spec: &Value) {
    let os = &spec["os"];
    if !os.is_object() {
        return;
    }
    match string(&os["name"]) {
        "" => errors.required(format!("{path}.os.name"), ""),
        "linux" => linux(errors, path, spec),
        "windows" => windows(errors, path, spec),
        _ => errors.not_supported(format!("{path}.os"), &os["name"], &["linux", "windows"]),
    }
}

fn linux(errors: &mut FieldErrors, path: &str, spec: &Value) {
    let mut check = |path: &str, context: &Value| {
        if !context["windowsOptions"].is_null() {
            errors.forbidden(
                format!("{path}.securityContext.windowsOptions"),
                NOT_OF_LINUX,
            );
        }
    };
    check(path, &spec["securityContext"]);
    for (path, container) in containers(path, spec) {
        check(&path, &container["securityContext"]);
    }
}

fn windows(errors: &mut FieldErrors, path: &str, spec: &Value) {
    for field in POD_FIELDS {
        let value = field.split('.').fold(spec, |value, part| &value[part]);
        let is_set = match field {
            "hostPID" | "hostIPC" => *value == true,
            "securityContext.sysctls" => !items(value).is_empty(),
            _ => !value.is_null(),
        };
        if is_set {
            errors.forbidden(format!("{path}.{field}"), NOT_OF_WINDOWS);
        }
    }
    for (path, container) in containers(path, spec) {
        for field in CONTAINER_FIELDS {
            if !container["securityContext"][field].is_null() {
                errors.forbidden(format!("{path}.securityContext.{field}"), NOT_OF_WINDOWS);
            }
        }
    }
}

/// Containers of the host itself: all of a pod or none, and in the host's network.
pub(super) fn host_process(errors: &mut FieldErrors, path: &str, spec: &Value) {
    let said =
        |holder: &Value| holder["securityContext"]["windowsOptions"]["hostProcess"].as_bool();
    let whole = said(spec);
    let (mut of_host, mut all) = (0, 0);
    for (path, container) in containers(path, spec) {
        let own = said(container);
        if let (Some(whole), Some(own)) = (whole, own)
            && whole != own
        {
            let message = format!(
                "pod hostProcess value must be identical if both are specified, was {whole}"
            );
            let path = format!("{path}.securityContext.windowsOptions.hostProcess");
            errors.invalid(path, &own.into(), message);
        }
        all += 1;
        of_host += usize::from(own.or(whole) == Some(true));
    }
    if of_host == 0 {
        return;
    }
    if of_host != all {
        let message = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(path, &"".into(), message);
    }
    if spec["hostNetwork"] != true {
        let message = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(format!("{path}.hostNetwork"), &false.into(), message);
    }
}

/// All containers of a pod spec, with their paths.
fn containers<'a>(path: &str, spec: &'a Value) -> impl Iterator<Item = (String, &'a Value)> {
    CONTAINER_LISTS.iter().flat_map(move |list| {
        let containers = items(&spec[*list]).iter().enumerate();
        containers.map(move |(index, container)| (format!("{path}.{list}[{index}]"), container))
    })
}
