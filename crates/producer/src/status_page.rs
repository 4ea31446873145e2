//! The plots and tables of the producer's status page.

use batchweave_daemon::admin::{Plot, StatusPage, Table};

pub(crate) const STATUS_PAGE: StatusPage = StatusPage {
    program: "batchweave-producer",
    version: env!("CARGO_PKG_VERSION"),
    plots: &[
        Plot {
            title: "Tokens produced",
            metric: "batchweave_producer_tokens_total",
            scale: None,
        },
        Plot {
            title: "Batches made visible",
            metric: "batchweave_producer_tgbs_total",
            scale: None,
        },
        Plot {
            title: "Bytes uploaded",
            metric: "batchweave_producer_object_bytes_total",
            scale: None,
        },
    ],
    tables: &[
        Table {
            title: "Progress",
            about: "Batches of this producer, and the head of the stream.",
            metrics: &[
                "batchweave_producer_batches",
                "batchweave_producer_head_step",
                "batchweave_producer_log_version",
                "batchweave_producer_documents_total",
                "batchweave_producer_bad_documents_total",
            ],
        },
        Table {
            title: "Commits",
            about: "Races for the log; the latency is the mean.",
            metrics: &[
                "batchweave_producer_commit_latency_seconds",
                "batchweave_producer_commits_total",
                "batchweave_producer_lost_commits_total",
                "batchweave_producer_combined_entries_total",
                "batchweave_producer_announced_entries_total",
                "batchweave_producer_leading",
            ],
        },
        Table {
            title: "Held back",
            about: "By the limits of [ahead]; the line above names the job.",
            metrics: &[
                "batchweave_producer_held",
                "batchweave_producer_held_seconds_total",
                "batchweave_producer_ahead_steps",
                "batchweave_producer_ahead_bytes",
            ],
        },
        Table {
            title: "Store",
            about: "Requests and failures since the start.",
            metrics: &[
                "batchweave_producer_store_requests_total",
                "batchweave_producer_store_errors_total",
            ],
        },
    ],
};
