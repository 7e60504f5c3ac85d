//! No kind's checks take more than in proportion to what is checked: each list of each kind, a few
//! items and many.
//!
//! Processor time of this thread, not of a clock on the wall: who compares each item with all
//! others takes many times as long for eight times as many, and a machine that is busy does not
//! look like that, twice.

use std::{hint::black_box, time::Duration};

use coracle_api::{
    resource::Gvk,
    schema::{Element, Field, FieldKind, Type, table},
};
use nix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};

use super::super::all;
use crate::{
    strategy::BuiltIn,
    testing::{created, minimal, updated},
};

/// So many items, and so many times as many.
const FEW: usize = 500;
const TIMES: usize = 8;
/// Time that may be so many times as much for that. What is no square takes eight times as much,
/// and sixteen where the many leave the processor's caches; a square and the rest of the work
/// together some thirty.
const MOST_TIMES: u32 = 20;
/// Nothing is worth a second look that takes less.
const NOTHING: Duration = Duration::from_millis(100);
/// Deeper lists are like the higher ones.
const DEPTH: usize = 8;

/// What every kind has, looked at once, and what pods are looked at for.
const ONCE: [&str; 2] = ["ObjectMeta", "PodTemplateSpec"];

fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .unwrap()
        .into()
}

fn taken(work: impl FnOnce()) -> Duration {
    let started = processor_time();
    work();
    processor_time() - started
}

/// Where in an object a list or map is: fields from the top on, lists by their first item.
type Path = Vec<Field>;

fn lists(ty: Type, at: &Path, above: &mut Vec<Type>, found: &mut Vec<Path>) {
    if above.contains(&ty) || above.len() > DEPTH {
        return;
    }
    above.push(ty);
    for field in ty.fields() {
        let here: Path = at.iter().copied().chain([field]).collect();
        if !matches!(field.kind, FieldKind::One(_)) {
            found.push(here.clone());
        }
        match field.object_type() {
            Some(ty)
                if !ONCE.contains(&ty.short_name()) && !matches!(field.kind, FieldKind::Map(_)) =>
            {
                lists(ty, &here, above, found);
            }
            _ => {}
        }
    }
    above.pop();
}

/// Item number `at` of a list.
fn item(element: Element, at: usize) -> Value {
    match element {
        Element::Object(ty) => {
            let plain = ty
                .fields()
                .filter(|field| matches!(field.kind, FieldKind::One(_)));
            let fields = plain.filter(|field| field.object_type().is_none());
            fields
                .map(|field| (field.json_name.to_owned(), item(field.kind.element(), at)))
                .collect::<Map<_, _>>()
                .into()
        }
        Element::Bool => true.into(),
        Element::Int32 | Element::Int64 | Element::IntOrString => (at + 1).into(),
        Element::Double => json!(0.5),
        Element::Time | Element::MicroTime => "2026-01-01T00:00:00Z".into(),
        Element::StringList => json!([format!("x{at:x}")]),
        Element::String | Element::Bytes | Element::Quantity => format!("x{at:x}").into(),
        _ => Value::Null,
    }
}

/// `object` with `count` items at `path`.
fn grown(object: &Value, path: &[Field], count: usize) -> Value {
    let mut object = object.clone();
    let mut place = &mut object;
    for (at, field) in path.iter().enumerate() {
        place = &mut place[field.json_name];
        let (element, is_last) = (field.kind.element(), at + 1 == path.len());
        match field.kind {
            FieldKind::List(_) if is_last => {
                *place = (0..count).map(|at| item(element, at)).collect()
            }
            FieldKind::Map(_) => {
                *place = (0..count)
                    .map(|at| (format!("x{at:x}"), item(element, at)))
                    .collect::<Map<_, _>>()
                    .into();
            }
            FieldKind::List(_) => {
                if !place.is_array() {
                    *place = json!([item(element, 0)]);
                }
                place = &mut place[0];
            }
            FieldKind::One(_) => {}
        }
    }
    object
}

/// All that a strategy does with an object.
fn work(kind: &'static dyn BuiltIn, object: Value) {
    let old = created(kind, object);
    let mut new = updated(kind, old.clone(), &old);
    black_box(kind.validate(&old).len() + kind.validate_update(&new, &old).len());
    kind.prepare_for_status_update(&mut new, &old);
    black_box(
        kind.validate_status_update(&new, &old).len()
            + kind.warnings(&new).len()
            + kind.row(&new, 0).len(),
    );
    let changed = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": old["metadata"]["finalizers"]}});
    black_box(crate::object_meta::validate_update(&new, &changed).len());
}

/// Whether time grows with the square of the items. Once more, if it seems so: a machine may have
/// had other things to do.
fn is_square(kind: &'static dyn BuiltIn, object: &Value, path: &[Field]) -> Option<String> {
    let time = |count: usize| {
        let object = grown(object, path, count);
        taken(|| work(kind, object))
    };
    let looks = || {
        let many = time(FEW * TIMES);
        if many < NOTHING {
            return None;
        }
        let few = time(FEW);
        (many > few * MOST_TIMES).then_some((few, many))
    };
    let _ = looks()?;
    let (few, many) = looks()?;
    let names: Vec<_> = path.iter().map(|field| field.json_name).collect();
    Some(format!(
        "{} {}: {few:?} for {FEW} items, {many:?} for {TIMES} times as many",
        kind.resource().kind,
        names.join(".")
    ))
}

#[test]
fn no_list_is_compared_with_itself() {
    let mut found = Vec::new();
    for kind in all() {
        let info = kind.resource();
        let Some(ty) = table().by_gvk(&Gvk::new(info.group, info.version, info.kind)) else {
            continue;
        };
        let mut paths = Vec::new();
        lists(ty, &Vec::new(), &mut Vec::new(), &mut paths);
        if info.plural == "configmaps" {
            let metadata = ty.field("metadata").unwrap();
            lists(
                metadata.object_type().unwrap(),
                &vec![metadata],
                &mut Vec::new(),
                &mut paths,
            );
        }
        let object = minimal::minimal(*kind);
        found.extend(
            paths
                .iter()
                .filter_map(|path| is_square(*kind, &object, path)),
        );
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// As many items as `count`, each with a name of its own in `field`.
fn names(count: usize, field: &str, more: Value) -> Value {
    let one = |at: usize| {
        let mut one = more.clone();
        one[field] = format!("x{at:x}").into();
        one
    };
    (0..count).map(one).collect()
}

/// Pods whose lists are held against one another: what is long in them, the spec and the status.
fn held_together(many: usize) -> Vec<(&'static str, Value, Value)> {
    let device = json!({"name": format!("x{:x}", many - 1), "devicePath": "/x"});
    let with_devices =
        |at: usize| json!({"name": format!("c{at:x}"), "image": "i", "volumeDevices": [device]});
    let ports: Value = (0..many)
        .map(|at| json!({"containerPort": 80, "protocol": "TCP", "hostPort": at + 1}))
        .collect();
    let ended = json!({"state": {"terminated": {"exitCode": 1}}});
    vec![
        (
            "volumes",
            json!({"volumes": names(many, "name", json!({"persistentVolumeClaim": {"claimName": "c"}})),
            "containers": (0..many).map(with_devices).collect::<Value>()}),
            json!({}),
        ),
        (
            "mounts",
            json!({"containers": [{"name": "c", "image": "i", "volumeMounts": names(many, "name", json!({"mountPath": "/a"})),
            "volumeDevices": names(many, "name", json!({"devicePath": "/b"}))}]}),
            json!({}),
        ),
        (
            "ports",
            json!({"containers": [{"name": "c", "image": "i", "ports": ports}]}),
            json!({}),
        ),
        (
            "statuses",
            json!({"containers": names(many, "name", json!({"image": "i"})),
            "initContainers": names(many, "name", json!({"image": "i", "restartPolicy": "Always"}))}),
            json!({"containerStatuses": names(many, "name", ended.clone()), "initContainerStatuses": names(many, "name", ended)}),
        ),
        (
            "claims",
            json!({"containers": [{"name": "c", "image": "i"}], "resourceClaims": names(many, "name", json!({}))}),
            json!({"resourceClaimStatuses": names(many, "name", json!({}))}),
        ),
        (
            "gates",
            json!({"containers": [{"name": "c", "image": "i"}], "readinessGates": names(many, "conditionType", json!({}))}),
            json!({"conditions": names(many, "type", json!({"status": "True"}))}),
        ),
        (
            "targets",
            json!({"containers": names(many, "name", json!({"image": "i"})),
            "ephemeralContainers": names(many, "targetContainerName", json!({"name": "e", "image": "i"}))}),
            json!({}),
        ),
    ]
}

/// Lists that are held against one another.
#[test]
fn no_list_is_compared_with_another() {
    let kind = all()
        .iter()
        .find(|kind| kind.resource().plural == "pods")
        .unwrap();
    for (name, spec, status) in held_together(FEW * TIMES) {
        // By squares it takes more than a second.
        let time = || {
            let object = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec, "status": status});
            taken(|| work(*kind, object))
        };
        let taken = time().min(time());
        assert!(taken < Duration::from_millis(700), "{name}: {taken:?}");
    }
}
