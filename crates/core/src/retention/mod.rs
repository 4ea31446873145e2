//! What jobs leave in the store, and what follows from it: restart points, floors, the watermark, and
//! which objects are no longer needed. Pure: callers list the store and pass the keys in.
//!
//! - `marks`, `progress`: objects of an attempt; `attempt_objects`: what a LIST of them says;
//! - `restart`: restart points and the floor of a job; `due`: how far the watermark may advance;
//! - `reclaim`: which objects may be deleted, by one fold.

mod attempt_objects;
mod due;
mod marks;
mod progress;
pub mod reclaim;
mod restart;

pub use attempt_objects::{AttemptObjects, JobObjects};
pub use due::{Asked, Due, asked, watermark};
pub use marks::Mark;
pub use progress::Progress;
pub use restart::{floor, restart_points};
