//! Objects that jobs leave in the store, and what follows from them: restart points, floors, the watermark,
//! and the objects that are no longer needed. Pure: callers list the store and pass the keys in.
//!
//! - `marks`, `progress`: objects of an attempt; `attempt_objects`: their content, from a LIST;
//! - `restart`: restart points and the floor of a job; `due`: how far the watermark may advance;
//! - `reclaim`: the objects that may be deleted, by one fold.

mod attempt_objects;
mod due;
mod marks;
mod progress;
pub mod reclaim;
mod restart;

pub use attempt_objects::{AttemptObjects, JobObjects};
pub use due::{Due, WatermarkRefused, requested_watermark, watermark};
pub use marks::Mark;
pub use progress::Progress;
pub use restart::{floor, restart_points};
