//! The contents of the consumer's status page.

use batchweave_daemon::admin::{Plot, StatusPage, Table};

pub(crate) const STATUS_PAGE: StatusPage = StatusPage {
    program: "batchweave-consumer",
    version: env!("CARGO_PKG_VERSION"),
    plots: &[
        Plot {
            title: "Tokens delivered",
            metric: "batchweave_consumer_frames_delivered_total",
            scale: Some("batchweave_consumer_slice_tokens"),
        },
        Plot {
            title: "Bytes fetched",
            metric: "batchweave_consumer_fetched_bytes_total",
            scale: None,
        },
        Plot {
            title: "Seconds that ranks waited",
            metric: "batchweave_consumer_rank_wait_seconds_total",
            scale: None,
        },
    ],
    tables: &[
        Table {
            title: "Positions of ranks",
            about: "Their next steps, the steps read ahead of them, and the frames that they hold.",
            metrics: &[
                "batchweave_consumer_head_step",
                "batchweave_consumer_watermark_step",
                "batchweave_consumer_rank_step",
                "batchweave_consumer_ahead_steps",
                "batchweave_consumer_held_frames",
            ],
        },
        Table {
            title: "Waiting time by cause",
            about: "Seconds since the start, by rank and cause.",
            metrics: &["batchweave_consumer_rank_wait_seconds_total"],
        },
        Table {
            title: "Memory",
            about: "The arena, and the bytes in it that no rank holds.",
            metrics: &[
                "batchweave_consumer_arena_bytes",
                "batchweave_consumer_ahead_bytes",
            ],
        },
        Table {
            title: "Jobs and checkpoints",
            about: "Attempts, marks, and the watermark.",
            metrics: &[
                "batchweave_consumer_attempt",
                "batchweave_consumer_marks_total",
                "batchweave_consumer_incomplete_marks",
                "batchweave_consumer_awaited_lane",
                "batchweave_reclaim_watermark_step",
                "batchweave_reclaim_bytes_total",
            ],
        },
        Table {
            title: "Store",
            about: "Requests and failures since the start.",
            metrics: &[
                "batchweave_consumer_store_requests_total",
                "batchweave_consumer_store_errors_total",
                "batchweave_consumer_checksum_failures_total",
            ],
        },
    ],
};
