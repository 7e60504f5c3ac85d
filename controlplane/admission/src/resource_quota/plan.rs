//! What one quota says to a write: whether it is about it, and what it has used afterwards.

use coracle_api::{
    meta, quota,
    resource_list::{self, Amounts, amounts_of_json},
};
use coracle_registry::store::companions::Write;
use jiff::Timestamp;
use serde_json::Value;

/// A quota that is about a write.
pub(super) struct Interest {
    /// What of its resources such objects can use.
    pub(super) names: Vec<String>,
}

/// Whether `quota` is about the write.
///
/// # Errors
/// The write does not say what it must, or nobody has counted yet what is used.
pub(super) fn interest(quota: &Value, write: Write<'_>) -> Result<Option<Interest>, String> {
    let (group, plural) = (&*write.resource.info.group, &*write.resource.info.plural);
    let (name, spec) = (meta::name(quota), &quota["spec"]);
    let hard = amounts_of_json(&quota["status"]["hard"]);
    let names = quota::names_of(group, plural, hard.keys().map(String::as_str));
    if names.is_empty() || !quota::in_scope(spec, group, plural, write.new) {
        return Ok(None);
    }
    if write.resource.is_core("pods")
        && let Some(missing) = quota::missing(&names, write.new)
    {
        return Err(format!("failed quota: {name}: {missing}"));
    }
    let used = amounts_of_json(&quota["status"]["used"]);
    if names.iter().any(|name| !used.contains_key(*name)) {
        return Err(format!(
            "status unknown for quota: {name}, resources: {}",
            names.join(",")
        ));
    }
    let names = names.into_iter().map(str::to_owned).collect();
    Ok(Some(Interest { names }))
}

/// What `quota` has used after the write; `None` if it uses no more than before.
///
/// # Errors
/// Why it is not allowed.
pub(super) fn charge(
    quota: &Value,
    write: Write<'_>,
    now: Timestamp,
) -> Result<Option<Amounts>, String> {
    let (name, spec) = (meta::name(quota), &quota["spec"]);
    let hard = amounts_of_json(&quota["status"]["hard"]);
    let mut used = amounts_of_json(&quota["status"]["used"]);
    let mut asked = increase(Some(spec), write, now)?;
    asked.retain(|name, _| hard.contains_key(name));
    if asked.is_empty() {
        return Ok(None);
    }
    let before = used.clone();
    resource_list::add(&mut used, &asked);
    let exceeded: Vec<&String> = asked
        .keys()
        .filter(|name| used[*name] > hard[*name])
        .collect();
    if exceeded.is_empty() {
        return Ok(Some(used));
    }
    let of = |amounts: &Amounts| {
        quota::print(
            exceeded
                .iter()
                .filter_map(|name| amounts.get_key_value(*name)),
        )
    };
    Err(format!(
        "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
        of(&asked),
        of(&before),
        of(&hard)
    ))
}

/// What the write uses more than there was used before by what it replaces, as far as that is in
/// the quota's scopes, if it is one's. What becomes less is given back by the controller, which
/// counts anew.
///
/// # Errors
/// It says that it uses less than nothing.
pub(super) fn increase(
    spec: Option<&Value>,
    write: Write<'_>,
    now: Timestamp,
) -> Result<Amounts, String> {
    let (group, plural) = (&*write.resource.info.group, &*write.resource.info.plural);
    let mut asked = quota::usage(group, plural, write.new, now);
    let negative: Vec<&str> = asked
        .iter()
        .filter(|(_, amount)| amount.is_negative())
        .map(|(name, _)| name.as_str())
        .collect();
    if !negative.is_empty() {
        return Err(format!(
            "quota usage is negative for resource(s): {}",
            negative.join(",")
        ));
    }
    if let Some(old) = write.old
        && spec.is_none_or(|spec| quota::in_scope(spec, group, plural, old))
    {
        let before = quota::usage(group, plural, old, now);
        for (name, amount) in &mut asked {
            if let Some(before) = before.get(name) {
                *amount -= *before;
            }
        }
    }
    asked.retain(|_, amount| !amount.is_zero() && !amount.is_negative());
    Ok(asked)
}
