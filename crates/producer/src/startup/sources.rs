//! The plan of `[[sources]]`: the blocks and the order of each source.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_core::order::{
    Portion, SamplerOptions, SamplerState, SourceOrder, WeightError, weights,
};

use super::assemble::read_options;
use crate::config::{NamedSource, ProducerConfig, ShuffleConfig};
use crate::error::RunError;
use crate::sources::{InputFile, InputList, ReadOptions, Share, SourcePlan, plan_blocks};

/// Plans the sources of `inputs`, and notes in its pins how documents are numbered. `state` is the place of the sampler:
/// growths before it are not read again. Empty without `[[sources]]`.
pub(super) async fn plan(
    config: &ProducerConfig,
    end_token: Option<u32>,
    inputs: &mut InputList,
    state: Option<&SamplerState>,
) -> Result<Vec<Arc<SourcePlan>>, RunError> {
    let mut plans = Vec::new();
    for (n, source) in config.sources.iter().enumerate() {
        let options = Arc::new(ReadOptions {
            share: Share::ALL,
            ..read_options(&config.with_source(source), end_token)
        });
        let own: Vec<(usize, InputFile)> = (inputs.files.iter().enumerate())
            .filter(|(_, file)| file.pin.source.as_ref() == Some(&source.name))
            .map(|(n, file)| (n, file.clone()))
            .collect();
        let pass = state
            .and_then(|state| state.at.get(n))
            .map_or(0, |at| at.position.pass);
        let growths = own
            .iter()
            .map(|(_, file)| file.pin.growth + 1)
            .max()
            .unwrap_or(1);
        let shuffle = source.shuffle.map(ShuffleConfig::shuffle);
        let mut orders = Vec::new();
        for growth in 0..growths {
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
        plans.push(Arc::new(SourcePlan::new(
            &source.name,
            orders,
            (options, shuffle),
            (source.epochs, source.grows()),
        )));
    }
    Ok(plans)
}

/// Returns the part of a source's blocks that this producer reads. Of a source that is followed it has files of its own.
fn portion(config: &ProducerConfig, source: &NamedSource) -> Portion {
    if source.grows() {
        return Portion::ALL;
    }
    Portion {
        index: config.producer.index,
        of: config.producer.of,
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
    let numbers: Vec<f64> = config.sources.iter().map(|source| source.weight).collect();
    Ok(SamplerOptions {
        weights: weights(&numbers)?,
        mixtures: BTreeMap::new(),
        passes: config.sources.iter().map(passes).collect(),
        unit: config.mixture.unit,
        when_source_ends: config.when_source_ends(),
        limit: config
            .producer
            .limit
            .of_sampler((config.producer.index, config.producer.of)),
    })
}

/// Returns the number of passes; 0 for a source without end.
fn passes(source: &NamedSource) -> u64 {
    if source.grows() { 0 } else { source.epochs }
}
