//! `batchweave mixture show`: the mixtures of each producer, and the shares that were really given.

use std::collections::BTreeMap;

use batchweave_core::ids::{ProducerName, Seq, Step};
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::state::ProducerState;
use batchweave_core::order::{MixtureSpec, SamplerState, ShareUnit, Weight};
use batchweave_daemon::Exit;

use super::change::{read_spec, shares, weights};
use super::given::{self, GivenByMixture};
use super::render;
use super::show_report::{MixtureShown, ShowReport, SourceShown};
use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::sources::weighted;

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
    let mut shown = Vec::new();
    for (name, state) in m.producers() {
        let own = weighted(state);
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
        let order = order(state);
        for (n, (from, id)) in begins.into_iter().enumerate() {
            shown.push(MixtureShown {
                producer: name.clone(),
                id,
                from,
                until: ends.get(n).copied(),
                begun: from < state.next_seq,
                counted: None,
                unit: unit(state),
                tokens: 0,
                sources: shown_sources(&own, &spec, id, order.as_ref()),
            });
        }
    }
    Ok(shown)
}

/// Returns the sources of a mixture with their weights, and with what the sampler has taken of them.
fn shown_sources(
    own: &[(String, Weight)],
    spec: &MixtureSpec,
    id: u64,
    order: Option<&SamplerState>,
) -> Vec<SourceShown> {
    let wanted = weights(spec, id, own).ok().map(|weights| shares(&weights));
    let current = order.filter(|order| order.mix == id);
    let taken = |n: usize| Some(current?.at.get(n).map_or(0, |source| source.given));
    let all: u64 = (0..own.len()).filter_map(taken).sum();
    let sources = own.iter().enumerate().map(|(n, (source, _))| SourceShown {
        source: source.clone(),
        wanted: wanted.as_ref().map(|wanted| wanted[n]),
        taken: taken(n),
        taken_share: taken(n).map(|taken| taken as f64 / all.max(1) as f64),
        given: None,
    });
    sources.collect()
}

/// Returns the unit of shares, as the producer's cursor keeps it.
fn unit(state: &ProducerState) -> ShareUnit {
    let unit = state
        .cursor
        .0
        .pointer("/settings/mixture/unit")
        .cloned()
        .and_then(|unit| serde_json::from_value(unit).ok());
    unit.unwrap_or_default()
}

/// Returns the place of the producer's sampler, as `batchweave status` does.
fn order(state: &ProducerState) -> Option<SamplerState> {
    let order = state.cursor.0.get("order")?.clone();
    serde_json::from_value(order).ok()
}

fn fill(mixtures: &mut [MixtureShown], given: &GivenByMixture) {
    for mixture in mixtures {
        let Some(given) = given.get(&(mixture.producer.clone(), mixture.from)) else {
            continue;
        };
        mixture.counted = given.steps;
        mixture.tokens = given.tokens.values().sum();
        let amounts = match mixture.unit {
            ShareUnit::Tokens => &given.tokens,
            ShareUnit::Documents => &given.documents,
        };
        let all: u64 = amounts.values().sum();
        for source in &mut mixture.sources {
            let amount = amounts.get(&source.source).copied().unwrap_or(0);
            source.given = Some(amount as f64 / all.max(1) as f64);
        }
    }
}
