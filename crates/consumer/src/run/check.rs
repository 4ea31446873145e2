//! `--check`: opens everything that the configuration names, as a start does, and changes nothing.

use std::fmt::Write as _;
use std::sync::Arc;

use batchweave_arena::{MemoryLimits, SocketPath, check_socket};
use batchweave_core::stream::StreamConfig;
use batchweave_daemon::check::{Findings, open_store};
use batchweave_log::{Log, LogError, LogOptions};
use batchweave_store::Store;
use futures::future::BoxFuture;

use crate::config::ConsumerConfig;
use crate::error::RunError;
use crate::job::attempts::check_job;
use crate::node::stages::too_large;
use crate::segments::{self, SegmentMaker};

/// Bytes of the smallest token.
const TOKEN_BYTES: u64 = 2;

/// Opens everything that `config` names and returns what it found. Leaves nothing behind.
pub fn check(config: ConsumerConfig) -> BoxFuture<'static, Findings> {
    Box::pin(open_everything(config))
}

async fn open_everything(config: ConsumerConfig) -> Findings {
    let mut findings = Findings::default();
    match Box::pin(open_store(&config.store.url, &config.store.options())).await {
        Ok(store) => {
            findings.opened("store", format!("{}: readable", store.root()));
            Box::pin(check_stream(store, &config, &mut findings)).await;
        }
        // As at a start, which waits for the folder.
        Err(why) if why.is_no_folder() => {
            let url = &config.store.url;
            findings.opened(
                "store",
                format!("{url}: no folder yet: a producer creates it"),
            );
        }
        Err(why) => findings.fault("store.url", why),
    }
    check_arena(&config, &mut findings);
    let path = config.socket.path.display();
    match check_socket(&config.socket.path) {
        Ok(SocketPath::Free) => findings.opened("socket", format!("{path}: can be made")),
        Ok(SocketPath::Served) => {
            let text = format!("{path}: a daemon serves it now; stop that one before a start");
            findings.opened("socket", text);
        }
        Err(why) => findings.fault("socket", why),
    }
    findings
}

async fn check_stream(store: Arc<dyn Store>, config: &ConsumerConfig, findings: &mut Findings) {
    let options = LogOptions {
        write_snapshots: false,
        ..LogOptions::new(rand::random())
    };
    let log = match Log::open(store, &options).await {
        Ok(log) => log,
        Err(LogError::NoStream { .. }) => {
            let text =
                "none yet: the daemon waits until a producer or `batchweave init` creates it";
            findings.opened("stream", text);
            return;
        }
        Err(why) => return findings.fault("store.url", why),
    };
    let (manifest, stream) = (log.manifest(), log.manifest().stream());
    let StreamConfig {
        slices,
        rows_per_slice,
        seq_len,
        ..
    } = stream;
    let text = format!(
        "{slices} slices x {rows_per_slice} {}s x {seq_len} tokens, {} steps",
        stream.row_name(),
        manifest.next_step()
    );
    findings.opened("stream", text);
    check_segment(stream, config, findings);
    if let Some((name, bytes)) = too_large(manifest.stages(), config.arena.segment().bytes()) {
        let text = format!(
            "{} is less than a slice of stage {name:?}, which has at least {bytes} bytes; raise it to a whole number of MiB above \
             that, and arena.bytes with it",
            config.arena.segment()
        );
        findings.fault("arena.segment_bytes", text);
    }
    let served = config.job.served().iter();
    for name in served.filter(|_| config.job.open) {
        match check_job(manifest, name, &config.job) {
            Ok(true) => findings.opened("job", format!("{name}: open")),
            Ok(false) => findings.opened("job", format!("{name}: a start opens it")),
            Err(why) => findings.fault("job", why),
        }
    }
}

/// Checks that a segment of the arena holds a slice of the stream.
fn check_segment(stream: &StreamConfig, config: &ConsumerConfig, findings: &mut Findings) {
    let row_tokens = u64::from(stream.seq_len) + 1;
    let smallest = u64::from(stream.rows_per_slice) * row_tokens * TOKEN_BYTES;
    if smallest > config.arena.segment().bytes() {
        let text = format!(
            "{} is less than a slice of this stream, which has at least {smallest} bytes; raise it to a whole number \
             of MiB above that, and arena.bytes with it",
            config.arena.segment()
        );
        findings.fault("arena.segment_bytes", text);
    }
}

/// Checks that an arena of the configured size can exist, and makes its first segment for a moment.
fn check_arena(config: &ConsumerConfig, findings: &mut Findings) {
    if let Err(why) = segments::check_node(&config.arena).map_err(RunError::NoNumaNode) {
        findings.fault("arena.numa_node", why);
        return;
    }
    let maker = match SegmentMaker::new(&config.arena).map_err(RunError::ArenaTooLarge) {
        Ok(maker) => maker,
        Err(why) => return findings.fault("arena.bytes", why),
    };
    if let Err(why) = maker.create() {
        return findings.fault("arena.bytes", why);
    }
    let bytes = maker.bytes();
    let mut text = format!("{bytes} bytes in segments of {}", config.arena.segment());
    let free = MemoryLimits::default().headroom();
    if let Some(free) = free.filter(|free| free.left < bytes) {
        let _ = write!(
            text,
            "; only {} bytes are free now ({}): it cannot grow to its full size until others free memory",
            free.left, free.place
        );
    }
    findings.opened("arena", text);
}
