//! Names that most tests of this crate use.

pub(crate) use std::sync::Arc;
pub(crate) use std::time::Duration;

pub(crate) use batchweave_core::ids::Hash;
pub(crate) use batchweave_core::keys;
pub(crate) use batchweave_core::manifest::Entry;
pub(crate) use batchweave_core::manifest::entry::Sealed;
pub(crate) use batchweave_core::manifest::repair::Repair;
pub(crate) use batchweave_store::Store;
pub(crate) use batchweave_store::memory::MemoryStore;

pub(crate) use crate::testing::*;
pub(crate) use crate::*;
