//! What nodes say of their software in `status.declaredFeatures`, as far as somebody asks for it.
//!
//! Source: `k8s.io/component-helpers/nodedeclaredfeatures/features` at v1.37.

/// The CPU of a pod of the class Guaranteed can change while it runs.
pub const GUARANTEED_CPU_RESIZE: &str = "GuaranteedQoSPodCPUResize";

/// What a pod asks for as a whole can change while it runs.
pub const POD_LEVEL_RESIZE: &str = "InPlacePodLevelResourcesVerticalScaling";
