//! Remedies for keys that other data loaders have under another name, or not at all. Both daemons and
//! `batchweave run` use them.

/// Names of other programs, separated by spaces, and the key of the producer's file that is meant.
const PRODUCER: [(&str, &str); 26] = [
    (
        "sequence_length sequence_len seq_length seqlen max_seq_len max_seq_length max_length model_max_length max_position_embeddings context_length context_len context_size context_window cutoff_len block_size n_ctx",
        "the tokens of a row are `stream.seq_len`",
    ),
    (
        "batch_size global_batch_size micro_batch_size train_batch_size global_train_batch_size device_train_batch_size device_batch_size per_device_batch_size per_device_train_batch_size gradient_accumulation_steps",
        "a step has `stream.slices` x `stream.rows_per_slice` rows, over all ranks",
    ),
    (
        "shuffle shuffled shuffle_files shuffle_documents shuffle_dataset shuffle_shards shuffle_buffer shuffle_buffer_size shuffle_block_size shuffle_algo buffer_size window",
        "documents are shuffled by a source of [[sources]], with `shuffle = { seed = 1, window = \"128MiB\" }`; without it they keep the order of the files",
    ),
    (
        "shuffle_seed seed random_seed rng_seed data_seed",
        "the seed is that of a source's shuffle: `shuffle = { seed = 1 }` in its table of [[sources]]",
    ),
    (
        "weight weights proportion proportions probability probabilities probs interleave_probs ratio ratios share shares sampling_weight sampling_weights dataset_weights mixture_weights mixing mix blend data_blend",
        "the share of a source is `weight` in its table of [[sources]], which has name and paths too",
    ),
    (
        "dataset datasets dataset_name dataset_path data data_dir data_path data_paths data_prefix data_files train_data train_file train_files corpus file filename files folder directory glob input inputs input_files path shards url urls remote local",
        "the input is `source.paths`, a list of files, folders, patterns or prefixes (s3://, gs://, az://)",
    ),
    (
        "text_field text_key text_column text_column_name dataset_text_field content_field content_key json_field json_key key keys columns column_name feature",
        "the text is in `source.field` of JSON, or in `source.column` of Parquet",
    ),
    (
        "type file_type file_format data_format ds_type",
        "the form of the files is `source.format`, found by their names by default",
    ),
    (
        "compression compressed gzip zstd encoding",
        "compressed files are found by themselves, and text is UTF-8: remove it",
    ),
    (
        "num_workers workers num_proc num_threads nproc dataset_num_proc",
        "the tokenizing threads are `tokenizer.threads`; 0 is one per core",
    ),
    (
        "drop_last dataloader_drop_last drop_remainder pad_last",
        "the last, partial batch is `packing.last_batch`, \"drop\" or \"pad\"",
    ),
    (
        "num_epochs num_train_epochs max_epochs n_epochs epoch epochs passes repeat repeats",
        "the passes over the input are `source.epochs`, or `epochs` of a source of [[sources]]; a whole number, 0 repeats it for ever",
    ),
    (
        "max_steps num_steps total_steps train_steps train_iters max_iters max_tokens total_tokens max_samples max_train_samples num_samples take stop_after",
        "a run ends early by `producer.limit`, as \"1000 batches\"",
    ),
    (
        "split splits train_split valid_split validation_split val_split eval_split test_split test_size val_size validation_file eval_data",
        "documents are held out by the table [split], with `every` and `side`",
    ),
    (
        "streaming stream_data lazy preload in_memory cache cache_dir keep_in_memory download",
        "input is always read as a stream, and nothing is cached: remove it",
    ),
    (
        "prefetch_factor prefetch_batches predownload pin_memory persistent_workers",
        "steps are read ahead by the consumer, `prefetch.steps` in its configuration",
    ),
    (
        "tokenizer_name tokenizer_path tokenizer_type tokenizer_model tokenizer_file model model_name model_path model_name_or_path base_model pretrained_model_name_or_path",
        "a model's tokenizer is `tokenizer = { kind = \"file\", path = \"MODEL/tokenizer.json\" }`",
    ),
    (
        "eos_token eos_token_id eos_id eod eod_token append_eod append_eos add_eos_token eot_token",
        "the token behind each document is `tokenizer.end_token`",
    ),
    (
        "bos_token bos_token_id bos_id bos add_bos add_bos_token begin_of_text",
        "the token before each document is `tokenizer.begin_token`",
    ),
    (
        "train_on_inputs train_on_prompt roles_to_train mask_history assistant_only_loss completion_only_loss message_field_training loss_key weight_key",
        "the learned messages are `chat.learn`, and a message's own `weight` of 0 leaves it out; more such keys are in `chat.loss_keys`",
    ),
    (
        "pack packed packing_strategy sample_packing group_by_length concat_tokens",
        "documents are packed by `packing.mode`, \"concat\", \"best_fit\", \"chat\", \"pairs\" or \"opaque\"",
    ),
    (
        "pad_token_id pad_id padding",
        "the padding token is `packing.pad_token`",
    ),
    (
        "chat_template template_file jinja_template conversation_template",
        "the template is `chat.template`, a file, with `packing.mode = \"chat\"`",
    ),
    (
        "messages_field messages_key field_messages conversations conversation_column messages_column",
        "the list of messages is `chat.messages`, a field of JSON or a column of Parquet",
    ),
    (
        "output output_dir output_path out destination save_to",
        "the stream is written to `store.url`, as \"s3://bucket/prefix\" or \"file:///folder\"",
    ),
    (
        "world_size num_replicas num_ranks num_canonical_nodes rank ranks dp_size dp_rank num_nodes gpus",
        "a producer knows no ranks: `stream.slices` is the most data ranks, and clients state theirs",
    ),
];

/// Names of other programs, and the key of the consumer's file that is meant.
const CONSUMER: [(&str, &str); 5] = [
    (
        "num_workers prefetch_factor prefetch_batches buffer_size read_ahead predownload",
        "the steps read ahead of each rank are `prefetch.steps`",
    ),
    (
        "memory memory_limit shm_size cache_limit cache_size buffer_bytes",
        "the shared memory is `arena.bytes`",
    ),
    (
        "port host address metrics_port",
        "the address of metrics and health is `admin.listen`, as \"127.0.0.1:9465\"",
    ),
    (
        "batch_size seq_len slices rows_per_slice shuffle seed epochs",
        "the stream has it, as its producer made it: see config/producer.toml",
    ),
    (
        "world_size rank dp_size dp_rank",
        "ranks state theirs themselves, in batchweave.connect(); `arena.ranks` is their number on this node",
    ),
];

/// Names of keys of a store, in either file.
const STORE: [(&str, &str); 2] = [
    (
        "path root uri bucket prefix dir directory folder location remote local",
        "the stream's place is `store.url`, as \"s3://bucket/prefix\" or \"file:///folder\"",
    ),
    (
        "access_key access_key_id aws_access_key_id secret secret_key secret_access_key aws_secret_access_key session_token token profile aws_profile credentials",
        "credentials are not in this file: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
];

/// Names of keys of `packing.shuffle_rows`.
const SHUFFLE_ROWS: [(&str, &str); 1] = [(
    "window window_tokens size buffer buffer_size rows batches bytes",
    "the rows that are shuffled together are counted by `packing.shuffle_rows.tokens`, as 8388608",
)];

/// Tables, and the key that one value in place of the table is meant for.
const VALUES: [(&str, &str); 12] = [
    ("store", "url"),
    ("source", "paths"),
    ("producer", "name"),
    ("packing", "mode"),
    ("chat", "template"),
    ("split", "every"),
    ("transform", "function"),
    ("admin", "listen"),
    ("log", "level"),
    ("job", "name"),
    ("socket", "path"),
    ("arena", "bytes"),
];

/// Beginnings of remedies for short names, which mean something else outside of these tables.
const OF_INPUT: [&str; 5] = [
    "the input is",
    "the text is",
    "the form of",
    "compressed files",
    "the stream is written",
];
const INPUT_TABLES: [&str; 5] = ["source", "sources", "stream", "producer", "inbox"];

/// Returns the remedy for the unknown key `key` of a producer's file.
pub fn of_producer(key: &str) -> Option<String> {
    let found = of_name(key, &PRODUCER)?;
    if key.starts_with("sources.") && found.starts_with("the input is") {
        return Some("the files of a source are its `paths`, a list".to_owned());
    }
    if key.starts_with("stages.") {
        // A stage has its own shape beside that of the stream.
        return found
            .contains("stream.")
            .then(|| found.replace("stream.", ""));
    }
    let table = key.split_once('.').map(|(table, _)| table);
    let input = table.is_none_or(|table| INPUT_TABLES.contains(&table) || table == "store");
    let of_input = OF_INPUT.iter().any(|begin| found.starts_with(begin));
    (input || !of_input).then_some(found)
}

/// Returns the remedy for the unknown key `key` of a consumer's file.
pub fn of_consumer(key: &str) -> Option<String> {
    of_name(key, &CONSUMER)
}

/// Returns the remedy for a value of the key `key` that has a wrong type; `value`: its text.
pub fn of_value(key: &str, value: Option<&str>) -> Option<String> {
    match (key, value) {
        ("source", None) => {
            let text = "[source] is one table; several sources are [[sources]], each with a name";
            return Some(text.to_owned());
        }
        ("sources", _) => {
            let text = "write each source as a table [[sources]], with name and paths";
            return Some(text.to_owned());
        }
        ("source.epochs" | "sources.epochs", _) => {
            let text = "0 repeats it for ever, and a part of a pass is `producer.limit`, as \"1000 batches\"";
            return Some(text.to_owned());
        }
        ("producer.limit", None) => {
            return Some("it has a unit too, as \"1000 batches\"".to_owned());
        }
        _ => {}
    }
    let (_, inner) = VALUES.iter().find(|(table, _)| *table == key)?;
    let value = value?;
    Some(match *inner {
        "paths" => format!("write `source.paths = [\"{value}\"]`"),
        inner => format!("write `{key}.{inner} = \"{value}\"`"),
    })
}

fn of_name(key: &str, names: &[(&str, &str)]) -> Option<String> {
    let name = key
        .rsplit('.')
        .next()?
        .to_ascii_lowercase()
        .replace('-', "_");
    let own = [
        ("store.", &STORE[..]),
        ("packing.shuffle_rows.", &SHUFFLE_ROWS[..]),
    ];
    let own = own.into_iter().find(|(table, _)| key.starts_with(table));
    let names = own.map_or(names, |(_, names)| names);
    let known = names
        .iter()
        .find(|(names, _)| names.split(' ').any(|known| known == name));
    known.map(|(_, remedy)| (*remedy).to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_name_has_one_remedy() {
        for table in [&PRODUCER[..], &CONSUMER[..], &STORE[..], &SHUFFLE_ROWS[..]] {
            let mut seen = BTreeSet::new();
            for name in table.iter().flat_map(|(names, _)| names.split(' ')) {
                assert!(seen.insert(name), "{name} is listed twice");
            }
        }
    }

    #[test]
    fn a_name_is_found_in_any_table_and_spelling() {
        let shuffled = of_producer("shuffle").unwrap();
        for key in [
            "stream.shuffle",
            "source.shuffle",
            "Shuffle",
            "source.shuffle-buffer-size",
        ] {
            assert_eq!(of_producer(key).as_ref(), Some(&shuffled), "{key}");
        }
        assert!(of_producer("store.path").unwrap().contains("store.url"));
        let of_stage = of_producer("stages.seqlen").unwrap();
        assert_eq!(of_stage, "the tokens of a row are `seq_len`");
        let of_rows = of_producer("packing.shuffle_rows.window").unwrap();
        assert!(of_rows.contains("packing.shuffle_rows.tokens"), "{of_rows}");
        assert!(
            of_consumer("store.profile")
                .unwrap()
                .contains("AWS_PROFILE")
        );
        assert!(
            of_value("source", Some("a/*.jsonl"))
                .unwrap()
                .contains("source.paths = [\"a/*.jsonl\"]")
        );
        for key in [
            "nothing.alike",
            "packing.type",
            "tokenizer.file",
            "log.path",
        ] {
            assert_eq!(of_producer(key), None, "{key}");
        }
        assert!(of_producer("packing.batch_size").is_some());
    }
}
