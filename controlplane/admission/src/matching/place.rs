//! Name and namespace of a request, as they are told and asked about.

use std::borrow::Cow;

use crate::attributes::Attributes;

/// The namespace of a request; a Namespace, and what is below it, is in itself.
#[must_use]
pub fn namespace_of<'a>(attributes: &'a Attributes<'_>) -> Cow<'a, str> {
    if attributes.namespace.is_empty() && attributes.resource.is_core("namespaces") {
        return name_of(attributes);
    }
    Cow::Borrowed(attributes.namespace)
}

/// The object's name: of the URL, or of what is made.
#[must_use]
pub fn name_of<'a>(attributes: &'a Attributes<'_>) -> Cow<'a, str> {
    match attributes.name {
        "" => Cow::Borrowed(coracle_api::meta::name(attributes.object())),
        name => Cow::Borrowed(name),
    }
}
