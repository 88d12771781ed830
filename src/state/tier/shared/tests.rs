//! The shared store against a real Redis.
