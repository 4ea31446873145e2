//! The plan of the sources: the order of each one, and its blocks.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_core::order::{
    Portion, SamplerOptions, SamplerState, SourceOrder, WeightError, weights,
};

use super::inputs::share;
use super::reading::read_options;
use crate::config::{NamedSource, ProducerConfig, ShuffleConfig};
use crate::error::RunError;
use crate::sources::{
    BlockOrders, InputFile, InputList, ReadOptions, ReadOrder, SourcePlan, plan_blocks,
};

/// Plans the sources of `inputs`, and notes in its pins how documents are numbered. `state` is the place of the sampler:
/// growths before it are not read again. The first source is read in the order of its files if `file_order` says so.
pub(super) async fn plan(
    config: &ProducerConfig,
    end_token: Option<u32>,
    inputs: &mut InputList,
    state: Option<&SamplerState>,
    file_order: bool,
) -> Result<Vec<Arc<SourcePlan>>, RunError> {
    let mut plans = Vec::new();
    for (n, source) in config.all_sources().iter().enumerate() {
        let mut options = read_options(&config.with_source(source), end_token);
        let order = if file_order && n == 0 {
            if !source.grows() {
                // Of input that grows, whole files are shared, and the finder has selected them.
                options.share = share(config);
            }
            ReadOrder::Files
        } else {
            let at = state.and_then(|state| state.at.get(n));
            let pass = at.map_or(0, |at| at.position.pass);
            ReadOrder::Blocks(blocks(config, source, &options, inputs, pass).await?)
        };
        let ends = (source.epochs, source.grows());
        let plan = SourcePlan::new(&source.name, order, Arc::new(options), ends);
        plans.push(Arc::new(plan));
    }
    Ok(plans)
}

/// Plans the blocks of a source that has complete passes before `pass`.
async fn blocks(
    config: &ProducerConfig,
    source: &NamedSource,
    options: &ReadOptions,
    inputs: &mut InputList,
    pass: u64,
) -> Result<BlockOrders, RunError> {
    let options = Arc::new(options.clone());
    let own: Vec<(usize, InputFile)> = (inputs.files.iter().enumerate())
        .filter(|(_, file)| file.pin.source.as_deref() == source.pin_name())
        .map(|(n, file)| (n, file.clone()))
        .collect();
    let growths = own.iter().map(|(_, file)| file.pin.growth + 1).max();
    let shuffle = source.shuffle.map(ShuffleConfig::shuffle);
    let mut orders = Vec::new();
    for growth in 0..growths.unwrap_or(1) {
        let files = own.iter().filter(|(_, file)| file.pin.growth == growth);
        let read = !source.grows() || growth >= pass;
        let files: Vec<_> = files.filter(|_| read).cloned().collect();
        let blocks = plan_blocks(&files, &options, inputs).await?;
        if !source.grows() {
            warn_of_few(config, source, blocks.len());
        }
        let portion = portion(config, source);
        orders.push(SourceOrder::new(&source.name, blocks, shuffle, portion));
    }
    Ok(BlockOrders::new(orders, shuffle))
}

/// Returns the part of a source's blocks that this producer reads. Of a source that is followed it has files of its own.
fn portion(config: &ProducerConfig, source: &NamedSource) -> Portion {
    if source.grows() {
        Portion::ALL
    } else {
        share(config)
    }
}

fn warn_of_few(config: &ProducerConfig, source: &NamedSource, blocks: u64) {
    let producers = portion(config, source).of;
    if blocks < producers.into() {
        tracing::warn!(
            producer = %config.producer.name,
            source = %source.name,
            blocks,
            producers,
            "fewer blocks than producers, so some read nothing of this source: use more row groups, uncompressed lines or \
             smaller files, or fewer producers"
        );
    }
}

/// Returns the rules by which the sources take turns.
pub(super) fn sampler_options(config: &ProducerConfig) -> Result<SamplerOptions, WeightError> {
    let sources = config.all_sources();
    let numbers: Vec<f64> = sources.iter().map(|source| source.weight).collect();
    Ok(SamplerOptions {
        weights: weights(&numbers)?,
        mixtures: BTreeMap::new(),
        passes: sources.iter().map(passes).collect(),
        unit: config.mixture.unit,
        when_source_ends: config.when_source_ends(),
        limit: config
            .producer
            .limit
            .of_sampler(config.producer.index, config.producer.of),
    })
}

/// Returns the number of passes; 0 for a source without end.
fn passes(source: &NamedSource) -> u64 {
    if source.grows() { 0 } else { source.epochs }
}
