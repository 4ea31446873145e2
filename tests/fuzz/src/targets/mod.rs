//! The table of targets, and the bound of each on its memory.
//!
//! The bounds: parsed JSON uses most memory where each two bytes of text are a value of a list (32 bytes
//! each, twice while the list grows, and again for each copy that a target compares). A message or an
//! object of fixed fields uses a few times its size.

mod fold;
mod http;
mod jobs;
mod keys;
mod lists;
mod objects;
mod provenance;
mod tgb;
mod wire;

use crate::{Memory, Target};

/// The bound of parsed JSON.
const JSON: Memory = Memory {
    constant: 64 << 10,
    per_byte: 256,
};
/// The bound of intents: their keys carry a copy that may inflate to a whole intent, and making one takes
/// 300 KiB.
const DEFLATED: Memory = Memory {
    constant: 512 << 10,
    per_byte: 256,
};
/// The bound of folds: states are kept, stored and read again.
const STATE: Memory = Memory {
    constant: 512 << 10,
    per_byte: 256,
};
const FIELDS: Memory = Memory {
    constant: 16 << 10,
    per_byte: 64,
};

/// The bound of values: a step of 24 bytes takes 200 in a map, twice.
const VALUES: Memory = Memory {
    constant: 16 << 10,
    per_byte: 128,
};

const fn target(name: &'static str, run: fn(&[u8]), memory: Memory) -> Target {
    Target { name, run, memory }
}

/// All targets, in the order in which `make fuzz` runs them.
pub const TARGETS: &[Target] = &[
    target("stream", objects::stream, JSON),
    target("record", objects::record, STATE),
    target("fold", fold::fold, STATE),
    target("snapshot", objects::snapshot, STATE),
    target("fork", objects::fork, STATE),
    // The target makes 1,024 steps.
    target(
        "segment",
        objects::segment,
        Memory {
            constant: 4 << 20,
            per_byte: 256,
        },
    ),
    target("repair", objects::repair, JSON),
    target("intent", objects::intent, DEFLATED),
    target("intent_key", keys::intent, DEFLATED),
    target("inputs", lists::inputs, JSON),
    target("cursor", lists::cursor, JSON),
    target("mark", jobs::mark, JSON),
    target("progress", jobs::progress, JSON),
    target("ledger", jobs::ledger, JSON),
    target("values", jobs::values, VALUES),
    target("keys", keys::keys, JSON),
    target("data_object", tgb::object, FIELDS),
    target("frame", tgb::frame, FIELDS),
    target("index", tgb::index, FIELDS),
    target("ranges", tgb::ranges, JSON),
    target("payload", tgb::payload, JSON),
    target("bins", tgb::bins, JSON),
    target("provenance", provenance::provenance, FIELDS),
    target("from_rank", wire::from_rank, JSON),
    target("from_daemon", wire::from_daemon, JSON),
    target("saved_state", wire::saved_state, JSON),
    target("http_head", http::head, FIELDS),
    target("listed_name", http::name, FIELDS),
];
