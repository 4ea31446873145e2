//! Formats, rules and planning of BatchWeave: pure functions and state machines.
#![forbid(unsafe_code)]
