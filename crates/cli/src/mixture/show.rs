//! `batchweave mixture show`: the mixtures of each producer, and the shares that were really given.

use std::collections::BTreeMap;

use batchweave_core::ids::{ProducerName, Seq, Step};
use batchweave_core::manifest::Manifest;
use batchweave_daemon::Exit;
use serde::Serialize;

use super::change::{read_spec, shares, sources, weights};
use super::given::{self, GivenByMixture};
use super::render;
use batchweave_console::CliError;
use batchweave_console::context::Context;

#[derive(Debug, Serialize)]
pub(super) struct ShowReport {
    root: String,
    /// The steps that were counted: the first, and the one after the last.
    pub(super) steps: (Step, Step),
    /// Of these, the steps without provenance, which are not counted.
    pub(super) without_provenance: u64,
    pub(super) mixtures: Vec<MixtureShown>,
}

/// A mixture of one producer.
#[derive(Debug, Serialize)]
pub(super) struct MixtureShown {
    pub(super) producer: ProducerName,
    /// Its number; 0 is the configuration of the producer.
    pub(super) id: u64,
    /// Its first batch, and the one after its last.
    pub(super) from: Seq,
    pub(super) until: Option<Seq>,
    /// The batches are committed, at least in part.
    pub(super) begun: bool,
    /// The first and the last step that was counted.
    pub(super) counted: Option<(Step, Step)>,
    /// Tokens in these steps.
    pub(super) tokens: u64,
    pub(super) sources: Vec<SourceShown>,
}

#[derive(Debug, Serialize)]
pub(super) struct SourceShown {
    pub(super) source: String,
    /// Share by the weights, from 0 to 1; `None` when the log does not have them any more.
    pub(super) wanted: Option<f64>,
    /// Share of the tokens in the counted steps.
    pub(super) given: Option<f64>,
}

pub(super) async fn run(steps: Step, context: &Context) -> Result<Exit, CliError> {
    let mut log = context.log().await?;
    let mut mixtures = mixtures(log.manifest())?;
    let mut begins: BTreeMap<ProducerName, Vec<Seq>> = BTreeMap::new();
    for mixture in &mixtures {
        let all = begins.entry(mixture.producer.clone()).or_default();
        all.push(mixture.from);
    }
    let (next, watermark) = (log.manifest().next_step(), log.manifest().watermark());
    let first = next.saturating_sub(steps).max(watermark);
    let (given, without_provenance) = given::count(&mut log, first..next, &begins).await?;
    fill(&mut mixtures, &given);
    let report = ShowReport {
        root: log.store().root().to_owned(),
        steps: (first, next),
        without_provenance,
        mixtures,
    };
    context.done(&report, render::show)
}

/// Returns the mixtures of all producers that have several sources, without what they gave.
fn mixtures(m: &Manifest) -> Result<Vec<MixtureShown>, CliError> {
    let spec = read_spec(m)?;
    let mut all = Vec::new();
    for (name, state) in m.producers() {
        let own = sources(state);
        if own.is_empty() {
            continue;
        }
        let mut begins: BTreeMap<Seq, u64> = [(0, 0)].into();
        for mixture in &spec.mixtures {
            begins.extend(mixture.from.get(name).map(|from| (*from, mixture.id)));
        }
        // The fold knows what really holds.
        begins.extend(&state.mixtures);
        let ends: Vec<Seq> = begins.keys().skip(1).copied().collect();
        for (n, (from, id)) in begins.into_iter().enumerate() {
            let wanted = weights(&spec, id, &own)
                .ok()
                .map(|weights| shares(&weights));
            let sources = own.iter().enumerate().map(|(n, (source, _))| SourceShown {
                source: source.clone(),
                wanted: wanted.as_ref().map(|wanted| wanted[n]),
                given: None,
            });
            all.push(MixtureShown {
                producer: name.clone(),
                id,
                from,
                until: ends.get(n).copied(),
                begun: from < state.next_seq,
                counted: None,
                tokens: 0,
                sources: sources.collect(),
            });
        }
    }
    Ok(all)
}

fn fill(mixtures: &mut [MixtureShown], given: &GivenByMixture) {
    for mixture in mixtures {
        let Some(given) = given.get(&(mixture.producer.clone(), mixture.from)) else {
            continue;
        };
        mixture.counted = given.steps;
        mixture.tokens = given.tokens.values().sum();
        for source in &mut mixture.sources {
            let tokens = given.tokens.get(&source.source).copied().unwrap_or(0);
            source.given = Some(tokens as f64 / mixture.tokens.max(1) as f64);
        }
    }
}
