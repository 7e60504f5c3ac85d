//! One owner of fields.

use super::Writer;

/// Who owns fields.
#[derive(Debug, Clone)]
pub(super) struct Manager {
    pub(super) name: String,
    pub(super) applies: bool,
    pub(super) subresource: String,
    /// Of the entry: part of an updater's identity, but not of an applier's.
    pub(super) api_version: String,
    /// When the entry last changed: no part of the identity.
    pub(super) time: String,
}

impl PartialEq for Manager {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.applies == other.applies
            && self.subresource == other.subresource
            && (self.applies || self.api_version == other.api_version)
    }
}

impl Manager {
    pub(super) fn applier(writer: Writer<'_>) -> Self {
        Self {
            applies: true,
            ..Self::updater(writer)
        }
    }

    pub(super) fn updater(writer: Writer<'_>) -> Self {
        Self {
            name: writer.manager.to_owned(),
            applies: false,
            subresource: writer.subresource.to_owned(),
            api_version: writer.api_version.to_owned(),
            time: writer.time.to_owned(),
        }
    }
}
