//! Bounds of the protocol, and the relations between them that must hold, checked when compiling.

/// A name (producer, job) in bytes: fits a DNS label and leaves room in a key.
pub const NAME_BYTES_MAX: usize = 63;
/// Size of a log record in bytes.
pub const RECORD_BYTES_MAX: usize = 1 << 20;
/// Size of an entry in a record, in bytes.
pub const ENTRY_BYTES_MAX: usize = 64 << 10;
/// Bytes read of a record: more than a valid one has, so that a repair can name the hash of one that is too
/// large.
pub const RECORD_READ_MAX: usize = 4 * RECORD_BYTES_MAX;
/// Size of a repair in bytes: a reason and two hashes.
pub const REPAIR_BYTES_MAX: usize = ENTRY_BYTES_MAX;
/// Size of an intent in bytes: an entry and the fields that name its stream.
pub const INTENT_BYTES_MAX: usize = ENTRY_BYTES_MAX + (1 << 10);
/// Intents read per record.
pub const INTENTS_PER_ROUND: usize = 4096;
/// Size of a cursor as canonical JSON, in bytes.
pub const CURSOR_BYTES_MAX: usize = 16 << 10;
/// Levels of lists and objects in a cursor or in a mixture's weights: JSON readers stop at 127, and a
/// record has three around them.
pub const VALUE_LEVELS_MAX: usize = 124;
/// Size of `stream.json` in bytes.
pub const STREAM_BYTES_MAX: usize = 1 << 20;
/// Size of the files of one link of an input list, as bytes of JSON; a larger file name has a link of its
/// own.
pub const INPUTS_FILES_BYTES: u64 = 4 << 20;
/// Size of one link of an input list, in bytes.
pub const INPUTS_LINK_BYTES_MAX: usize = 5 << 20;
/// Links of one size class that are merged into one of the next.
pub const INPUTS_FAN: u64 = 8;
/// Sources of one producer: their states fit in a cursor.
pub const SOURCES_MAX: usize = 64;
/// Bytes of the state of one source in a cursor: five numbers below 2^53 and their punctuation.
pub const SOURCE_STATE_BYTES_MAX: usize = 5 * 16 + 7;
/// Size of a block of an uncompressed file of lines in bytes. The order of documents depends on it.
pub const ORDER_BLOCK_BYTES: u64 = 512 << 10;
/// Assumed ratio of a compressed file's documents to its stored size. The order of documents depends on it.
pub const EXPANSION: u64 = 4;
/// Fewest blocks of a group, which are read side by side.
pub const OPEN_BLOCKS_MIN: u64 = 16;
/// Most blocks that are open in a group.
pub const OPEN_BLOCKS_MAX: u64 = 1024;
/// Steps per index segment.
pub const SEGMENT_STEPS: u64 = 1024;
/// Size of an index segment in bytes: each step's TGB was in an entry, and takes at most four times its
/// bytes here.
pub const SEGMENT_BYTES_MAX: usize = 256 << 20;
/// Data coordinates of the newest attempts from which on writers make bundles.
pub const BUNDLE_COORDINATES: u32 = 512;
/// Records in a bundle.
pub const BUNDLE_RECORDS: u64 = 32;
/// Bytes of records in a bundle; one record in any case.
pub const BUNDLE_BYTES: usize = 1 << 20;
/// Size of a bundle in bytes: each byte of its records may be escaped.
pub const BUNDLE_BYTES_MAX: usize = 4 << 20;
/// Bundles that writers keep.
pub const BUNDLES_KEPT: u64 = 64;
/// Records from bundles that a reader remembers, to compare some of them with the log later.
pub const ADOPTED_KEPT: usize = 256;
/// Size of a snapshot in bytes: the steps of a segment, producers, jobs, and TGBs that wait for their turn.
pub const SNAPSHOT_BYTES_MAX: usize = 1 << 30;
/// Size of the state with which a fork begins, in bytes: a cursor of each producer, and the digests of the batches that
/// it makes once more.
pub const FORK_BYTES_MAX: usize = 1 << 30;
/// Batches of the parent that a producer of a fork makes once more: those of an entry, and of some forks inside their
/// first entries.
pub const FORK_REPEATED_MAX: usize = 16 << 10;
/// Size of a progress object in bytes: eleven short fields.
pub const PROGRESS_BYTES_MAX: usize = 4 << 10;
/// Size of a checkpoint mark in bytes: a state dict travels in one message of a rank, so a mark is not much
/// larger.
pub const MARK_BYTES_MAX: usize = 256 << 10;
/// Size of a ledger object in bytes: a step of the most slices fits, as does a full set of small entries.
pub const LEDGER_BYTES_MAX: usize = 64 << 20;
/// Size of a provenance object in bytes: a few bytes per document of at most 64 TGBs.
pub const PROVENANCE_OBJECT_BYTES_MAX: usize = 1 << 30;
/// Size of the stored file of a tokenizer in bytes: the largest ones in use have half of it.
pub const TOKENIZER_BYTES_MAX: usize = 64 << 20;
/// Size of an object of any other class in bytes: those of `doctor` and of the probes.
pub const OTHER_BYTES_MAX: usize = 1 << 20;
/// Versions after the last snapshot at which the next one is due.
pub const SNAPSHOT_VERSIONS_MAX: u64 = 256;
/// Bytes of records after the last snapshot at which the next is due, unless the snapshot itself is
/// large (see `SNAPSHOT_GROWTH`).
pub const SNAPSHOT_RECORD_BYTES: u64 = 1 << 20;
/// A snapshot is due when the records since the last reach this many times its size.
pub const SNAPSHOT_GROWTH: u64 = 4;
/// Snapshots that reclamation keeps.
pub const SNAPSHOTS_KEPT: usize = 3;
/// Records per window when a fold is far behind.
pub const CATCH_UP_WINDOW: u64 = 256;
/// Bytes of records in memory when a fold is far behind; one record in any case.
pub const CATCH_UP_BYTES: u64 = 16 << 20;
/// Slices that a TGB may have.
pub const SLICES_MAX: u32 = 1 << 20;
/// Producers a stream.json may name.
pub const NAMED_PRODUCERS_MAX: usize = 4096;
/// TGBs in one batch entry.
pub const ENTRY_TGBS_MAX: usize = 1024;
/// Stages of a stream: the state keeps all of them.
pub const STAGES_MAX: u64 = 256;
/// Parts of one TGB.
pub const TGB_PARTS_MAX: usize = 4096;
/// Rows of one TGB; keeps every product of rows and tokens far from overflow.
pub const TGB_ROWS_MAX: u64 = 1 << 40;
/// Tokens of one TGB.
pub const TGB_TOKENS_MAX: u64 = 1 << 48;
/// Bytes of one object.
pub const OBJECT_BYTES_MAX: u64 = 5 << 40;
/// Numbers in records stay below this, so that sums don't overflow and JSON readers keep them exact.
pub const NUMBER_MAX: u64 = 1 << 53;
/// From this version on, openings and batches are void: the remaining versions are for finishing and
/// sealing.
pub const VERSION_LAST: u64 = NUMBER_MAX - (1 << 20);
/// Ranks of a mesh: the product of its axes.
pub const MESH_RANKS_MAX: u64 = 1 << 20;
/// Size of a reason text in administrative entries, in bytes.
pub const REASON_BYTES_MAX: usize = 4096;
/// Request ids kept for the "a repeat is a no-op" rule.
pub const REQUESTS_KEPT: usize = 1024;

/// Bytes of an object of values; a daemon begins another one well below.
pub const VALUES_BYTES_MAX: usize = 64 << 20;

const _: () = {
    assert!(
        CURSOR_BYTES_MAX * 2 < ENTRY_BYTES_MAX,
        "an entry holds a cursor and TGBs beside it"
    );
    assert!(
        ENTRY_BYTES_MAX * 8 <= RECORD_BYTES_MAX,
        "a record combines several full entries"
    );
    assert!(
        STREAM_BYTES_MAX >= NAMED_PRODUCERS_MAX * (NAME_BYTES_MAX + 4),
        "all names fit"
    );
    assert!(
        CATCH_UP_WINDOW >= SNAPSHOT_VERSIONS_MAX,
        "one window reaches from snapshot to head"
    );
    assert!(
        TGB_ROWS_MAX < NUMBER_MAX && TGB_TOKENS_MAX < NUMBER_MAX && OBJECT_BYTES_MAX < NUMBER_MAX
    );
    assert!(SLICES_MAX as u64 <= TGB_ROWS_MAX);
    assert!(
        SOURCES_MAX * SOURCE_STATE_BYTES_MAX < CURSOR_BYTES_MAX / 2,
        "a cursor holds the states of all sources, the placed pieces and the settings"
    );
    assert!(OPEN_BLOCKS_MIN <= OPEN_BLOCKS_MAX);
    assert!(
        SEGMENT_BYTES_MAX as u64 >= 4 * SEGMENT_STEPS * ENTRY_BYTES_MAX as u64,
        "a segment of the largest TGBs can be read"
    );
    assert!(
        SNAPSHOT_BYTES_MAX >= 2 * SEGMENT_BYTES_MAX,
        "a snapshot holds the steps of an open segment and more"
    );
    assert!(
        BUNDLE_BYTES >= RECORD_BYTES_MAX && BUNDLE_BYTES_MAX > 2 * BUNDLE_BYTES,
        "the largest record fits, escaped"
    );
    assert!(RECORD_READ_MAX > RECORD_BYTES_MAX && REPAIR_BYTES_MAX > 8 * REASON_BYTES_MAX);
};
