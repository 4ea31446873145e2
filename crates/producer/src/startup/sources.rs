//! The plan of `[[sources]]`: the blocks and the order of each source.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_core::order::{
    Blocks, FileShape, Portion, SamplerOptions, SourceOrder, WeightError, weights,
};

use super::assemble::read_options;
use crate::config::{ProducerConfig, ShuffleConfig};
use crate::error::RunError;
use crate::sources::{InputFile, InputList, ReadOptions, Share, SourcePlan, shapes};

/// Plans the sources of `inputs`, and notes in its pins how documents are numbered. Empty without `[[sources]]`.
pub(super) async fn plan(
    config: &ProducerConfig,
    end_token: Option<u32>,
    inputs: &mut InputList,
) -> Result<Vec<Arc<SourcePlan>>, RunError> {
    let mut plans = Vec::new();
    for source in &config.sources {
        let options = ReadOptions {
            share: Share::ALL,
            ..read_options(&config.with_source(source), end_token)
        };
        let options = Arc::new(options);
        let own: Vec<(usize, InputFile)> = (inputs.files.iter().enumerate())
            .filter(|(_, file)| file.pin.source.as_ref() == Some(&source.name))
            .map(|(n, file)| (n, file.clone()))
            .collect();
        let files = own.iter().map(|(_, file)| file.clone()).collect();
        let shapes = shapes(files, &options).await?;
        for ((n, _), shape) in own.iter().zip(&shapes) {
            inputs.files[*n].pin.by_byte = *shape == FileShape::Lines;
        }
        let shaped = own.iter().zip(shapes);
        let blocks =
            Blocks::plan(shaped.map(|((n, file), shape)| (*n as u32, file.pin.size, shape)));
        let portion = Portion {
            index: config.producer.index,
            of: config.producer.of,
        };
        warn_of_few(&source.name, blocks.len(), portion);
        let shuffle = source.shuffle.map(ShuffleConfig::shuffle);
        plans.push(Arc::new(SourcePlan {
            order: SourceOrder::new(&source.name, blocks, shuffle, portion),
            options: Arc::unwrap_or_clone(options),
            passes: source.epochs,
            window: shuffle.map_or(0, |shuffle| shuffle.window),
        }));
    }
    Ok(plans)
}

fn warn_of_few(source: &str, blocks: u64, portion: Portion) {
    if blocks < portion.of.into() {
        tracing::warn!(
            source,
            blocks,
            producers = portion.of,
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
        passes: config.sources.iter().map(|source| source.epochs).collect(),
        unit: config.mixture.unit,
        when_source_ends: config.mixture.when_source_ends,
        limit: config
            .producer
            .limit
            .of_sampler((config.producer.index, config.producer.of)),
    })
}
