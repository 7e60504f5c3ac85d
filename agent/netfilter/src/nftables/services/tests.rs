//! What the kernel is told of Services, and what it makes of it.

mod book;
mod kernel;
mod tracer;

pub(crate) use self::tracer::NftablesTracer;
