//! `scale`: how many replicas, in the words of autoscaling/v1.
//!
//! Source: `pkg/registry/apps/deployment/storage/storage.go`, `ScaleREST` at v1.37.

use std::{borrow::Cow, sync::Arc};

use coracle_admission::Operation;
use coracle_api::{
    meta,
    resource::Gvk,
    status::{FieldErrors, Reason, Status},
};
use coracle_registry::{
    cells::{self, AGE, NAME, integer},
    managed_fields::FieldManager,
    part::Part,
    scale,
    strategy::{Column, ScalePaths, Strategy},
};
use serde_json::{Value, json};

use super::{parse, sent::Sent};
use crate::{
    endpoints::{
        Call,
        apply::{Configuration, take_version},
        get,
        update::check_name_if_any,
    },
    reply::Reply,
};

fn gvk() -> Gvk {
    Gvk::new("autoscaling", "v1", "Scale")
}

/// Serves the Scale of the object.
pub(super) async fn get(call: &Call<'_>) -> Result<Reply, Status> {
    let shape = call.shape()?;
    let entry: Arc<_> = get::entry(call).await?;
    let object = if call.resource.converted.is_some() {
        parse(&call.resource.shown_now(&entry).await?)?
    } else {
        let object = serde_json::from_slice(&entry.unmanaged()).map_err(Status::internal)?;
        call.resource.shown(object)
    };
    let paths = paths(call);
    fits(call, &paths, &object)?;
    if call.resource.strategy.scale_paths().is_some() && paths.wanted(&object).is_none() {
        let path = paths.spec_replicas.join(".");
        let what = format!("the spec replicas field \".{path}\" does not exist");
        return Err(Status::internal(what));
    }
    let shown = serde_json::to_vec(&scale::of(&object, &paths)).map_err(Status::internal)?;
    Ok(Call::shaped(&ScaleColumns, shown.into(), shape))
}

/// How a Scale looks in a table.
struct ScaleColumns;

static COLUMNS: &[Column] = &[
    NAME,
    integer(
        "Desired",
        "replicas is the desired number of instances for the scaled object.",
    ),
    integer(
        "Available",
        "replicas is the actual number of observed instances of the scaled object.",
    ),
    AGE,
];

impl Strategy for ScaleColumns {
    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let replicas = |part: &str| object[part]["replicas"].as_i64().unwrap_or(0).into();
        vec![
            cells::name(object),
            replicas("spec"),
            replicas("status"),
            cells::age(object, now_secs),
        ]
    }
}

/// Replaces, patches or applies the Scale of the object.
pub(super) async fn write(call: &Call<'_>) -> Result<Reply, Status> {
    let options = call.write_options()?;
    let (gvk, paths) = (gvk(), paths(call));
    let sent = Sent::of(call, &gvk, Part::Main)?;
    let manager = sent.manager(call);
    let (request, target) = (
        call.admission_request(Operation::Update, options),
        call.update_target(Part::Main, options, &manager),
    );
    let mut warnings = Vec::new();
    let change = |old: &Value| {
        fits(call, &paths, old)?;
        if let Sent::Configuration(scale) = &sent {
            warnings.clone_from(&scale.warnings);
            return applied(call, &paths, &manager, old, scale);
        }
        let wanted = sent.wanted(call, &gvk, &manager, &scale::of(old, &paths))?;
        check(call, &wanted.object)?;
        is_said(call, &sent, &paths, old, &wanted.object)?;
        let mut new = scale::written(&wanted.object, old, &paths);
        take_version(&mut new, &wanted.object);
        warnings = wanted.warnings;
        Ok(new)
    };
    let written = call
        .server
        .update(call.resource, &request, target, change)
        .await?;
    warnings.extend(written.warnings);
    Ok(Reply::value(&scale::of(&parse(&written.json)?, &paths)).with_warnings(warnings))
}

/// What a custom kind says it has there may be of any type.
fn fits(call: &Call<'_>, paths: &ScalePaths, object: &Value) -> Result<(), Status> {
    let is_custom = call.resource.strategy.scale_paths().is_some();
    match paths.misfit(object).filter(|_| is_custom) {
        Some(why) => Err(Status::new(500, Reason::Unknown, why)),
        None => Ok(()),
    }
}

/// A patch of what has no replicas says how many it shall have: zero would be somebody's decision.
fn is_said(
    call: &Call<'_>,
    sent: &Sent,
    paths: &ScalePaths,
    old: &Value,
    wanted: &Value,
) -> Result<(), Status> {
    let is_custom = call.resource.strategy.scale_paths().is_some();
    let is_open = matches!(sent, Sent::Patch(_)) && paths.wanted(old).is_none();
    if is_custom && is_open && wanted["spec"]["replicas"].is_null() {
        let path = paths.spec_replicas.join(".");
        let what = format!("the spec replicas field \".{path}\" cannot be empty");
        return Err(Status::bad_request(what));
    }
    Ok(())
}

/// The object with an applied Scale. The owner of the replicas owns them in the object.
fn applied(
    call: &Call<'_>,
    paths: &ScalePaths,
    manager: &FieldManager,
    old: &Value,
    scale: &Configuration,
) -> Result<Value, Status> {
    check(call, &scale.object)?;
    let mut config = json!({
        "apiVersion": call.resource.gvk.api_version(), "kind": call.resource.gvk.kind,
        "metadata": {"name": call.info.name, "namespace": call.info.namespace},
    });
    if let Some(replicas) = meta::get_i64(&scale.object, &["spec", "replicas"]) {
        meta::set(&mut config, &paths.spec(), replicas);
    }
    let mut new = manager.apply(call.resource, Some(old), &config, scale.force)?;
    take_version(&mut new, &scale.object);
    Ok(new)
}

fn check(call: &Call<'_>, scale: &Value) -> Result<(), Status> {
    check_name_if_any(call, scale)?;
    let replicas = meta::get_i64(scale, &["spec", "replicas"]).unwrap_or(0);
    if replicas < 0 {
        let mut errors = FieldErrors::default();
        errors.invalid(
            "spec.replicas",
            &json!(replicas),
            "must be greater than or equal to 0",
        );
        return Err(Status::invalid(&gvk(), &call.info.name, errors));
    }
    Ok(())
}

/// Where the replicas of the kind are.
fn paths(call: &Call<'_>) -> Cow<'static, ScalePaths> {
    scale::paths(&*call.resource.strategy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_shows_wanted_and_present() {
        let scale = json!({"metadata": {"name": "d"}, "spec": {}, "status": {"replicas": 2}});
        assert_eq!(
            ScaleColumns.row(&scale, 0)[..3],
            [json!("d"), json!(0), json!(2)]
        );
    }
}
