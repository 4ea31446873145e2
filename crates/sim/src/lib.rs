//! Deterministic simulation of the commit protocol: faults by seed, load in virtual time.
#![forbid(unsafe_code)]
