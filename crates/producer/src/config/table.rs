//! The table of the keys that have a range or decide the batches' bytes. All others take any value of their type.

use std::time::Duration;

use batchweave_core::limits::ENTRY_TGBS_MAX;
use batchweave_daemon::config::{ByteSize, Period, Problem};
use serde_json::Value;

use super::rules::RULES;
use super::setting::{Setting, Values};
use super::{DocumentKind, ProducerConfig};
use crate::packing::LOOK_AHEAD_MAX;

const GIB_4: Option<ByteSize> = Some(ByteSize::mib(4096));

static TABLE: [Setting; 45] = [
    key("stream.slices").number(1, None),
    key("stream.rows_per_slice").number(1, None),
    key("stream.seq_len").number(1, None),
    key("producer.index").decides(),
    key("producer.of").number(1, None).decides(),
    key("source.root").decides_where_set(),
    key("source.format").decides(),
    key("source.content").decides_where_set(),
    key("source.field").given().decides(),
    key("source.column").given().decides(),
    key("source.mask").decides_where_set(),
    key("source.follow").decides_where_set(),
    key("source.inbox").decides_where_set(),
    key("source.max_document_bytes")
        .bytes(Some(ByteSize(1)), GIB_4)
        .decides(),
    key("source.decompress_memory").bytes(Some(ByteSize::mib(1)), GIB_4),
    key("tokenizer.threads").number(0, Some(1024)),
    key("transform.function").decides_where_set(),
    key("transform.fields").decides_where_set(),
    key("packing.mode").decides_where_set(),
    key("packing.look_ahead")
        .number(1, Some(LOOK_AHEAD_MAX as u64))
        .decides_where_set(),
    key("packing.balanced.tokens").number(2, None),
    key("packing.balanced.micro_batches").number(1, None),
    key("packing.balanced.window")
        .number(1, None)
        .decides_in(is_balanced),
    key("packing.balanced.cost").decides_in(is_balanced),
    key("packing.balanced.crossover")
        .number(1, None)
        .decides_in(costs_attention),
    key("packing.balanced.long").decides_in(is_balanced),
    key("packing.last_batch").decides(),
    key("packing.pad_token").decides_in(has_rows),
    key("packing.object_bytes").bytes(None, GIB_4),
    key("chat.messages").given().decides_in(is_chat),
    key("chat.prompt").decides_in(is_pairs),
    key("chat.chosen").decides_in(is_pairs),
    key("chat.rejected").decides_in(is_pairs),
    key("chat.tools").decides_in(has_template),
    key("chat.role_key")
        .given()
        .decides_where_set_in(has_template),
    key("chat.content_key")
        .given()
        .decides_where_set_in(has_template),
    key("chat.roles").decides_where_set_in(has_template),
    key("chat.learn").decides_where_set_in(has_template),
    key("chat.loss_keys").decides_where_set_in(has_template),
    key("chat.date").decides_where_set_in(has_template),
    key("upload.concurrency").number(1, Some(256)),
    key("upload.memory").bytes(Some(ByteSize::mib(1)), None),
    key("commit.max_batches").number(1, Some(ENTRY_TGBS_MAX as u64)),
    key("commit.latency_target").at_most(Period(Duration::from_mins(1))),
    key("ahead.lane_lead").number(1, Some(1 << 20)),
];

const fn key(key: &'static str) -> Setting {
    Setting::new(key)
}

fn is_balanced(config: &ProducerConfig) -> bool {
    config.is_balanced()
}

fn costs_attention(config: &ProducerConfig) -> bool {
    config.is_balanced() && config.packing.balanced.costs_attention()
}

fn has_rows(config: &ProducerConfig) -> bool {
    !config.is_balanced()
}

fn is_chat(config: &ProducerConfig) -> bool {
    config.documents() == DocumentKind::Conversation
}

fn is_pairs(config: &ProducerConfig) -> bool {
    config.documents() == DocumentKind::Pair
}

fn has_template(config: &ProducerConfig) -> bool {
    config.documents().has_template()
}

impl ProducerConfig {
    /// Returns the values out of range, and those that contradict others by a rule.
    pub(super) fn check_table(&self) -> Vec<Problem> {
        let values = Values::of(self);
        let ranges = TABLE.iter().filter_map(|setting| {
            let fault = setting.fault(values.get(setting.key))?;
            Some(Problem::new(setting.key, fault))
        });
        let rules = RULES.iter();
        let rules = rules.filter_map(|rule| rule.problem(self, &values));
        ranges.chain(rules).collect()
    }

    /// Returns the keys that have a range or decide the batches' bytes, for docs/configuration.md: a line for each, with
    /// its range, and `kept` where the bytes depend on it.
    pub(crate) fn described() -> String {
        let line = |setting: &Setting| {
            let kept = if setting.can_decide() { "kept" } else { "" };
            format!("{}\t{}\t{kept}\n", setting.key, setting.range())
        };
        TABLE.iter().map(line).collect()
    }

    /// Returns the keys of one value that decide the batches' bytes and are not pinned by stream.json, with their values.
    pub(crate) fn decisive(&self) -> Vec<(&'static str, Value)> {
        let values = Values::of(self);
        let decisive = TABLE
            .iter()
            .filter(|setting| setting.is_decisive(self, values.is_set(setting.key)));
        decisive
            .map(|setting| (setting.key, values.get(setting.key).clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_described_table_names_ranges_and_keys_that_a_stream_keeps() {
        let text = ProducerConfig::described();
        for line in [
            "packing.look_ahead\t1 to 8192\tkept",
            "upload.concurrency\t1 to 256\t",
            "chat.roles\t\tkept",
        ] {
            assert!(text.lines().any(|described| described == line), "{text}");
        }
    }

    #[test]
    fn each_key_of_the_table_and_of_the_rules_exists_and_has_one_row() {
        let values = Values::of(&ProducerConfig::default());
        let mut keys: Vec<&str> = TABLE.iter().map(|setting| setting.key).collect();
        // An absent optional value is null too, so its table must have the name.
        let exists = |key: &str| {
            let (table, name) = key.rsplit_once('.').unwrap();
            values
                .get(table)
                .as_object()
                .is_some_and(|table| table.contains_key(name))
        };
        for key in keys
            .iter()
            .copied()
            .chain(RULES.iter().map(|rule| rule.key))
        {
            assert!(exists(key), "{key}");
        }
        keys.sort_unstable();
        let all = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }
}
