//! Where the entries of nodes' ports are, and how they are cached: they are no kind that is served.

use crate::watch_cache::ResourceConfig;

/// Where upstream has all of them in one object.
pub(crate) const PREFIX: &str = "/registry/ranges/servicenodeports/";

/// How they are cached.
pub(crate) fn cache() -> ResourceConfig {
    ResourceConfig {
        prefix: PREFIX.to_owned(),
        namespaced: false,
        index: None,
        is_transient: false,
        convert: None,
    }
}
