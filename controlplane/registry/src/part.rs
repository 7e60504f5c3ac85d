//! Which part of an object a write is about.

/// Which part of the object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The main resource.
    Main,
    /// `/status`.
    Status,
    /// `/resize` and `/ephemeralcontainers` of pods: parts of spec that nothing else may change.
    /// The subresource says what may change; here the whole is checked as a new object is.
    Resize,
    /// See [`Part::Resize`].
    EphemeralContainers,
    /// A subresource whose change is made by the server itself: only metadata is checked.
    Internal,
}
