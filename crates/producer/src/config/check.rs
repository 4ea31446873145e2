//! Checks of the configuration: keys that must be given, ranges, and contradictions between keys.

use batchweave_core::ids::ProducerName;
use batchweave_core::limits::ENTRY_TGBS_MAX;
use batchweave_core::stream::StreamOrder;
use batchweave_daemon::config::{ByteSize, Config, Problem};

use super::{
    LastBatch, NamedSource, PackingMode, ProducerConfig, ShuffleConfig, TokenizerKind, hints,
};
use crate::packing::LOOK_AHEAD_MAX;
use crate::transform::chat::is_date;

impl Config for ProducerConfig {
    fn hint(key: &str, value: Option<&str>) -> Option<String> {
        hints::hint(key, value)
    }

    fn value_hint(key: &str, value: Option<&str>) -> Option<String> {
        hints::value_hint(key, value)
    }

    fn tables_of() -> Vec<(&'static str, serde_json::Value)> {
        let source = NamedSource {
            shuffle: Some(ShuffleConfig::default()),
            ..NamedSource::default()
        };
        let shuffle = serde_json::to_value(ShuffleConfig::default());
        let tables = [
            ("sources", serde_json::to_value(source)),
            ("source.shuffle", shuffle),
        ];
        let tables = tables.into_iter();
        tables
            .filter_map(|(key, table)| Some((key, table.ok()?)))
            .collect()
    }

    fn stands_in(key: &str) -> &'static [&'static str] {
        match key {
            "source.paths" => &["source", "sources", "sources.*"],
            _ => &[],
        }
    }

    fn check(&self) -> Vec<Problem> {
        let mut problems = self.log.check();
        self.check_given(&mut problems);
        self.check_tokenizer(&mut problems);
        self.check_ranges(&mut problems);
        self.check_sizes(&mut problems);
        self.check_sources(&mut problems);
        self.check_part(&mut problems);
        self.check_inbox(&mut problems);
        self.check_mode(&mut problems);
        self.check_templates(&mut problems);
        self.check_arrays(&mut problems);
        self.check_learned(&mut problems);
        self.check_ids(&mut problems);
        self.check_columns(&mut problems);
        self.check_shards(&mut problems);
        self.check_paths(&mut problems);
        self.check_function(&mut problems);
        let lanes = self.check_lanes(&mut problems);
        self.check_names(lanes, &mut problems);
        problems
    }
}

impl ProducerConfig {
    /// Adds keys that must be given and are not.
    fn check_given(&self, problems: &mut Vec<Problem>) {
        let mut wrong = |key: &str, bad: bool, message: &str| {
            if bad {
                problems.push(Problem::new(key, message));
            }
        };
        wrong(
            "store.url",
            self.store.url.is_empty(),
            "must be given, as \"s3://bucket/prefix\" or \"file:///dir\"",
        );
        wrong(
            "source.paths",
            self.source.paths.is_empty() && self.sources.is_empty(),
            "must be given: files, folders, patterns or s3:// prefixes",
        );
        for (key, text) in [
            ("source.field", &self.source.field),
            ("source.column", &self.source.column),
            ("chat.messages", &self.chat.messages),
            ("chat.role_key", &self.chat.role_key),
            ("chat.content_key", &self.chat.content_key),
        ] {
            wrong(key, text.is_empty(), "must not be empty");
        }
        let encryption = self.store.encryption().err();
        wrong(
            "store.encryption",
            encryption.is_some(),
            &encryption.clone().unwrap_or_default(),
        );
    }

    /// Adds keys that do not fit `tokenizer.kind`.
    fn check_tokenizer(&self, problems: &mut Vec<Problem>) {
        let mut wrong = |key: &str, bad: bool, message: &str| {
            if bad {
                problems.push(Problem::new(key, message));
            }
        };
        let file = self.tokenizer.kind == TokenizerKind::File;
        wrong(
            "tokenizer.path",
            file && self.tokenizer.path.is_empty(),
            "must be given with tokenizer.kind = \"file\"",
        );
        wrong(
            "tokenizer.path",
            !file && !self.tokenizer.path.is_empty(),
            "is for tokenizer.kind = \"file\" only; set the kind, or remove the path",
        );
        for (key, given) in [
            ("tokenizer.pattern", !self.tokenizer.pattern.is_empty()),
            (
                "tokenizer.special_tokens",
                !self.tokenizer.special_tokens.is_empty(),
            ),
        ] {
            let why = "is for tokenizer.kind = \"file\" with a rank file of tiktoken only; set the kind, or remove it";
            wrong(key, !file && given, why);
        }
    }

    /// Adds numbers and times out of their range.
    fn check_ranges(&self, problems: &mut Vec<Problem>) {
        let mut wrong = |key: &str, bad: bool, message: &str| {
            if bad {
                problems.push(Problem::new(key, message));
            }
        };
        for (key, number) in [
            ("producer.of", self.producer.of),
            ("stream.slices", self.stream.slices),
            ("stream.rows_per_slice", self.stream.rows_per_slice),
            ("stream.seq_len", self.stream.seq_len),
        ] {
            wrong(key, number == 0, "must be at least 1");
        }
        wrong(
            "producer.index",
            self.producer.of > 0 && self.producer.index >= self.producer.of,
            "must be below producer.of: the first producer is 0",
        );
        wrong(
            "upload.concurrency",
            !(1..=256).contains(&self.upload.concurrency),
            "must be 1 to 256",
        );
        wrong(
            "upload.memory",
            self.upload.memory < ByteSize::mib(1),
            "must be at least 1MiB",
        );
        wrong(
            "commit.max_batches",
            !(1..=ENTRY_TGBS_MAX).contains(&self.commit.max_batches),
            "must be 1 to 1024",
        );
        wrong(
            "commit.latency_target",
            self.commit.latency_target.0 > std::time::Duration::from_mins(1),
            "must be at most 1min",
        );
        wrong(
            "ahead.lane_lead",
            !(1..=1 << 20).contains(&self.ahead.lane_lead),
            "must be 1 to 1048576",
        );
        wrong(
            "tokenizer.threads",
            self.tokenizer.threads > 1024,
            "must be at most 1024",
        );
    }

    /// Adds sizes out of their range, and what does not fit the size of a batch or of the input.
    fn check_sizes(&self, problems: &mut Vec<Problem>) {
        let mut wrong = |key: &str, bad: bool, message: &str| {
            if bad {
                problems.push(Problem::new(key, message));
            }
        };
        let small = self.source.max_document_bytes < ByteSize(1)
            || self.source.max_document_bytes > ByteSize::mib(4096);
        wrong("source.max_document_bytes", small, "must be 1B to 4GiB");
        let window = self.source.decompress_memory;
        wrong(
            "source.decompress_memory",
            window < ByteSize::mib(1) || window > ByteSize::mib(4096),
            "must be 1MiB to 4GiB",
        );
        wrong(
            "packing.object_bytes",
            self.packing.object_bytes > ByteSize::mib(4096),
            "must be at most 4GiB",
        );
        let pads = self.packing.last_batch == LastBatch::Pad;
        wrong(
            "packing.pad_token",
            self.packing.pad_token.is_some() && !pads && self.packing.mode == PackingMode::Concat,
            "is for packing.last_batch = \"pad\" only",
        );
        wrong(
            "packing.look_ahead",
            !(1..=LOOK_AHEAD_MAX).contains(&self.packing.look_ahead),
            "must be 1 to 8192",
        );
        let batch = u64::from(self.stream.slices)
            * u64::from(self.stream.rows_per_slice)
            * (u64::from(self.stream.seq_len) + 1);
        wrong(
            "stream.seq_len",
            batch > 1 << 30,
            "slices x rows_per_slice x seq_len is more than 2^30 tokens per batch",
        );
        problems.extend((self.source.grows() && self.source.epochs != 1).then(|| {
            Problem::new(
                "source.epochs",
                "must be 1 with source.follow: input that grows has no end to start again from",
            )
        }));
    }

    fn check_mode(&self, problems: &mut Vec<Problem>) {
        let packing = &self.packing;
        let opaque = packing.mode == PackingMode::Opaque;
        let mut wrong = |key: &str, bad: bool, message: &str| {
            if bad {
                problems.push(Problem::new(key, message));
            }
        };
        wrong(
            "packing.arrays",
            opaque && packing.arrays.is_empty(),
            "must list the arrays of a sample, since packing.mode = \"opaque\"",
        );
        let whole = matches!(packing.mode, PackingMode::BestFit | PackingMode::Chat);
        wrong(
            "packing.arrays",
            !opaque && !whole && !packing.arrays.is_empty(),
            "is for packing.mode = \"opaque\", \"best_fit\" and \"chat\" only, which keep documents whole",
        );
        wrong(
            "packing.fields",
            opaque && !packing.fields.is_empty(),
            "are made of tokens, and packing.mode = \"opaque\" has none",
        );
        wrong(
            "stream.seq_len",
            opaque && self.stream.seq_len != 1,
            "must be 1 with packing.mode = \"opaque\": a row is a sample",
        );
    }

    /// Adds keys of chat templates and pairs that do not fit `packing.mode`.
    fn check_templates(&self, problems: &mut Vec<Problem>) {
        let mut wrong = |key: &str, bad: bool, message: &str| {
            if bad {
                problems.push(Problem::new(key, message));
            }
        };
        let mode = self.packing.mode;
        let chat = mode.has_template();
        wrong(
            "chat.template",
            chat && self.chat.template.is_empty(),
            "must be given with packing.mode = \"chat\" or \"pairs\": the model's .jinja file or tokenizer_config.json",
        );
        wrong(
            "chat.template",
            !chat && !self.chat.template.is_empty(),
            "is for packing.mode = \"chat\" and \"pairs\" only",
        );
        let date = &self.chat.date;
        wrong(
            "chat.date",
            !date.is_empty() && !is_date(date),
            "must be a day as \"2026-11-27\", or empty",
        );
        let pairs = mode == PackingMode::Pairs;
        wrong(
            "stream.rows_per_slice",
            pairs && !self.stream.rows_per_slice.is_multiple_of(2),
            "must be even with packing.mode = \"pairs\": a pair is two rows of one slice",
        );
        let names = [&self.chat.prompt, &self.chat.chosen, &self.chat.rejected];
        wrong(
            "chat.chosen",
            pairs && (names[0] == names[1] || names[1] == names[2] || names[0] == names[2]),
            "chat.chosen, chat.rejected and chat.prompt must be three fields",
        );
    }

    /// Adds arrays of a sample that cannot be stored.
    fn check_arrays(&self, problems: &mut Vec<Problem>) {
        let mut wrong = |key: &str, bad: bool, message: &str| {
            if bad {
                problems.push(Problem::new(key, message));
            }
        };
        let packing = &self.packing;
        let names = packing.arrays.iter().map(|array| array.name.as_str());
        let names: std::collections::BTreeSet<&str> = names.collect();
        wrong(
            "packing.arrays",
            names.len() < packing.arrays.len(),
            "names an array twice",
        );
        let invalid = packing.arrays.iter().any(|array| {
            let bytes = array.item_bytes();
            array.name.is_empty()
                || array.name.ends_with(".offsets")
                || bytes == 0
                || bytes > 1 << 30
        });
        wrong(
            "packing.arrays",
            invalid,
            "needs names that do not end in \".offsets\", and items of 1 byte to 1 GiB",
        );
        let faults = packing
            .arrays
            .iter()
            .map(|array| (array, array.image_fault()));
        let fault = faults.filter_map(|(array, fault)| Some((&array.name, fault?)));
        for (name, fault) in fault.take(1) {
            wrong("packing.arrays", true, &format!("{name:?} {fault}"));
        }
    }

    /// `lanes`: `producer.lanes` takes the place of a name.
    fn check_names(&self, lanes: bool, problems: &mut Vec<Problem>) {
        let name = match self.producer.name.parse::<ProducerName>() {
            Ok(name) => Some(name),
            Err(_) if lanes => None,
            Err(_) if self.producer.name.is_empty() => {
                let message = "must be given: each producer of a stream has its own, for example \"tokens-0\"";
                problems.push(Problem::new("producer.name", message));
                None
            }
            Err(why) => {
                problems.push(Problem::new("producer.name", why.to_string()));
                None
            }
        };
        for listed in &self.stream.producers {
            if let Err(why) = listed.parse::<ProducerName>() {
                problems.push(Problem::new("stream.producers", why.to_string()));
            }
        }
        let named = self.stream.producers.is_empty()
            || name.is_none_or(|n| self.stream.producers.iter().any(|l| *l == n.as_str()));
        if !named {
            let message = format!(
                "does not list this producer, {:?}; add it, or correct producer.name",
                self.producer.name
            );
            problems.push(Problem::new("stream.producers", message));
        }
        let mut seen = std::collections::BTreeSet::new();
        let twice = self
            .stream
            .producers
            .iter()
            .find(|listed| !seen.insert(*listed));
        problems.extend(twice.map(|name| {
            let message = format!("names {name:?} twice; give each producer its own name");
            Problem::new("stream.producers", message)
        }));
        if self.stream.order == StreamOrder::Lanes && self.stream.producers.is_empty() {
            problems.push(Problem::new(
                "stream.producers",
                "must list the lanes in turn, since stream.order = \"lanes\"",
            ));
        }
    }
}
