//! Remedies for keys and values that other data loaders have under another name, or not at all.

/// Names of other programs for keys of this one.
const NAMES: [(&[&str], &str); 11] = [
    (
        &[
            "sequence_length",
            "seq_length",
            "max_seq_len",
            "max_seq_length",
            "max_length",
            "context_length",
            "block_size",
        ],
        "the tokens of a row are `stream.seq_len`",
    ),
    (
        &[
            "batch_size",
            "global_batch_size",
            "micro_batch_size",
            "per_device_train_batch_size",
        ],
        "a step has `stream.slices` x `stream.rows_per_slice` rows, over all ranks",
    ),
    (
        &[
            "shuffle",
            "shuffle_seed",
            "shuffle_buffer",
            "shuffle_buffer_size",
            "seed",
        ],
        "batches keep the order of the input; shuffle the documents, or the files' names, before",
    ),
    (
        &[
            "dataset",
            "data",
            "data_path",
            "data_files",
            "files",
            "input",
            "path",
            "shards",
            "urls",
        ],
        "the input is `source.paths`, a list of files, folders, patterns or s3:// prefixes",
    ),
    (
        &[
            "text_field",
            "text_key",
            "text_column",
            "content_field",
            "json_field",
        ],
        "the text is in `source.field` of JSON, or in `source.column` of Parquet",
    ),
    (
        &["num_workers", "workers", "num_proc", "num_threads"],
        "the tokenizing threads are `tokenizer.threads`; 0 is one per core",
    ),
    (
        &["drop_last"],
        "the last, partial batch is `packing.last_batch`, \"drop\" or \"pad\"",
    ),
    (
        &["num_epochs", "num_train_epochs", "passes", "repeat"],
        "the passes over the input are `source.epochs`; 0 repeats it for ever",
    ),
    (
        &[
            "train_on_inputs",
            "train_on_prompt",
            "roles_to_train",
            "mask_history",
            "assistant_only_loss",
            "completion_only_loss",
            "message_field_training",
            "loss_key",
            "weight_key",
        ],
        "the learned messages are `chat.learn`, and a message's own `weight` of 0 leaves it out; more such keys are in \
         `chat.loss_keys`",
    ),
    (
        &[
            "bos_token",
            "add_bos_token",
            "add_bos",
            "begin_of_text",
            "bos",
        ],
        "the token before each document is `tokenizer.begin_token`",
    ),
    (
        &["world_size", "num_replicas", "rank", "dp_size"],
        "a producer knows no ranks: `stream.slices` is the most data ranks, and clients state theirs",
    ),
];

/// Returns the remedy for the key or value `key`, `value`.
pub(super) fn hint(key: &str, value: Option<&str>) -> Option<String> {
    if matches!(
        key,
        "tokenizer" | "tokenizer.name" | "tokenizer.model" | "model"
    ) {
        return value.map(tokenizer);
    }
    let name = key.rsplit('.').next().unwrap_or(key);
    if key.starts_with("tokenizer.") && !name.contains("bos") {
        return None;
    }
    let table = key.split('.').next().unwrap_or(key);
    if ["arena", "socket", "job", "prefetch", "follow", "reclaim"].contains(&table) {
        let text = "it belongs to the consumer's configuration, and this is the producer's; config/producer.toml lists its keys";
        return Some(text.to_owned());
    }
    let known = NAMES.iter().find(|(names, _)| names.contains(&name));
    known.map(|(_, remedy)| (*remedy).to_owned())
}

/// Returns how to name the tokenizer of the model `name`.
fn tokenizer(name: &str) -> String {
    if matches!(name, "gpt2" | "openai-community/gpt2") {
        return "write `tokenizer.name = \"gpt2\"` with the kind \"embedded\"".to_owned();
    }
    format!(
        "for a model, download its tokenizer.json and write `tokenizer = {{ kind = \"file\", path = \"{name}/tokenizer.json\" }}`"
    )
}
