//! What a group of watchers narrows its interest to.

use super::super::{
    event::WatchEvent,
    fields::FieldIndex,
    selection::{KeyScope, Selection},
};

/// What a group narrows its interest to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::watch_cache) enum Narrow {
    Namespace(Box<str>),
    Key(Box<str>),
    /// By the place of the field among those that are indexed.
    Field(usize, Box<str>),
}

impl Narrow {
    /// The narrowest group that sees all events of a selection. A namespace is narrower than a
    /// field that says little, such as a phase, and wider than one that lists go by.
    pub(in crate::watch_cache) fn of(
        selection: &Selection,
        index: Option<&FieldIndex>,
    ) -> Option<Self> {
        let fields = || {
            let fields = selection.fields.iter();
            fields.filter_map(|(name, value)| Some((index?.position(name)?, value)))
        };
        let by = |(at, value): (usize, &String)| Self::Field(at, value.as_str().into());
        let mut listed = fields().filter(|(at, _)| index.is_some_and(|index| index.is_listed(*at)));
        match &selection.scope {
            KeyScope::Key(key) => Some(Self::Key(key.as_str().into())),
            KeyScope::Namespace(namespace) => Some(
                listed
                    .next()
                    .map_or_else(|| Self::Namespace(namespace.as_str().into()), by),
            ),
            KeyScope::Resource => listed.next().or_else(|| fields().next()).map(by),
        }
    }

    /// Whether an event concerns the group: also one that leaves it.
    pub(in crate::watch_cache) fn concerns(&self, event: &WatchEvent) -> bool {
        match self {
            Self::Key(key) => event.entry.key() == &**key,
            Self::Namespace(namespace) => event.entry.namespace() == Some(&**namespace),
            Self::Field(at, value) => {
                let states = std::iter::once(&event.entry).chain(&event.prev);
                let mut values = states.filter_map(|entry| entry.fields().values().get(*at));
                values.any(|found| **found == **value)
            }
        }
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::Namespace(text) | Self::Key(text) | Self::Field(_, text) => text,
        }
    }
}
