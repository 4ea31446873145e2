//! The batchweave command: one verb per file.
#![forbid(unsafe_code)]
