//! Checks of the keys for token ids that are ready made.

use batchweave_daemon::config::Problem;

use super::{PackingMode, ProducerConfig, SourceContent, TokenizerKind};

impl ProducerConfig {
    /// Adds the contradictions between `source.content` and other keys.
    pub(super) fn check_ids(&self, problems: &mut Vec<Problem>) {
        let tokenizer = &self.tokenizer;
        let ids = self.source.content == SourceContent::Ids;
        let none = tokenizer.kind == TokenizerKind::None;
        let mut wrong = |key: &str, bad: bool, message: &str| {
            if bad {
                problems.push(Problem::new(key, message));
            }
        };
        let tokens = [PackingMode::Concat, PackingMode::BestFit];
        wrong(
            "source.content",
            ids && !tokens.contains(&self.packing.mode),
            "\"ids\" is for packing.mode \"concat\" and \"best_fit\" only",
        );
        wrong(
            "tokenizer.kind",
            none && !ids,
            "\"none\" is for source.content = \"ids\" only; choose a tokenizer, or set the content",
        );
        wrong(
            "tokenizer.vocab_size",
            none && tokenizer.vocab_size == 0,
            "must be given with tokenizer.kind = \"none\": all ids are below it",
        );
        self.check_end_and_begin(problems);
        self.check_megatron(problems);
    }

    /// Adds contradictions between the ids and texts of tokens and `tokenizer.kind`.
    fn check_end_and_begin(&self, problems: &mut Vec<Problem>) {
        let tokenizer = &self.tokenizer;
        let none = tokenizer.kind == TokenizerKind::None;
        let mut wrong = |key: &str, bad: bool, message: &str| {
            if bad {
                problems.push(Problem::new(key, message));
            }
        };
        let end = tokenizer.end_token_id;
        wrong(
            "tokenizer.end_token_id",
            none && end.is_none_or(|end| end >= tokenizer.vocab_size.max(1)),
            "must be given with tokenizer.kind = \"none\", below tokenizer.vocab_size",
        );
        let begin = tokenizer.begin_token_id;
        wrong(
            "tokenizer.begin_token_id",
            none && begin.is_some_and(|begin| begin >= tokenizer.vocab_size.max(1)),
            "must be below tokenizer.vocab_size",
        );
        let named = tokenizer
            .begin_token
            .as_ref()
            .is_some_and(|text| !text.is_empty());
        wrong(
            "tokenizer.begin_token",
            none && named,
            "has no text with tokenizer.kind = \"none\"; write its id in tokenizer.begin_token_id",
        );
        wrong(
            "tokenizer.begin_token",
            (named || begin.is_some()) && self.packing.mode.has_template(),
            "is for packing.mode = \"concat\" and \"best_fit\" only: a chat template writes its own; remove it",
        );
        wrong(
            "tokenizer.begin_token",
            (named || begin.is_some()) && self.packing.mode == PackingMode::Opaque,
            "is for tokens, and packing.mode = \"opaque\" has none; remove it",
        );
        for (key, given) in [
            ("tokenizer.vocab_size", tokenizer.vocab_size != 0),
            ("tokenizer.end_token_id", end.is_some()),
        ] {
            wrong(
                key,
                given && !none,
                "is for tokenizer.kind = \"none\" only; others know their own",
            );
        }
        wrong(
            "tokenizer.begin_token_id",
            begin.is_some() && !none,
            "is for tokenizer.kind = \"none\" only; write the token's text in tokenizer.begin_token",
        );
    }

    /// Adds contradictions between Megatron's files and other keys.
    fn check_megatron(&self, problems: &mut Vec<Problem>) {
        let source = &self.source;
        let ids = source.content == SourceContent::Ids;
        let megatron = source.format.is_pairs();
        let mut wrong = |key: &str, bad: bool, message: &str| {
            if bad {
                problems.push(Problem::new(key, message));
            }
        };
        wrong(
            "source.format",
            megatron && !ids,
            "\"megatron\" holds token ids; set source.content = \"ids\"",
        );
        wrong(
            "source.follow",
            megatron && source.grows(),
            "is not for source.format = \"megatron\", whose files come in pairs",
        );
    }
}
