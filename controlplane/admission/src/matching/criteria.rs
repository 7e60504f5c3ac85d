//! Rules, selectors and the match policy, as webhooks and `MatchResources` have them.

use std::sync::Arc;

use coracle_api::{resource::Gvk, selector::LabelSelector, status::Status};
use coracle_registry::{api_resource::ApiResource, resource::Resource};
use serde_json::Value;

use super::{
    namespaces::Namespaces,
    rules::{About, Rule},
};
use crate::{
    attributes::{Attributes, Operation},
    kinds::Kinds,
};

/// Which requests something is about.
#[derive(Debug)]
pub struct Criteria {
    rules: Vec<Rule>,
    /// What is left out whatever the rules say.
    excluded: Vec<Rule>,
    /// Whether a rule about a resource is one about all that show the same objects.
    is_equivalent: bool,
    namespaces: Selector,
    objects: Selector,
}

/// A selector, or why it cannot be read.
type Selector = Result<LabelSelector, String>;

/// As what a request matches.
#[derive(Clone)]
pub struct Invocation {
    /// Another resource that shows the same objects; `None` if it is the request's own.
    pub equivalent: Option<Arc<Resource>>,
}

impl Criteria {
    /// Reads a webhook, whose rules are called `rules`, or `MatchResources`, where they are
    /// `resourceRules`.
    #[must_use]
    pub fn read(matching: &Value, rules: &str) -> Self {
        let selector = |field: &str| {
            LabelSelector::from_object(&matching[field]).map_err(|error| error.to_string())
        };
        Self {
            rules: Rule::read_all(&matching[rules]),
            excluded: Rule::read_all(&matching["excludeResourceRules"]),
            is_equivalent: matching["matchPolicy"] == "Equivalent",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    /// Whether the request is one of these, and as which resource.
    ///
    /// # Errors
    /// The namespace that decides cannot be found, or a selector cannot be read.
    pub async fn find(
        &self,
        attributes: &Attributes<'_>,
        kinds: &dyn Kinds,
        namespaces: &Namespaces,
    ) -> Result<Option<Invocation>, Status> {
        if self.matched(&self.excluded, attributes, kinds).is_some() {
            return Ok(None);
        }
        // The cheapest first: what no rule is about costs no look at a namespace.
        let Some(invocation) = self.matched(&self.rules, attributes, kinds) else {
            return Ok(None);
        };
        let objects = self.objects.as_ref().map_err(Status::internal)?;
        if !selects_object(objects, attributes) {
            return Ok(None);
        }
        let selector = self.namespaces.as_ref().map_err(Status::internal)?;
        let is_selected = namespaces.selects(selector, attributes).await?;
        Ok(is_selected.then_some(invocation))
    }

    fn matched(
        &self,
        rules: &[Rule],
        attributes: &Attributes<'_>,
        kinds: &dyn Kinds,
    ) -> Option<Invocation> {
        if rules.is_empty() {
            return None;
        }
        let own = about(attributes, attributes.resource);
        if rules.iter().any(|rule| rule.matches(&own)) {
            return Some(Invocation { equivalent: None });
        }
        if !self.is_equivalent {
            return None;
        }
        let others = attributes.others_alike(kinds);
        // The first rule decides, not the first resource.
        rules.iter().find_map(|rule| {
            let found = others
                .iter()
                .find(|other| rule.matches(&about(attributes, &other.info)))?;
            Some(Invocation {
                equivalent: Some(Arc::clone(found)),
            })
        })
    }
}

impl Invocation {
    /// The resource that it is called for.
    pub fn resource<'a>(&'a self, attributes: &Attributes<'a>) -> &'a ApiResource {
        let equivalent = self.equivalent.as_ref();
        equivalent.map_or(attributes.resource, |resource| &*resource.info)
    }

    /// The kind of what it is shown.
    #[must_use]
    pub fn kind(&self, attributes: &Attributes<'_>) -> Gvk {
        let resource = self.equivalent.as_ref().map(|resource| &*resource.info);
        attributes.kind_as(resource.unwrap_or(attributes.resource))
    }
}

fn about<'a>(attributes: &'a Attributes<'_>, resource: &'a ApiResource) -> About<'a> {
    // Of what is made, the object says it.
    let name = match attributes.name {
        "" => coracle_api::meta::name(attributes.object()),
        name => name,
    };
    About {
        operation: attributes.operation.as_str(),
        group: &resource.group,
        version: &resource.version,
        resource: &resource.plural,
        subresource: attributes.subresource,
        is_namespaced: !attributes.namespace.is_empty(),
        name,
    }
}

/// What goes is looked at as well as what comes.
fn selects_object(selector: &LabelSelector, attributes: &Attributes<'_>) -> bool {
    if selector.is_everything() {
        return true;
    }
    // The options of a stream have no labels, and no selector is about them.
    if attributes.operation == Operation::Connect {
        return false;
    }
    let objects = [Some(attributes.object()), attributes.old()].into_iter();
    objects
        .flatten()
        .filter(|object| object.is_object())
        .any(|object| selector.matches_object(object))
}
