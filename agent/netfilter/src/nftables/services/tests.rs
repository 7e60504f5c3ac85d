//! What the kernel is told of Services, and what it makes of it.

mod tracer;

pub(crate) use self::tracer::NftablesTracer;
