//! `bench reclaim`: the bytes that a run keeps in the store, step by step, and the cost of reclaiming the
//! rest. A producer, a job with checkpoints and a reclaimer on the embedded S3 server; every object is
//! really uploaded, listed and deleted, and the bytes are accounted exactly.

mod run;

use std::sync::Arc;

use batchweave_core::ids::Step;
use batchweave_core::keys;
use batchweave_dev_s3::{Options, Server};
use batchweave_log::reclaim::{Class, Limits, ReclaimReport as Pass, Reclaimer};
use batchweave_log::{Log, LogOptions};
use batchweave_store::counting::{Counted, Counts};
use batchweave_store::{AccessKeys, Op, OpenOptions, Store};
use clap::Args;
use serde::Serialize;

use crate::error::bench_error;
use batchweave_console::CliError;
use batchweave_console::output::bytes;
use run::{OBJECT_TGBS, STEP_BYTES, SimulatedRun};

/// Dollars per request, as S3 Standard charges: LIST and PUT, GET. DELETE is free.
const LIST_DOLLARS: f64 = 5e-6;
const GET_DOLLARS: f64 = 4e-7;

#[derive(Debug, Clone, Args)]
pub(crate) struct ReclaimArgs {
    /// Number of steps in the run
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1000..=1_000_000))]
    steps: u64,
    /// Steps from one checkpoint to the next
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(20..=100_000))]
    interval: u64,
    /// Checkpoints that the job keeps
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    keep: u32,
    /// Number of steps that the producer is ahead
    #[arg(long, default_value_t = 200)]
    ahead: u64,
    /// Reclaimer passes per checkpoint interval
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=20))]
    passes: u64,
}

/// Stored bytes of data when the job was at a step.
#[derive(Debug, Clone, Copy, Serialize)]
struct Sample {
    step: Step,
    stored_bytes: u64,
}

/// Requests of the reclaimer.
#[derive(Debug, Serialize)]
struct Cost {
    /// Reads of the log, which every reader of it makes; not counted below.
    log_gets: u64,
    lists: u64,
    gets: u64,
    puts: u64,
    deletes: u64,
    requests_per_tgb: f64,
    dollars_per_million_tgbs: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct ReclaimReport {
    steps: u64,
    interval: u64,
    keep: u32,
    ahead: u64,
    step_bytes: u64,
    tgbs_per_object: u64,
    uploaded_bytes: u64,
    /// Upper bound: (keep + 1) intervals, the steps ahead, and neighbours in the same objects.
    bound_bytes: u64,
    most_bytes: u64,
    end_bytes: u64,
    reclaimer: Cost,
    #[serde(flatten)]
    passes: Reclaimed,
}

pub(crate) async fn measure(args: &ReclaimArgs) -> Result<ReclaimReport, CliError> {
    let server = Server::start(Options::default())
        .await
        .map_err(bench_error)?;
    let store = store(&server).await?;
    let counted = Counted::with_classes(Arc::clone(&store), &keys::CLASSES);
    let mut run = SimulatedRun::new(&store, args.keep).await?;
    let mut log = open_log(Arc::new(counted.clone())).await?;
    let before = requests(&counted);
    let mut passes = Reclaimed::default();
    let mut reclaimer = Reclaimer::new();
    let every = (args.interval / args.passes).max(1);
    for at in 1..=args.steps {
        run.commit_up_to((at + args.ahead).min(args.steps)).await?;
        let marked = at.is_multiple_of(args.interval);
        if marked || at.is_multiple_of(every) || at == args.steps {
            run.progress(at, marked).await?;
            let pass = reclaimer.pass(&mut log, Limits::default()).await?;
            passes.sample(at, &run);
            passes.take(&pass, &run)?;
        }
        passes.sample(at, &run);
    }
    let now = requests(&counted);
    let (cost, log_gets) = (now.0.since(&before.0), now.1 - before.1);
    server.shutdown().await;
    let report = passes.report(args, &run, cost, log_gets);
    if report.most_bytes > report.bound_bytes {
        let (most, bound) = (bytes(report.most_bytes), bytes(report.bound_bytes));
        return Err(bench_error(format!("{most} stored, more than {bound}")));
    }
    Ok(report)
}

/// Opens a log that writes no snapshots: their requests would be counted as the reclaimer's.
async fn open_log(store: Arc<dyn Store>) -> Result<Log, CliError> {
    let options = LogOptions {
        write_snapshots: false,
        ..LogOptions::new([9; 32])
    };
    Ok(Log::open(store, &options).await?)
}

/// Returns all requests, and the number of log reads among them.
fn requests(counted: &Counted) -> (Counts, u64) {
    let by_class = counted.by_class();
    let log = by_class.iter().find(|(class, _)| *class == "log");
    let gets = log.map_or(0, |(_, counts)| counts.of(Op::Get).requests);
    (counted.counts(), gets)
}

async fn store(server: &Server) -> Result<Arc<dyn Store>, CliError> {
    let served = Options::default();
    let options = OpenOptions {
        endpoint: Some(server.endpoint()),
        region: Some("us-east-1".to_owned()),
        keys: Some(AccessKeys {
            id: served.access_key,
            secret: served.secret_key,
        }),
        ..OpenOptions::default()
    };
    Ok(batchweave_store::open("s3://batchweave/bench", &options).await?)
}

/// The passes of the reclaimer, and the stored bytes after each step.
#[derive(Debug, Default, Serialize)]
struct Reclaimed {
    passes: u64,
    records: u64,
    watermark: Step,
    deleted_bytes: u64,
    deleted_objects: u64,
    /// Number of times that the store's listing was compared with uploads less deletions.
    audits: u64,
    samples: Vec<Sample>,
}

impl ReclaimArgs {
    /// Returns the most steps that are stored at a time.
    fn steps_kept(&self) -> u64 {
        u64::from(self.keep + 1) * self.interval + self.ahead
    }
}

impl Cost {
    fn for_the_run(args: &ReclaimArgs, cost: &Counts, log_gets: u64) -> Self {
        let of = |op| cost.of(op).requests;
        let (lists, puts) = (of(Op::List), of(Op::Create));
        let gets = of(Op::Get) + of(Op::Head) - log_gets;
        let dollars = (lists + puts) as f64 * LIST_DOLLARS + gets as f64 * GET_DOLLARS;
        let tgbs = args.steps as f64;
        Self {
            log_gets,
            lists,
            gets,
            puts,
            deletes: of(Op::Delete),
            requests_per_tgb: (cost.requests() - log_gets) as f64 / tgbs,
            dollars_per_million_tgbs: dollars / tgbs * 1e6,
        }
    }
}

impl Reclaimed {
    fn stored(&self, run: &SimulatedRun) -> u64 {
        run.uploaded_bytes() - self.deleted_bytes
    }

    fn sample(&mut self, step: Step, run: &SimulatedRun) {
        let stored_bytes = self.stored(run);
        self.samples.push(Sample { step, stored_bytes });
    }

    /// Checks that the pass listed exactly the uploaded objects less those deleted before it, then adds its
    /// result.
    fn take(&mut self, pass: &Pass, run: &SimulatedRun) -> Result<(), CliError> {
        let seen = pass.totals.get(&Class::Data).copied().unwrap_or_default();
        let listed = seen.needed.bytes + seen.uncommitted.bytes + seen.dead.bytes;
        if listed != self.stored(run) || seen.foreign.objects > 0 || pass.refused_keys > 0 {
            let stored = self.stored(run);
            let text = format!("the store lists {listed} bytes, {stored} are accounted for");
            return Err(bench_error(text));
        }
        self.audits += 1;
        self.passes += 1;
        self.records += u64::from(pass.published.is_some());
        self.watermark = pass.watermark;
        let deleted = pass.deleted.get(&Class::Data).copied().unwrap_or_default();
        self.deleted_bytes += deleted.bytes;
        self.deleted_objects += deleted.objects;
        Ok(())
    }

    fn report(
        self,
        args: &ReclaimArgs,
        run: &SimulatedRun,
        cost: Counts,
        log_gets: u64,
    ) -> ReclaimReport {
        ReclaimReport {
            steps: args.steps,
            interval: args.interval,
            keep: args.keep,
            ahead: args.ahead,
            step_bytes: STEP_BYTES,
            tgbs_per_object: OBJECT_TGBS,
            uploaded_bytes: run.uploaded_bytes(),
            bound_bytes: (args.steps_kept() + 2 * OBJECT_TGBS) * STEP_BYTES,
            most_bytes: self
                .samples
                .iter()
                .map(|s| s.stored_bytes)
                .max()
                .unwrap_or(0),
            end_bytes: self.stored(run),
            reclaimer: Cost::for_the_run(args, &cost, log_gets),
            passes: self,
        }
    }
}

impl ReclaimReport {
    /// Formats the report as text.
    pub(crate) fn text(&self) -> String {
        let (cost, passes) = (&self.reclaimer, &self.passes);
        format!(
            "{} steps of {}, a checkpoint every {}, {} kept, {} ahead: {} passes, {} watermarks\n\
             uploaded   {}\n\
             deleted    {} in {} objects; the watermark is at {}\n\
             stored     {} at most, of {} allowed: (keep + 1) intervals and what is ahead\n\
             audited    {} times the store's listing was uploads less deletions, to the byte\n\
             requests   {} LIST, {} GET, {} PUT, {} DELETE by the reclaimer: {:.4} per TGB, ${:.3} per million\n\
             following  {} GET of the log",
            self.steps,
            bytes(self.step_bytes),
            self.interval,
            self.keep,
            self.ahead,
            passes.passes,
            passes.records,
            bytes(self.uploaded_bytes),
            bytes(passes.deleted_bytes),
            passes.deleted_objects,
            passes.watermark,
            bytes(self.most_bytes),
            bytes(self.bound_bytes),
            passes.audits,
            cost.lists,
            cost.gets,
            cost.puts,
            cost.deletes,
            cost.requests_per_tgb,
            cost.dollars_per_million_tgbs,
            cost.log_gets,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Like the long run of docs/performance.md: accounted to the byte and within the bound.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_short_run_is_accounted_to_the_byte() {
        let args = ReclaimArgs {
            steps: 1000,
            interval: 100,
            keep: 2,
            ahead: 40,
            passes: 2,
        };
        let report = Box::pin(measure(&args)).await.unwrap();
        assert_eq!((report.passes.watermark, report.passes.audits), (900, 20));
        assert_eq!(report.uploaded_bytes, 1000 * STEP_BYTES);
        assert_eq!(report.end_bytes, 100 * STEP_BYTES);
        assert_eq!(report.passes.deleted_bytes, 900 * STEP_BYTES);
        // Two intervals, and the steps ahead when the second mark is made.
        assert_eq!(report.most_bytes, (2 * 100 + 40) * STEP_BYTES);
        assert!(report.most_bytes < report.bound_bytes);
        assert!(report.reclaimer.requests_per_tgb < 1.0);
        assert!(report.text().contains("audited    20 times"));
    }
}
