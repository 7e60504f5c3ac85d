//! Which objects of a resource a LIST or WATCH is about.

use std::{fmt, sync::Arc};

use super::entry::Entry;
use crate::api_resource::Text;

/// Where the objects are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyScope {
    /// The whole resource.
    Resource,
    /// One namespace, by name.
    Namespace(String),
    /// One object, by its full key.
    Key(String),
}

/// Decides on one object; label and field selectors become one of these.
pub type Filter = Arc<dyn Fn(&Entry) -> bool + Send + Sync>;

/// Which objects.
#[derive(Clone)]
pub struct Selection {
    /// Where they are.
    pub scope: KeyScope,
    /// What they must satisfy beyond that.
    pub filter: Option<Filter>,
    /// Equalities of indexed fields that the filter implies. Watchers that name one, such as
    /// `spec.nodeName` of a node, sleep through events of others, and lists by it look at no other.
    pub fields: Vec<(Text, String)>,
}

impl Selection {
    /// Everything in `scope`.
    #[must_use]
    pub fn of(scope: KeyScope) -> Self {
        Self {
            scope,
            filter: None,
            fields: Vec::new(),
        }
    }

    /// Only what `filter` accepts.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Promises that the filter accepts only objects with this value of an indexed field.
    #[must_use]
    pub fn requires_field(mut self, name: impl Into<Text>, value: impl Into<String>) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// Whether an object is selected.
    #[must_use]
    pub fn selects(&self, entry: &Entry) -> bool {
        let in_scope = match &self.scope {
            KeyScope::Resource => true,
            KeyScope::Namespace(namespace) => entry.namespace() == Some(namespace),
            KeyScope::Key(key) => entry.key() == key,
        };
        in_scope && self.filter.as_ref().is_none_or(|filter| filter(entry))
    }
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selection")
            .field("scope", &self.scope)
            .field("filtered", &self.filter.is_some())
            .field("fields", &self.fields)
            .finish()
    }
}
