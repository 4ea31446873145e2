//! What jobs leave in the store, and what follows from it: restart points, floors, the watermark, and
//! which objects nobody can need any more. Pure: whoever lists the store hands the keys in.
//!
//! - `marks`, `progress`: objects of an attempt; `signs`: what a LIST of them says;
//! - `restart`: restart points and the floor of a job; `due`: what a watermark may say now.

mod due;
mod marks;
mod progress;
mod restart;
mod signs;

pub use due::{Asked, Due, asked, watermark};
pub use marks::Mark;
pub use progress::Progress;
pub use restart::{floor, restart_points};
pub use signs::{AttemptSigns, JobSigns};
