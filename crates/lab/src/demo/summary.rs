//! The summary of the demo: a table, or one JSON object.

use std::time::Duration;

use super::aftermath::Aftermath;
use super::checker::Differences;
use super::corpus::Corpus;
use super::mixture::producer_name;
use super::setup::{JOB, KEEP};
use batchweave_console::output::{bytes, count};
use batchweave_daemon::figures::grouped as group;

/// The figures of a run.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) verdict: Differences,
    pub(crate) aftermath: Aftermath,
    pub(crate) corpus: Corpus,
    /// The first batch of each producer after the change of the mixture.
    pub(crate) mixture: Option<Vec<Option<u64>>>,
    pub(crate) ranks: usize,
    pub(crate) seed: u64,
    pub(crate) store: String,
    /// Port of the consumer daemon's admin endpoint.
    pub(crate) admin: u16,
    /// The step at which the ranks stopped, if they were asked to.
    pub(crate) until: Option<u64>,
    pub(crate) elapsed: Duration,
    pub(crate) producer_restarts: u32,
    pub(crate) consumer_restarts: u32,
    pub(crate) rank_restarts: u32,
    pub(crate) bytes_fetched: f64,
    pub(crate) bytes_needed: f64,
    pub(crate) data_requests: f64,
    pub(crate) waits: Vec<f64>,
}

impl Summary {
    fn amplification(&self) -> f64 {
        ratio(self.bytes_fetched, self.bytes_needed)
    }

    fn requests_per_step(&self) -> f64 {
        ratio(self.data_requests, self.verdict.steps as f64)
    }

    fn tokens_per_second(&self) -> f64 {
        ratio(self.verdict.tokens as f64, self.elapsed.as_secs_f64())
    }

    /// Returns the 99th percentile of the ranks' waits.
    fn wait_p99(&self) -> f64 {
        let mut waits = self.waits.clone();
        waits.sort_by(f64::total_cmp);
        let at = (waits.len() * 99).div_ceil(100).saturating_sub(1);
        waits.get(at).copied().unwrap_or(0.0)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "steps": self.verdict.steps,
            "ranks": self.ranks,
            "tokens": self.verdict.tokens,
            "documents": self.verdict.documents,
            "mismatches": self.verdict.mismatches,
            "mixture_from": self.mixture,
            "examples": self.verdict.examples,
            "verify_job": if self.aftermath.contradiction.is_none() { "proved" } else { "contradiction" },
            "contradiction": self.aftermath.contradiction,
            "steps_proved": self.aftermath.proved_steps,
            "steps_reclaimed": self.aftermath.reclaimed,
            "bytes_kept": self.aftermath.kept_bytes,
            "producer_restarts": self.producer_restarts,
            "consumer_restarts": self.consumer_restarts,
            "rank_restarts": self.rank_restarts,
            "read_amplification": round(self.amplification(), 4),
            "requests_per_step": round(self.requests_per_step(), 3),
            "rank_wait_p99_seconds": round(self.wait_p99(), 6),
            "tokens_per_second": self.tokens_per_second().round(),
            "seconds": round(self.elapsed.as_secs_f64(), 2),
            "corpus_bytes": self.corpus.bytes,
            "corpus_documents": self.corpus.documents,
            "store": self.store,
            "seed": self.seed,
        })
    }

    fn proved(&self) -> String {
        let a = &self.aftermath;
        match &a.contradiction {
            None => format!(
                "proved by {JOB}'s ledgers: steps 0..{}, each to all {} ranks once, in order",
                a.proved_to.saturating_sub(1),
                self.ranks
            ),
            Some(why) => format!("NOT PROVED: {why}"),
        }
    }

    /// Says where the mixture of the sources changed.
    fn mixture(&self) -> String {
        let Some(from) = &self.mixture else {
            return "one mixture to the end".to_owned();
        };
        let of = |(number, from): (usize, &Option<u64>)| match from {
            Some(batch) => format!("from batch {batch} of {}", producer_name(number)),
            None => format!(
                "not for {}, which had made all its batches by then",
                producer_name(number)
            ),
        };
        let all: Vec<String> = from.iter().enumerate().map(of).collect();
        format!("changed {}, to the document", all.join(" and "))
    }

    fn reclaimed(&self) -> String {
        let a = &self.aftermath;
        format!(
            "{} of {} steps; {} are kept for the last {KEEP} checkpoints",
            group(a.reclaimed),
            group(a.head),
            bytes(a.kept_bytes)
        )
    }

    /// Says how many documents reached the ranks whole, and where the others are.
    fn documents(&self) -> String {
        let (whole, all) = (self.verdict.documents, self.corpus.documents);
        let megabytes = self.corpus.bytes as f64 / 1e6;
        let rest = all.saturating_sub(whole);
        let others = if rest == 1 {
            "the other one"
        } else {
            "the others"
        };
        let why = match (rest, self.until) {
            (0, _) => {
                return format!(
                    "{}, all of them whole ({megabytes:.1} MB of text)",
                    group(all)
                );
            }
            (_, Some(step)) => format!("{others} come after step {step}, where the ranks stopped"),
            (_, None) => format!("{others} came last, and do not fill a batch"),
        };
        format!(
            "{} of {} whole ({megabytes:.1} MB of text); {why}",
            group(whole),
            group(all)
        )
    }

    fn proof(&self) -> String {
        let v = &self.verdict;
        if v.mismatches == 0 {
            return "every rank got every token once, in order".to_owned();
        }
        let first = v.examples.first().cloned().unwrap_or_default();
        format!("{} differences, the first: {first}", v.mismatches)
    }

    fn tokens(&self) -> String {
        let rate = group(self.tokens_per_second() as u64);
        format!("{} ({rate} per second)", group(self.verdict.tokens))
    }

    fn kills(&self) -> String {
        let producers = count(self.producer_restarts.into(), "producer");
        let daemons = count(self.consumer_restarts.into(), "consumer daemon");
        let ranks = count(self.rank_restarts.into(), "rank");
        format!("{producers}, {daemons}, {ranks}")
    }

    pub(crate) fn table(&self) -> String {
        let v = &self.verdict;
        let rows = [
            ("proof", self.proof()),
            ("verify --job", self.proved()),
            ("reclaimed", self.reclaimed()),
            (
                "global batches",
                format!("{} steps, read by {} ranks", group(v.steps), self.ranks),
            ),
            ("tokens", self.tokens()),
            ("documents", self.documents()),
            ("mixture of sources", self.mixture()),
            ("killed with SIGKILL", self.kills()),
            (
                "read from the store",
                format!("{:.3} bytes for each byte needed", self.amplification()),
            ),
            (
                "data requests",
                format!("{:.2} per step", self.requests_per_step()),
            ),
            (
                "a rank waited",
                format!("{:.2} ms or less in 99 of 100 reads", self.wait_p99() * 1e3),
            ),
            (
                "time, store, seed",
                format!(
                    "{:.1} s, {}, {}",
                    self.elapsed.as_secs_f64(),
                    self.store,
                    self.seed
                ),
            ),
        ];
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let lines: Vec<_> = rows
            .iter()
            .map(|(name, value)| format!("  {name:<width$}   {value}"))
            .collect();
        format!(
            "\n{}\n\n\
             The checker tokenized the documents again with another library, in an order that it\n\
             computed by itself, and compared every token of every rank. Next: README.md, then docs/architecture.md; your own text with\n\
             `batchweave demo --input PATH`; the stream and its status page with `batchweave demo --keep`;\n\
             the daemons by hand in docs/first-steps.md.",
            lines.join("\n")
        )
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

fn round(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}
