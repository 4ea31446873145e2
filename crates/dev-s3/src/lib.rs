//! An S3 server for tests, demos and laptops, with latency and faults to order.
#![forbid(unsafe_code)]
