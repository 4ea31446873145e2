//! Reasons why one document is bad, which may be skipped.

use std::fmt;

use batchweave_daemon::config::ByteSize;

/// The reason why a unit is a bad document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The line is not valid JSON.
    #[error("broken JSON at column {column}: {detail}; write one JSON object per line")]
    BrokenJson { column: usize, detail: String },
    /// The line is JSON, but not an object.
    #[error("the line is {found}, not a JSON object; write {{\"{field}\": \"...\"}}")]
    NotAnObject { field: String, found: &'static str },
    /// The object has no such field.
    #[error(
        "no field \"{field}\" in an object with {fields}; name the right one in source.field, or add it"
    )]
    MissingField {
        field: String,
        /// The fields that it has.
        fields: String,
    },
    /// The field is not a string.
    #[error(
        "field \"{field}\" is {found}, not a string; quote it, name the right one in source.field, or set source.content = \"ids\" for token ids"
    )]
    NotAString { field: String, found: &'static str },
    /// The file is a JSON array.
    #[error(
        "the file is a JSON array, not JSON lines; write one object per line, as `jq -c '.[]' FILE` does"
    )]
    JsonArray,
    /// The file is one JSON object on several lines.
    #[error(
        "the object goes on in the next line, and JSON lines have one object each; write them so, as `jq -c . FILE` does"
    )]
    IndentedJson,
    /// The text is in UTF-16 or UTF-32.
    #[error("the file is in {encoding}; convert it, as `iconv -f {encoding} -t UTF-8 FILE` does")]
    Encoding { encoding: &'static str },
    /// The file holds something other than text.
    #[error(
        "the file is {what}, not text; leave it out of source.paths, or name its format in source.format"
    )]
    NotTextFile { what: &'static str },
    /// A decoder needs more memory than it may have.
    #[error(
        "the {codec} data was compressed with a window that needs {needed} of memory, and source.decompress_memory is \
         \"{most}\"; raise it"
    )]
    DecoderMemory {
        codec: &'static str,
        needed: String,
        most: ByteSize,
    },
    /// The zstd data was compressed with a dictionary.
    #[error(
        "the zstd data needs the dictionary that it was compressed with; decompress it before, with `zstd -d -D`"
    )]
    ZstdDictionary,
    /// The text is not valid UTF-8.
    #[error("invalid UTF-8 at byte {at} of the document; convert the file to UTF-8")]
    InvalidUtf8 {
        /// Offset of the first invalid byte in the unit.
        at: usize,
    },
    /// The text has no characters.
    #[error("the document is empty; leave empty documents out")]
    Empty,
    /// The document is longer than `source.max_document_bytes`.
    #[error(
        "the document is longer than {limit} bytes; split it, or raise source.max_document_bytes"
    )]
    TooLong { limit: u64 },
    /// A document with arrays does not fit in a row, and its arrays belong to all of its tokens.
    #[error(
        "the document has {tokens} tokens, and one with arrays must fit in a row of {most}; shorten it, or raise stream.seq_len"
    )]
    LongerThanRow { tokens: u64, most: u64 },
    /// A document does not fit in a bin, and is not divided.
    #[error(
        "the {what} has {tokens} tokens, and a bin holds {most} ({why}); shorten it, or raise packing.balanced.tokens"
    )]
    LongerThanBin {
        /// A document or a pair.
        what: &'static str,
        tokens: u64,
        most: u64,
        why: &'static str,
    },
    /// Compressed data ends early or is damaged; the rest of the file cannot be read.
    #[error("the {codec} data ends early or is damaged here ({detail}); copy the file again")]
    Damaged { codec: &'static str, detail: String },
    /// The file lacks the column.
    #[error(
        "no column \"{column}\" in this file, which has {columns}; name the right one in source.column"
    )]
    NoColumn { column: String, columns: String },
    /// The column is not text.
    #[error(
        "column \"{column}\" is {found}, not a string; name a text column in source.column, or set source.content = \"ids\" for token ids"
    )]
    ColumnType { column: String, found: String },
    /// An array of a sample differs from the configured one.
    #[error("array \"{name}\" {detail}; correct the data, or packing.arrays")]
    Array { name: String, detail: String },
    /// The file that a field or column names cannot be used.
    #[error("array \"{name}\": the file {path:?} {detail}")]
    File {
        name: String,
        path: String,
        detail: String,
    },
    /// A column beside the content is not one number.
    #[error("packing.extra: \"{name}\" {detail}; it takes one number per document")]
    Column { name: String, detail: String },
    /// The marks of learned tokens do not fit the tokens.
    #[error("source.mask: \"{name}\" {detail}; it takes 0 or 1 for each token")]
    Mask { name: String, detail: String },
    /// There is not one mark for each id.
    #[error("source.mask has {marks} marks for {ids} ids; it takes 0 or 1 for each one")]
    MaskLength { marks: usize, ids: usize },
    /// Files of this format hold no columns beside the content.
    #[error(
        "packing.extra, packing.arrays and source.mask take fields of JSONL and columns of Parquet and Arrow files; name such files in source.paths, or remove these keys"
    )]
    NoColumns,
    /// No process can render the conversation; the document itself may be good.
    #[error("the process that renders conversations can't be used: {why}")]
    NoRenderer { why: String },
    /// The function of transform.function has no result for the document.
    #[error("transform.function {detail}; correct the document or the function")]
    Function { detail: String },
    /// Documents of this format do not go through a function.
    #[error(
        "transform.function takes documents of JSONL, text, Parquet, Arrow, CSV and tars; name such files in source.paths, or remove it"
    )]
    NotForFunction,
    /// The Parquet file lacks a column that the function gets.
    #[error(
        "no column \"{column}\" in this file, which has {columns}; name the right ones in transform.fields"
    )]
    NoRowColumn { column: String, columns: String },
    /// No process can apply the function; the document itself may be good.
    #[error("no process can apply transform.function: {why}")]
    NoWorker { why: String },
    /// The template rejects the conversation.
    #[error("the conversation {detail}; correct it, or chat.template")]
    Chat { detail: String },
    /// A producer that began by earlier rules meets a document that today's make other tokens of.
    #[error(
        "{detail}, and this producer began by the rules of an earlier version; give the rest of the input to a new \
         producer.name"
    )]
    Changed { detail: String },
    /// A key may say what is learned, and the configuration does not say so.
    #[error("the conversation {detail}")]
    LossKey { detail: String },
    /// The document's messages or roles have other names than the configuration's.
    #[error("the conversation {detail}")]
    Messages { detail: String },
    /// The Parquet file has no such column with messages.
    #[error("the conversation {detail}")]
    NoMessages { detail: String },
    /// A conversation is expected, and the file is neither JSONL nor Parquet nor tar.
    #[error(
        "packing.mode = \"chat\" and \"pairs\" take conversations from JSONL, Parquet, Arrow, CSV and tar files; name such files in source.paths"
    )]
    NotConversations,
    /// A text is expected, and the file holds an array.
    #[error(
        "a .npy file holds an array, not a text; set source.content = \"ids\" for token ids, or packing.mode = \"opaque\""
    )]
    NotText,
    /// A sample is expected, and the file holds text.
    #[error(
        "packing.mode = \"opaque\" takes samples from JSONL, Parquet, Arrow, .npy and tar files; name such files in source.paths"
    )]
    NotArrays,
    /// An id is not in the vocabulary.
    #[error(
        "id {id} at index {at} is not one of the {bound} of the vocabulary; describe in [tokenizer] the one that made the ids"
    )]
    Id {
        /// The number in digits.
        id: String,
        at: usize,
        bound: u32,
    },
    /// The field or column does not hold a list of whole numbers.
    #[error(
        "token ids are a list of whole numbers, not {found}; name the right one in source.field or source.column"
    )]
    NotIds { found: String },
    /// The Parquet column is not a list of whole numbers.
    #[error(
        "column \"{column}\" has no list of integers per row; name the one with the token ids in source.column"
    )]
    NotIdColumn { column: String },
    /// Ids are expected, and the file holds text.
    #[error(
        "source.content = \"ids\" takes JSONL, Parquet, Arrow and .npy files, and Megatron's with source.format = \"megatron\"; name such files in source.paths"
    )]
    NotIdFile,
    /// The .npy file does not hold ids.
    #[error("the .npy file {detail}")]
    Npy { detail: String },
    /// The pair of files does not hold Megatron's form.
    #[error("not readable as Megatron's .idx and .bin ({detail}); write both again")]
    Megatron { detail: String },
    /// The file is not a tar, or is cut short.
    #[error(
        "not readable as tar: it {detail}; copy or write the file again, or name its format in source.format"
    )]
    Tar { detail: String },
    /// The first row of a table of text does not name its columns.
    #[error("not readable as a table of text: the file {detail}")]
    Table { detail: String },
    /// The row of a table of text is broken.
    #[error("{detail}")]
    TableRow { detail: String },
    /// The document is the sample of a tar with this key.
    #[error("sample \"{key}\": {why}")]
    InSample { key: String, why: Box<Reason> },
    /// The document is one of several that the function made of a unit.
    #[error("document {number} of the {of} that transform.function made of it: {why}")]
    OfSeveral {
        number: usize,
        of: usize,
        why: Box<Reason>,
    },
    /// The sample of a tar lacks a field.
    #[error(
        "no file \"{field}\" in a sample with {fields}; name the right one in packing.arrays or source.field, or add it"
    )]
    NoMember {
        field: String,
        /// The fields that it has.
        fields: String,
    },
    /// Two files of a sample have one name.
    #[error("two files \"{field}\"; give each sample a key of its own")]
    TwoMembers { field: String },
    /// The tar stores a file without its holes.
    #[error("the file \"{field}\" is stored as sparse; write the tar without --sparse")]
    SparseMember { field: String },
    /// The value of the column is null.
    #[error("the value is null; leave rows without a value out")]
    Null,
    /// The tokenizer refuses the text.
    #[error("{detail}; leave the document out, or choose another tokenizer")]
    Tokenizer { detail: String },
    /// The code that reads, decodes, renders or tokenizes the document panicked.
    #[error("it makes this program fail ({panic}); leave the document out, and please report it")]
    Panicked { panic: String },
    /// The file is not readable as Parquet.
    #[error(
        "not readable as Parquet ({detail}); write the file again, or name its format in source.format"
    )]
    BrokenParquet { detail: String },
    /// The file is not readable as one of Arrow's IPC formats.
    #[error(
        "not readable as Arrow ({detail}); write the file again, or name its format in source.format"
    )]
    BrokenArrow { detail: String },
    /// The column has a type that JSON objects of rows can't hold.
    #[error(
        "column \"{column}\" is {found}, which is not read; write it as a list, a struct, a text or a number"
    )]
    NotInJson { column: String, found: String },
}

impl Reason {
    /// Returns the reason for a text that the tokenizer refuses.
    pub(crate) fn tokenizer(why: impl fmt::Display) -> Self {
        let detail = why.to_string();
        Self::Tokenizer { detail }
    }

    /// Returns the reason with the key of the sample. A process that can't start stays the reason.
    pub(crate) fn in_sample(self, key: &str) -> Self {
        if self.is_of_program() {
            return self;
        }
        Self::InSample {
            key: key.to_owned(),
            why: Box::new(self),
        }
    }

    /// Returns the reason with the number of the document, from 1, when it is one of several. A process that can't start
    /// stays the reason.
    pub(crate) fn of_several(self, number: usize, of: usize) -> Self {
        if of == 1 || self.is_of_program() {
            return self;
        }
        let why = Box::new(self);
        Self::OfSeveral { number, of, why }
    }

    /// Returns whether the document itself may be good, so that leaving it out would be wrong.
    pub(crate) fn is_of_program(&self) -> bool {
        matches!(
            self,
            Self::NoRenderer { .. }
                | Self::NoWorker { .. }
                | Self::Changed { .. }
                | Self::LossKey { .. }
        )
    }

    /// Returns whether the reason concerns the file and not one document: every document of it is bad.
    pub(crate) fn is_of_file(&self) -> bool {
        if let Self::InSample { why, .. } | Self::OfSeveral { why, .. } = self {
            return why.is_of_file();
        }
        matches!(
            self,
            Self::Damaged { .. }
                | Self::DecoderMemory { .. }
                | Self::ZstdDictionary
                | Self::NoColumn { .. }
                | Self::ColumnType { .. }
                | Self::BrokenParquet { .. }
                | Self::BrokenArrow { .. }
                | Self::NotInJson { .. }
                | Self::NoMessages { .. }
                | Self::NotConversations
                | Self::NotText
                | Self::NotArrays
                | Self::NoColumns
                | Self::NotForFunction
                | Self::NoRowColumn { .. }
                | Self::NotIdFile
                | Self::NotIdColumn { .. }
                | Self::Npy { .. }
                | Self::Megatron { .. }
                | Self::Tar { .. }
                | Self::Table { .. }
        )
    }

    /// Returns the reason for JSON that does not parse.
    pub(crate) fn broken_json(why: &serde_json::Error) -> Self {
        let message = why.to_string();
        // serde_json appends " at line 1 column 5", which would be taken for the file's line.
        let end = message.rfind(" at line ").unwrap_or(message.len());
        Self::BrokenJson {
            column: why.column(),
            detail: message[..end].to_owned(),
        }
    }
}
