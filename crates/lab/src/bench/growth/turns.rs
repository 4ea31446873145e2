//! CPU time of late commits compared with early ones, measured alternately so that other load on the
//! machine affects both.

use std::sync::Arc;

use batchweave_core::ids::Version;
use batchweave_core::limits::SEGMENT_STEPS;
use batchweave_store::Store;

use super::below::Below;
use super::latent::{Delay, Latent};
use crate::bench::cpu::{median, thread_time};
use crate::bench::stream::Growing;
use batchweave_console::CliError;

/// The version at which the early window begins: the first snapshot and segment that the hundredth
/// commit has a share in are written within the window, as in every later window.
pub(super) const EARLY: Version = 300;
/// Commits between two points at which snapshots and segments are equally far.
pub(super) const PERIOD: u64 = SEGMENT_STEPS;

/// Medians over the turns.
#[derive(Debug, Default)]
pub(super) struct Cpu {
    pub(super) early_us: f64,
    pub(super) late_us: f64,
    /// Late over early, within one turn.
    pub(super) ratio: f64,
}

/// Grows `long` from version `late` on by `turns` periods. Between them grows as many new streams by one
/// period each, from the start of the early window.
pub(super) async fn in_turns(
    long: &mut Growing,
    late: Version,
    turns: u64,
    store: &Arc<dyn Store>,
) -> Result<Cpu, CliError> {
    let (mut early, mut later, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..turns {
        let below = Below::over(store, &format!("short-{turn}"));
        let counted: Arc<dyn Store> = Latent::new(&below, Delay::None);
        let mut short = Box::pin(Growing::new(&counted)).await?;
        short.grow(EARLY, &[]).await?;
        let to = late + (turn + 1) * PERIOD;
        // The order alternates from turn to turn.
        let (short_us, long_us) = if turn % 2 == 0 {
            let short_us = period(&mut short, EARLY + PERIOD).await?;
            (short_us, period(long, to).await?)
        } else {
            let long_us = period(long, to).await?;
            (period(&mut short, EARLY + PERIOD).await?, long_us)
        };
        early.push(short_us);
        later.push(long_us);
        ratios.push(long_us / short_us);
        short.settle().await?;
    }
    Ok(Cpu {
        early_us: median(&early, |us| *us),
        late_us: median(&later, |us| *us),
        ratio: median(&ratios, |ratio| *ratio),
    })
}

/// Returns microseconds of CPU time per commit, up to `version`.
async fn period(growing: &mut Growing, version: Version) -> Result<f64, CliError> {
    let before = thread_time()?;
    growing.grow(version, &[]).await?;
    let took = thread_time()?.saturating_sub(before);
    Ok(took.as_secs_f64() * 1e6 / PERIOD as f64)
}
