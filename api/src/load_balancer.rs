//! Which Services of type LoadBalancer this cluster serves itself: with the addresses of its nodes.

/// The class of those that ask for this by name; whoever names none is served as well.
pub const CLASS: &str = "coracle.dev/node";

/// Whether a Service of this `spec.loadBalancerClass` is served here; other classes are others'
/// business.
#[must_use]
pub fn is_served(class: Option<&str>) -> bool {
    class.is_none_or(|class| class == CLASS)
}
