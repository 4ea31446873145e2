//! Commands of operators and tools.
//!
//! - `command`: commits one administrative entry;
//! - [`repair`]: makes a damaged record void;
//! - [`reclaim`]: moves the watermark and deletes data that is no longer needed.

mod command;
pub mod reclaim;
pub mod repair;
