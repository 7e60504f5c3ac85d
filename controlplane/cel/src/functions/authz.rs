//! `authorizer`: may somebody do something? Who answers is the caller's.

use std::{fmt, sync::Arc};

use coracle_api::name;

use crate::{
    function::{Function, function, size},
    meter::Meter,
    range::{factor, traversal},
    value::{EvalError, Evaluated, Opaque, Value},
};

macro_rules! of_resource {
    ($name:literal, $id:literal, $call:ident) => {
        function(
            $name,
            $call,
            &[(
                $id,
                ".kubernetes.authorization.ResourceCheck, string -> \
                 kubernetes.authorization.ResourceCheck",
            )],
        )
    };
}

macro_rules! of_decision {
    ($name:literal, $result:literal, $call:ident) => {
        function(
            $name,
            $call,
            &[(
                concat!("decision_", $name),
                concat!(".kubernetes.authorization.Decision -> ", $result),
            )],
        )
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    function(
        "path",
        path,
        &[(
            "authorizer_path",
            ".kubernetes.authorization.Authorizer, string -> kubernetes.authorization.PathCheck",
        )],
    ),
    function(
        "group",
        group,
        &[(
            "authorizer_group",
            ".kubernetes.authorization.Authorizer, string -> kubernetes.authorization.GroupCheck",
        )],
    ),
    function(
        "serviceAccount",
        service_account,
        &[(
            "authorizer_serviceaccount",
            ".kubernetes.authorization.Authorizer, string, string -> \
             kubernetes.authorization.Authorizer",
        )],
    ),
    function(
        "resource",
        resource,
        &[(
            "groupcheck_resource",
            ".kubernetes.authorization.GroupCheck, string -> \
             kubernetes.authorization.ResourceCheck",
        )],
    ),
    of_resource!("subresource", "resourcecheck_subresource", subresource),
    of_resource!("namespace", "resourcecheck_namespace", namespace),
    of_resource!("name", "resourcecheck_name", named),
    of_resource!("fieldSelector", "authorizer_fieldselector", field_selector).named(selected),
    of_resource!("labelSelector", "authorizer_labelselector", label_selector).named(selected),
    function(
        "check",
        check,
        &[
            (
                "pathcheck_check",
                ".kubernetes.authorization.PathCheck, string -> kubernetes.authorization.Decision",
            ),
            (
                "resourcecheck_check",
                ".kubernetes.authorization.ResourceCheck, string -> \
                 kubernetes.authorization.Decision",
            ),
        ],
    )
    .named(|_, _| CHECK_COST),
    of_decision!("allowed", "bool", allowed),
    of_decision!("reason", "string", reason),
    of_decision!("errored", "bool", errored),
    of_decision!("error", "string", error),
];

/// So that an expression may ask twice.
pub(crate) const CHECK_COST: u64 = 350_000;

/// A list, the text, and for each requirement, of two characters or more, a list and an object.
pub(crate) fn selector_cost(length: u64) -> u64 {
    let requirements = factor(length, 0.5);
    10 + traversal(length) + requirements.saturating_mul(50)
}

fn selected(args: &[Option<&Value<'_>>], _: Option<&Value<'_>>) -> u64 {
    selector_cost(size(args, 1))
}

/// Answers what expressions ask of authorization.
pub trait Authorizer: Send + Sync {
    /// Whether it is allowed.
    fn authorize(&self, check: &Check) -> Decision;
}

/// What is asked. What is empty was not said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Check {
    /// Namespace and name of a service account that is asked about in place of the user.
    pub service_account: Option<(String, String)>,
    /// Of a request that is none for a resource.
    pub path: String,
    /// Of the resource.
    pub group: String,
    /// In the plural.
    pub resource: String,
    /// `status` and so on.
    pub subresource: String,
    /// Of the object.
    pub namespace: String,
    /// Of the object.
    pub name: String,
    /// As written.
    pub field_selector: String,
    /// As written.
    pub label_selector: String,
    /// Of the API, or of HTTP for a path.
    pub verb: String,
}

/// An answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// What the authorizer said for it.
    pub reason: String,
    /// Why there is no answer.
    pub error: Option<String>,
}

/// The value of a variable of the type `kubernetes.authorization.Authorizer`.
pub fn authorizer<'v>(authorizer: Arc<dyn Authorizer>) -> Value<'v> {
    stage(
        "kubernetes.authorization.Authorizer",
        authorizer,
        Check::default(),
    )
}

/// The value of a variable of the type `kubernetes.authorization.ResourceCheck`.
pub fn resource_check<'v>(authorizer: Arc<dyn Authorizer>, check: Check) -> Value<'v> {
    stage("kubernetes.authorization.ResourceCheck", authorizer, check)
}

/// A question on its way; the type's name says how far it is.
struct Stage {
    name: &'static str,
    authorizer: Arc<dyn Authorizer>,
    check: Check,
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.name, self.check)
    }
}

impl Opaque for Stage {
    fn type_name(&self) -> &'static str {
        self.name
    }

    fn equals(&self, _: &dyn Opaque) -> bool {
        false
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl Opaque for Decision {
    fn type_name(&self) -> &'static str {
        "kubernetes.authorization.Decision"
    }

    fn equals(&self, _: &dyn Opaque) -> bool {
        false
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

fn stage<'v>(name: &'static str, authorizer: Arc<dyn Authorizer>, check: Check) -> Value<'v> {
    Value::opaque(Stage {
        name,
        authorizer,
        check,
    })
}

/// The next stage, if the first argument is at the one before.
fn next<'v>(
    args: &[Value<'v>],
    (from, to): (&str, &'static str),
    set: impl FnOnce(&mut Check, String),
) -> Evaluated<'v> {
    let stage_of: &Stage = args[0].downcast()?;
    if stage_of.name != format!("kubernetes.authorization.{from}") {
        return Err(EvalError::no_such_overload());
    }
    let mut check = stage_of.check.clone();
    set(&mut check, args[1].as_str()?.to_owned());
    Ok(stage(to, stage_of.authorizer.clone(), check))
}

fn not_empty(value: &Value<'_>, what: &str) -> Result<(), EvalError> {
    if value.as_str()?.trim().is_empty() {
        return Err(EvalError::new(format!("{what} must not be empty")));
    }
    Ok(())
}

fn path<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    not_empty(&args[1], "path")?;
    let stages = ("Authorizer", "kubernetes.authorization.PathCheck");
    next(args, stages, |check, path| check.path = path)
}

fn group<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let stages = ("Authorizer", "kubernetes.authorization.GroupCheck");
    next(args, stages, |check, group| check.group = group)
}

fn service_account<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let name = args[2].as_str()?;
    if name::dns_subdomain_error(name).is_some() {
        return Err(EvalError::new("Invalid service account name"));
    }
    if name::dns_label_error(args[1].as_str()?).is_some() {
        return Err(EvalError::new("Invalid service account namespace"));
    }
    let stages = ("Authorizer", "kubernetes.authorization.Authorizer");
    next(args, stages, |check, namespace| {
        check.service_account = Some((namespace, name.to_owned()));
    })
}

fn resource<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    not_empty(&args[1], "resource")?;
    let stages = ("GroupCheck", "kubernetes.authorization.ResourceCheck");
    next(args, stages, |check, resource| check.resource = resource)
}

const RESOURCE: (&str, &str) = ("ResourceCheck", "kubernetes.authorization.ResourceCheck");

fn subresource<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    next(args, RESOURCE, |check, text| check.subresource = text)
}

fn namespace<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    next(args, RESOURCE, |check, text| check.namespace = text)
}

fn named<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    next(args, RESOURCE, |check, text| check.name = text)
}

fn field_selector<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    next(args, RESOURCE, |check, text| check.field_selector = text)
}

fn label_selector<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    next(args, RESOURCE, |check, text| check.label_selector = text)
}

fn check<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let stage: &Stage = args[0].downcast()?;
    if !matches!(
        stage.name,
        "kubernetes.authorization.PathCheck" | "kubernetes.authorization.ResourceCheck"
    ) {
        return Err(EvalError::no_such_overload());
    }
    let mut check = stage.check.clone();
    check.verb = args[1].as_str()?.to_owned();
    Ok(Value::opaque(stage.authorizer.authorize(&check)))
}

fn allowed<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Bool(args[0].downcast::<Decision>()?.allowed))
}

fn reason<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::string(&*args[0].downcast::<Decision>()?.reason))
}

fn errored<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    Ok(Value::Bool(args[0].downcast::<Decision>()?.error.is_some()))
}

fn error<'v>(_: &mut Meter<'_>, args: &[Value<'v>]) -> Evaluated<'v> {
    let decision: &Decision = args[0].downcast()?;
    Ok(Value::string(decision.error.as_deref().unwrap_or("")))
}
