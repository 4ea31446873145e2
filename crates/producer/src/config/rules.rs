//! Rules between keys, where the words are always the same. The rest is in the `check_*` files.

use super::setting::{Broken, Rule, When};
use super::{DocumentKind, LastBatch, PackingMode, ProducerConfig, SourceContent, TokenizerKind};

/// The packing modes of documents without a template.
const TOKENS: [PackingMode; 3] = [
    PackingMode::Concat,
    PackingMode::BestFit,
    PackingMode::Balanced,
];

pub(super) static RULES: [Rule; 36] = [
    must(
        "source.paths",
        |c| c.source.paths.is_empty() && c.sources.is_empty(),
        "must be given: files, folders, patterns or prefixes (s3://, gs://, az://)",
    ),
    must(
        "source.epochs",
        |c| c.source.grows() && c.source.epochs != 1,
        "must be 1 with source.follow: input that grows has no end to start again from",
    ),
    must(
        "source.content",
        |c| is_ids(c) && !TOKENS.contains(&c.packing.mode),
        "\"ids\" is for packing.mode \"concat\", \"best_fit\" and \"balanced\" only",
    ),
    must(
        "source.content",
        |c| {
            use SourceContent::{Conversations, Pairs};
            matches!(c.source.content, Conversations | Pairs) && !c.is_balanced()
        },
        "\"conversations\" and \"pairs\" are for packing.mode = \"balanced\" only; others are named by packing.mode = \"chat\" or \"pairs\"",
    ),
    must(
        "source.format",
        |c| c.source.format.is_pairs() && !is_ids(c),
        "\"megatron\" holds token ids; set source.content = \"ids\"",
    ),
    must(
        "source.follow",
        |c| c.source.format.is_pairs() && c.source.grows(),
        "is not for source.format = \"megatron\", whose files come in pairs",
    ),
    must(
        "producer.index",
        |c| c.producer.of > 0 && c.producer.index >= c.producer.of,
        "must be below producer.of: the first producer is 0",
    ),
    must(
        "stream.seq_len",
        |c| {
            let rows = u64::from(!c.is_balanced())
                * u64::from(c.stream.slices)
                * u64::from(c.stream.rows_per_slice);
            rows.saturating_mul(u64::from(c.stream.seq_len) + 1) > 1 << 30
        },
        "slices x rows_per_slice x seq_len is more than 2^30 tokens per batch",
    ),
    must(
        "stream.seq_len",
        |c| is_opaque(c) && c.stream.seq_len != 1,
        "must be 1 with packing.mode = \"opaque\": a row is a sample",
    ),
    must(
        "stream.rows_per_slice",
        |c| is_pairs(c) && !c.is_balanced() && !c.stream.rows_per_slice.is_multiple_of(2),
        "must be even with packing.mode = \"pairs\": a pair is two rows of one slice",
    ),
    must(
        "tokenizer.path",
        |c| is_file(c) && c.tokenizer.path.is_empty(),
        "must be given with tokenizer.kind = \"file\"",
    ),
    not_set(
        "tokenizer.path",
        |c| !is_file(c),
        "is for tokenizer.kind = \"file\" only; set the kind, or remove the path",
    ),
    not_set("tokenizer.pattern", |c| !is_file(c), RANK_FILE),
    not_set("tokenizer.special_tokens", |c| !is_file(c), RANK_FILE),
    must(
        "tokenizer.kind",
        |c| is_none(c) && !is_ids(c),
        "\"none\" is for source.content = \"ids\" only; choose a tokenizer, or set the content",
    ),
    must(
        "tokenizer.vocab_size",
        |c| is_none(c) && c.tokenizer.vocab_size == 0,
        "must be given with tokenizer.kind = \"none\": all ids are below it",
    ),
    must(
        "tokenizer.end_token_id",
        |c| is_none(c) && c.tokenizer.end_token_id.is_none_or(|id| is_beyond(c, id)),
        "must be given with tokenizer.kind = \"none\", below tokenizer.vocab_size",
    ),
    must(
        "tokenizer.begin_token_id",
        |c| {
            is_none(c)
                && c.tokenizer
                    .begin_token_id
                    .is_some_and(|id| is_beyond(c, id))
        },
        "must be below tokenizer.vocab_size",
    ),
    must(
        "tokenizer.begin_token",
        |c| is_none(c) && names_begin(c),
        "has no text with tokenizer.kind = \"none\"; write its id in tokenizer.begin_token_id",
    ),
    must(
        "tokenizer.begin_token",
        |c| begins(c) && has_template(c),
        "is for texts and ids only: a chat template writes its own; remove it",
    ),
    must(
        "tokenizer.begin_token",
        |c| begins(c) && is_opaque(c),
        "is for tokens, and packing.mode = \"opaque\" has none; remove it",
    ),
    not_set("tokenizer.vocab_size", |c| !is_none(c), KNOWN),
    not_set("tokenizer.end_token_id", |c| !is_none(c), KNOWN),
    not_set(
        "tokenizer.begin_token_id",
        |c| !is_none(c),
        "is for tokenizer.kind = \"none\" only; write the token's text in tokenizer.begin_token",
    ),
    must(
        "packing.pad_token",
        |c| {
            let pads = c.packing.last_batch == LastBatch::Pad;
            c.packing.pad_token.is_some() && !pads && c.packing.mode == PackingMode::Concat
        },
        "is for packing.last_batch = \"pad\" only",
    ),
    must(
        "packing.arrays",
        |c| is_opaque(c) && c.packing.arrays.is_empty(),
        "must list the arrays of a sample, since packing.mode = \"opaque\"",
    ),
    not_set(
        "packing.arrays",
        |c| !keeps_documents(c),
        "is for packing.mode = \"opaque\", \"best_fit\", \"chat\" and \"balanced\" only, which keep documents whole",
    ),
    not_set(
        "packing.look_ahead",
        ProducerConfig::is_balanced,
        "is for packing.mode = \"best_fit\" and \"chat\" only; packing.balanced.window is that of \"balanced\"",
    ),
    not_set(
        "packing.fields",
        is_opaque,
        "are made of tokens, and packing.mode = \"opaque\" has none",
    ),
    must(
        "chat.template",
        |c| has_template(c) && c.chat.template.is_empty(),
        "must be given for conversations and pairs: the model's .jinja file or tokenizer_config.json",
    ),
    not_set("chat.template", has_no_template, CHAT),
    not_set("chat.learn", has_no_template, CHAT),
    not_set("chat.loss_keys", has_no_template, CHAT),
    not_set("chat.ignore", has_no_template, CHAT),
    must(
        "chat.chosen",
        |c| {
            let [prompt, chosen, rejected] = [&c.chat.prompt, &c.chat.chosen, &c.chat.rejected];
            is_pairs(c) && (prompt == chosen || chosen == rejected || prompt == rejected)
        },
        "chat.chosen, chat.rejected and chat.prompt must be three fields",
    ),
    must(
        "chat.date",
        |c| !c.chat.date.is_empty() && !crate::transform::chat::is_date(&c.chat.date),
        "must be a day as \"2026-11-27\", or empty",
    ),
];

const CHAT: &str =
    "is for conversations and pairs only (packing.mode = \"chat\" or \"pairs\", or source.content)";
const KNOWN: &str = "is for tokenizer.kind = \"none\" only; others know their own";
const RANK_FILE: &str = "is for tokenizer.kind = \"file\" with a rank file of tiktoken only; set the kind, or remove it";

const fn must(key: &'static str, broken: When, why: &'static str) -> Rule {
    let broken = Broken::If(broken);
    Rule { key, broken, why }
}

const fn not_set(key: &'static str, when: When, why: &'static str) -> Rule {
    let broken = Broken::Set(when);
    Rule { key, broken, why }
}

fn is_ids(config: &ProducerConfig) -> bool {
    config.source.content == SourceContent::Ids
}

fn is_file(config: &ProducerConfig) -> bool {
    config.tokenizer.kind == TokenizerKind::File
}

fn is_none(config: &ProducerConfig) -> bool {
    config.tokenizer.kind == TokenizerKind::None
}

/// Returns whether an id is not below the size of the vocabulary.
fn is_beyond(config: &ProducerConfig, id: u32) -> bool {
    id >= config.tokenizer.vocab_size.max(1)
}

/// Returns whether the token before each document is given by its text.
fn names_begin(config: &ProducerConfig) -> bool {
    let text = config.tokenizer.begin_token.as_ref();
    text.is_some_and(|text| !text.is_empty())
}

fn begins(config: &ProducerConfig) -> bool {
    names_begin(config) || config.tokenizer.begin_token_id.is_some()
}

fn is_opaque(config: &ProducerConfig) -> bool {
    config.packing.mode == PackingMode::Opaque
}

fn is_pairs(config: &ProducerConfig) -> bool {
    config.documents() == DocumentKind::Pair
}

/// Returns whether no document is divided between rows.
fn keeps_documents(config: &ProducerConfig) -> bool {
    use PackingMode::{Balanced, BestFit, Chat, Opaque};
    matches!(config.packing.mode, Opaque | BestFit | Chat)
        || config.packing.mode == Balanced && !is_pairs(config)
}

fn has_template(config: &ProducerConfig) -> bool {
    config.documents().has_template()
}

fn has_no_template(config: &ProducerConfig) -> bool {
    !has_template(config)
}
