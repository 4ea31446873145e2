//! The node-local consumer daemon: planner, prefetch, sessions.
#![forbid(unsafe_code)]
