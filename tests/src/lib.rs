//! Helpers shared by the cross-crate tests.
#![forbid(unsafe_code)]
