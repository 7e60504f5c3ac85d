//! Which kinds are served, of those that come and go as well: as far as plugins must know.

use std::sync::Arc;

use coracle_api::resource::Gvk;
use coracle_registry::resource::Resource;

/// Tells plugins what the server serves at the moment.
pub trait Kinds: Send + Sync {
    /// What is stored, or shown of what is stored, at `/apis/GROUP/VERSION/PLURAL`.
    fn at(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>>;

    /// The same by its kind.
    fn of_kind(&self, gvk: &Gvk) -> Option<Arc<Resource>>;

    /// All that show the same objects, in whichever group and version, in discovery's order.
    fn alike(&self, resource: &Resource) -> Vec<Arc<Resource>>;
}
