//! The settings by which files are read.

use super::row_json::ConversationColumns;
use super::{Format, Portion};

/// The documents that units hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ReadContent {
    /// Texts, or samples when there are columns of arrays.
    #[default]
    Documents,
    /// Conversations, in Parquet files with these columns.
    Conversations(ConversationColumns),
    /// Rows of Parquet files with all of these columns, for a function.
    Rows(ConversationColumns),
    /// Token ids; a list of them is divided at this end token.
    Ids { end_token: u32 },
}

/// The settings by which a file is read.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// The configured format; `Auto` selects by each file's name.
    pub format: Format,
    pub content: ReadContent,
    /// The text column of Parquet files.
    pub column: String,
    /// The columns of Parquet files whose rows are samples; empty when rows are texts.
    pub arrays: Vec<String>,
    /// The columns of Parquet files that come with each row besides; their cells are the last ones.
    pub beside: Vec<String>,
    /// The fields of a tar's samples that are read, each with its alternatives, as `jpg;png`.
    pub members: Vec<String>,
    /// Size of the longest document in bytes.
    pub max_document_bytes: u64,
    /// Most memory of the window of a decoder in bytes.
    pub decompress_memory: u64,
    /// This producer's share of the units.
    pub share: Portion,
    /// Most of these units are left out, so that those that are kept must not hold the memory of others.
    pub sparse: bool,
    /// Files must be those that their names in an inbox say.
    pub inbox: bool,
}

impl ReadOptions {
    /// Returns whether lines share the memory of what was read with them.
    pub(super) fn shares_memory(&self) -> bool {
        self.share == Portion::ALL && !self.sparse
    }
}
