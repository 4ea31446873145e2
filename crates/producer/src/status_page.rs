//! The plots and tables of the producer's status page.

use batchweave_daemon::admin::{Plot, StatusPage, Table};

pub(crate) const STATUS_PAGE: StatusPage = StatusPage {
    program: "batchweave-producer",
    version: env!("CARGO_PKG_VERSION"),
    plots: &[
        Plot {
            title: "Produced",
            unit: "tokens",
            metric: "batchweave_producer_tokens_total",
            scale: None,
        },
        Plot {
            title: "Made visible",
            unit: "batches",
            metric: "batchweave_producer_tgbs_total",
            scale: None,
        },
        Plot {
            title: "Uploaded to the store",
            unit: "bytes",
            metric: "batchweave_producer_object_bytes_total",
            scale: None,
        },
    ],
    ranks: None,
    held: Some("batchweave_producer_held"),
    jobs: None,
    tables: &[
        Table {
            title: "Batches and documents",
            about: "Of this producer, and the head of the stream.",
            metrics: &[
                (
                    "batchweave_producer_batches",
                    "batches of this producer in the stream",
                ),
                (
                    "batchweave_producer_head_step",
                    "first step not committed yet",
                ),
                (
                    "batchweave_producer_documents_total",
                    "documents since the start",
                ),
                (
                    "batchweave_producer_bad_documents_total",
                    "bad documents left out",
                ),
            ],
        },
        Table {
            title: "Commits",
            about: "Races for the log; the latency is the mean.",
            metrics: &[
                (
                    "batchweave_producer_commit_latency_seconds",
                    "from durable to visible",
                ),
                ("batchweave_producer_commits_total", "records written"),
                (
                    "batchweave_producer_lost_commits_total",
                    "races lost to another writer",
                ),
                (
                    "batchweave_producer_combined_entries_total",
                    "commits made for others",
                ),
                (
                    "batchweave_producer_announced_entries_total",
                    "commits left to others",
                ),
                ("batchweave_producer_leading", "commits for the others now"),
                ("batchweave_producer_log_version", "last record written"),
            ],
        },
        Table {
            title: "Held back",
            about: "By the limits of [ahead]; the line at the top names the job.",
            metrics: &[
                (
                    "batchweave_producer_held_seconds_total",
                    "held back since the start",
                ),
                (
                    "batchweave_producer_ahead_steps",
                    "steps that the slowest job has not received",
                ),
                ("batchweave_producer_ahead_bytes", "bytes of these steps"),
            ],
        },
        Table {
            title: "Store",
            about: "Requests and failures since the start.",
            metrics: &[
                ("batchweave_producer_store_requests_total", "requests"),
                ("batchweave_producer_store_errors_total", "failed requests"),
            ],
        },
    ],
};
