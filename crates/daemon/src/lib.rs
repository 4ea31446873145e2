//! What both daemons share: configuration, logs, metrics, admin endpoint, shutdown.
#![forbid(unsafe_code)]
