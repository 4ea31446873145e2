//! The order of documents: from sources, a mixture and a small state to the document that comes next. docs/order.md
//! describes it exactly.
//!
//! - `blocks` divides a source's input list into blocks, the units that are read as a whole;
//! - `source` is the order of one source for one producer: blocks by a keyed `permutation`, groups of blocks, windows
//!   of shuffled documents;
//! - `rows` is the order of the rows of a window of batches;
//! - `walk` gives the documents of a source from a position on; reading is the caller's;
//! - `mixture` selects the source of the next document, `sampler` keeps what each one has given;
//! - `changes` brings changes of the mixture from the log to the sampler, `spec` is their form in the log;
//! - `cursor` is the state: four small numbers and the given amount per source;
//! - `split` holds documents out by their place; `unnamed` finds the source of files without a name;
//! - `keyed` makes keys and draws; `synthetic` is a world of documents without files, for tests.
//!
//! Invariants:
//! - over all producers each document of each pass is given once, whatever the sizes, restarts and windows;
//! - the sequence after a state depends on the configuration, the input lists and the state alone;
//! - no draw depends on an earlier one, so that any position is reached without the positions before it;
//! - amounts are compared as whole numbers: no rounding decides a turn.

mod blocks;
mod changes;
mod cursor;
mod keyed;
mod mixture;
mod permutation;
mod rows;
mod sampler;
mod source;
mod spec;
mod split;
#[cfg(test)]
mod synthetic;
mod unnamed;
mod walk;

pub use blocks::{Block, Blocks, FileShape, Span};
pub use changes::MixtureChanges;
pub use cursor::{Position, SamplerState, SourceState};
pub(crate) use keyed::{Key, Purpose};
pub use mixture::{ShareUnit, Weight, WeightError, weights};
pub(crate) use permutation::Permutation;
pub use rows::row_order;
pub use sampler::{Limit, PASS_OF_EMPTY, Sampler, SamplerOptions, WhenSourceEnds};
pub use source::{OpenBlock, Portion, Quota, Shuffle, SourceOrder};
pub use spec::{MixtureSpec, NumberedMixture, SpecError, named_weights};
pub use split::{FileSplit, Split};
pub use unnamed::unnamed_source;
pub use walk::{Documents, Walk};

#[cfg(test)]
mod tests;
