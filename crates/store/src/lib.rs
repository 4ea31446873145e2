//! The object store contract and its file, memory and S3 implementations.
//!
//! This crate never learns what the keys mean: names live in `batchweave-core`.
//!
//! - [`open`] turns a URL into a store, [`Location`] names its place, [`probe`] checks that its creates are exclusive.
//! - [`counting::Counted`] counts requests and bytes around any store.
//! - [`layer::Intercept`] wraps a store and changes some of its calls.
//! - [`list_all`] reads all pages of a listing, [`Retry`] repeats a call, [`Backoff`] spaces its tries.
//! - [`Hints`] tell of new objects, where a store notices them without requests.
//! - [`testing`] holds the conformance suite and the seeded fault wrapper.
#![forbid(unsafe_code)]

#[cfg(feature = "s3")]
mod answer;
mod availability;
#[cfg(feature = "azure")]
mod azure;
mod backoff;
mod body;
#[cfg(feature = "cloud")]
mod cloud;
mod contract;
pub mod counting;
#[cfg(feature = "net")]
mod download;
mod error;
pub mod file;
#[cfg(feature = "gcs")]
mod gcs;
mod hints;
mod inspect;
mod key;
pub mod layer;
#[cfg(feature = "net")]
mod limits;
mod list_all;
mod location;
pub mod memory;
#[cfg(feature = "net")]
mod message;
mod open;
mod options;
mod path_style;
mod probe;
#[cfg(feature = "net")]
mod proxy;
mod retry;
mod root_url;
#[cfg(feature = "s3")]
pub mod s3;
#[cfg(feature = "net")]
mod secrets;
#[cfg(feature = "net")]
mod speed;
pub mod testing;
#[cfg(feature = "net")]
mod tls;

pub use backoff::Backoff;
pub use body::{Body, read_range};
pub use contract::{Chunks, Create, ListPage, ObjectMeta, Store};
pub use error::{Effect, ErrorKind, Op, StoreError, found};
pub use file::{FileRange, Watch};
pub use hints::Hints;
pub use inspect::{Bucket, Guards, Halves, Inspect, LifecycleRule, PendingUpload, Versioning};
pub use list_all::{Pages, list_all};
pub use location::{Location, LocationError, Permission, local_path};
pub use open::open;
pub use options::{
    AccessKeys, AzureOptions, Encryption, GcsOptions, LowWater, OpenOptions, Patience,
};
pub use path_style::PathStyle;
pub use probe::{
    Access, ProbeReport, Stopped, Unseen, probe, probe_completions, probe_long, probe_ranges,
    probe_read, probe_visibility,
};
pub use retry::Retry;
pub use root_url::{deserialize_root, root_url};
