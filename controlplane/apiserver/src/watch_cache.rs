//! watch_cache.
