//! The contents of the consumer's status page.

use batchweave_daemon::admin::{Plot, Ranks, Stages, StatusPage, Table};

pub(crate) const STATUS_PAGE: StatusPage = StatusPage {
    program: "batchweave-consumer",
    version: env!("CARGO_PKG_VERSION"),
    plots: &[
        Plot {
            title: "Delivered",
            unit: "tokens",
            metric: "batchweave_consumer_frames_delivered_total",
            scale: Some("batchweave_consumer_slice_tokens"),
        },
        Plot {
            title: "Fetched from the store",
            unit: "bytes",
            metric: "batchweave_consumer_fetched_bytes_total",
            scale: None,
        },
        // Seconds of waiting per second: the mean number of ranks that wait.
        Plot {
            title: "Ranks that wait for data",
            unit: "ranks",
            metric: "batchweave_consumer_rank_wait_seconds_total",
            scale: None,
        },
    ],
    ranks: Some(Ranks {
        head: "batchweave_consumer_head_step",
        step: "batchweave_consumer_rank_step",
        ahead: "batchweave_consumer_ahead_steps",
        held: "batchweave_consumer_held_frames",
        delivered: "batchweave_consumer_steps_delivered_total",
        waits: "batchweave_consumer_rank_wait_seconds_total",
        stages: Stages {
            metric: "batchweave_consumer_stage_seconds",
            names: &["wait", "fetch", "crc", "handover"],
        },
    }),
    held: None,
    jobs: Some("batchweave_consumer_attempt"),
    tables: &[
        Table {
            title: "Stream",
            about: "Steps that are committed, and the first that is still stored.",
            metrics: &[
                (
                    "batchweave_consumer_head_step",
                    "first step not committed yet",
                ),
                (
                    "batchweave_consumer_watermark_step",
                    "first step still stored",
                ),
                (
                    "batchweave_consumer_awaited_lane",
                    "producer whose turn it is",
                ),
            ],
        },
        Table {
            title: "Waiting time by cause",
            about: "Seconds since the start, by rank and cause.",
            metrics: &[("batchweave_consumer_rank_wait_seconds_total", "waited")],
        },
        Table {
            title: "Memory",
            about: "The arena, and the bytes in it that no rank holds.",
            metrics: &[
                ("batchweave_consumer_arena_bytes", "shared memory"),
                ("batchweave_consumer_ahead_bytes", "read ahead"),
            ],
        },
        Table {
            title: "Jobs and checkpoints",
            about: "Attempts, marks of checkpoints, and reclaimed storage.",
            metrics: &[
                ("batchweave_consumer_attempt", "current attempt"),
                ("batchweave_consumer_marks_total", "marks"),
                (
                    "batchweave_consumer_incomplete_marks",
                    "marks that lack ranks",
                ),
                (
                    "batchweave_reclaim_watermark_step",
                    "storage reclaimed up to step",
                ),
                ("batchweave_reclaim_bytes_total", "storage reclaimed"),
            ],
        },
        Table {
            title: "What the model says",
            about: "Losses that ranks reported: the mean of about the last 64, by number of the source.",
            metrics: &[
                ("batchweave_consumer_loss", "loss of a token"),
                (
                    "batchweave_consumer_trained_step",
                    "newest step that was trained",
                ),
                ("batchweave_consumer_values_total", "losses of steps"),
            ],
        },
        Table {
            title: "Store",
            about: "Requests and failures since the start.",
            metrics: &[
                ("batchweave_consumer_store_requests_total", "requests"),
                ("batchweave_consumer_store_errors_total", "failed requests"),
                (
                    "batchweave_consumer_checksum_failures_total",
                    "wrong bytes, read again",
                ),
            ],
        },
    ],
};
