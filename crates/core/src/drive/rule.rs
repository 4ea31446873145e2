//! The rules: from the loss of each source to its share. Pure: the same sums give the same shares, but for the last bits,
//! since `exp` differs from machine to machine.

use std::collections::BTreeMap;

use super::bounds::Bounds;
use super::error::DriveError;
use super::sums::SourceSums;

/// The part of a new reward in the average of `odm`.
const NEW: f64 = 0.1;
/// The largest share, with its rounding errors.
const SHARE_MAX: f64 = 1.0 + 1e-6;

/// A rule with its settings.
#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    /// Online data mixing (Albalak et al., arXiv 2312.02406): EXP3 with the loss as reward, averaged, or added up with
    /// `sum`.
    Odm { sum: bool },
    /// Shares grow where the loss is above its target, compared with the other sources. Only the ratios of targets count.
    Target { targets: BTreeMap<String, f64> },
    /// The answer of a function, by source.
    Function { answer: BTreeMap<String, f64> },
}

/// One source before a decision.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceBefore {
    pub name: String,
    /// Its losses in the steps of the decision; zeros without any.
    pub sums: SourceSums,
    /// Its share by the weights in force, from 0 to 1; those of all sources have the sum 1.
    pub share: f64,
    /// Its averaged reward; `None` for a new one.
    pub reward: Option<f64>,
}

/// One source after a decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SourceAfter {
    pub reward: Option<f64>,
    /// The share by the rule among the sources that the decision covers; `None` for others.
    pub wanted: Option<f64>,
    /// The new share among all sources.
    pub share: f64,
}

/// Returns reward and share of each source after change number `change`, the first of which is 1.
///
/// A source without tokens in these steps keeps its reward and its share; the rule and its bounds divide the rest.
pub fn decide(
    rule: &Rule,
    bounds: &Bounds,
    change: u64,
    sources: &[SourceBefore],
) -> Result<Vec<SourceAfter>, DriveError> {
    bounds.check()?;
    let covered: Vec<&SourceBefore> = sources.iter().filter(|one| is_covered(one)).collect();
    if covered.is_empty() {
        return Err(DriveError::NoSource);
    }
    let is_bad = |one: &&SourceBefore| !(0.0..=SHARE_MAX).contains(&one.share);
    if let Some(bad) = sources.iter().find(is_bad) {
        return Err(DriveError::BadShare(bad.name.clone()));
    }
    let before: f64 = covered.iter().map(|one| one.share).sum();
    let others = sources.iter().filter(|one| !is_covered(one));
    let left = 1.0 - others.map(|one| one.share).sum::<f64>();
    if before <= 0.0 || left <= 0.0 {
        return Err(DriveError::NoShare);
    }
    let rewards = match rule {
        Rule::Odm { sum } => odm_rewards(&covered, sources, *sum)?,
        Rule::Target { .. } | Rule::Function { .. } => Vec::new(),
    };
    let wanted = match rule {
        Rule::Odm { .. } => odm_shares(&rewards, change),
        Rule::Target { targets } => target_shares(&covered, sources, targets)?,
        Rule::Function { answer } => answered_shares(&covered, answer)?,
    };
    let shares_before: Vec<f64> = covered.iter().map(|one| one.share / before).collect();
    let shares = bounds.apply(&wanted, &shares_before)?;
    let mut new = wanted.iter().zip(&shares).enumerate();
    let after = sources.iter().map(|one| {
        let next = if is_covered(one) { new.next() } else { None };
        match next {
            Some((n, (wanted, share))) => SourceAfter {
                reward: rewards.get(n).copied().or(one.reward),
                wanted: Some(*wanted),
                share: share * left,
            },
            None => SourceAfter {
                reward: one.reward,
                wanted: None,
                share: one.share,
            },
        }
    });
    Ok(after.collect())
}

fn is_covered(source: &SourceBefore) -> bool {
    source.sums.loss().is_some()
}

fn loss(source: &SourceBefore) -> f64 {
    source.sums.loss().unwrap_or_default()
}

/// Returns the rewards: averages of loss / share, or their sum. A new source begins with the mean of the others.
fn odm_rewards(
    covered: &[&SourceBefore],
    all: &[SourceBefore],
    sum: bool,
) -> Result<Vec<f64>, DriveError> {
    let known: Vec<f64> = all.iter().filter_map(|one| one.reward).collect();
    let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
    let tokens: f64 = covered.iter().map(|one| one.sums.weight).sum();
    let reward = |one: &&SourceBefore| {
        let before = one.reward.unwrap_or(mean);
        let new = NEW * loss(one) * tokens / one.sums.weight;
        let after = if sum {
            before + new
        } else {
            (1.0 - NEW) * before + new
        };
        let fits = after.is_finite().then_some(after);
        fits.ok_or_else(|| DriveError::Overflow(one.name.clone()))
    };
    covered.iter().map(reward).collect()
}

/// Returns the rate of exploration after change `t`, at most 1/K.
fn rate(sources: f64, t: u64) -> f64 {
    if t == 0 {
        return 1.0 / sources;
    }
    (1.0 / sources).min((sources.ln() / (sources * t as f64)).sqrt())
}

fn odm_shares(rewards: &[f64], change: u64) -> Vec<f64> {
    let sources = rewards.len() as f64;
    let (before, now) = (
        rate(sources, change.saturating_sub(1)),
        rate(sources, change),
    );
    let largest = rewards.iter().copied().fold(f64::MIN, f64::max);
    // The largest exponent is 0, so nothing overflows.
    let powers = rewards.iter().map(|r| (before * (r - largest)).exp());
    let powers: Vec<f64> = powers.collect();
    let sum: f64 = powers.iter().sum();
    let share = |power: &f64| (1.0 - sources * now) * power / sum + now;
    powers.iter().map(share).collect()
}

fn target_shares(
    covered: &[&SourceBefore],
    all: &[SourceBefore],
    targets: &BTreeMap<String, f64>,
) -> Result<Vec<f64>, DriveError> {
    for (name, target) in targets {
        if !all.iter().any(|one| one.name == *name) {
            return Err(DriveError::StrangeTarget(name.clone()));
        }
        if !(target.is_finite() && *target > 0.0) {
            return Err(DriveError::BadTarget(name.clone()));
        }
    }
    let scaled = |one: &&SourceBefore| {
        let target = targets.get(&one.name);
        let target = target.ok_or_else(|| DriveError::NoTarget(one.name.clone()))?;
        let ratio = loss(one) / target;
        if ratio <= 0.0 {
            return Err(DriveError::NoRatio(one.name.clone()));
        }
        let share = one.share * ratio;
        let fits = share.is_finite().then_some(share);
        fits.ok_or_else(|| DriveError::Overflow(one.name.clone()))
    };
    let shares = covered
        .iter()
        .map(scaled)
        .collect::<Result<Vec<f64>, _>>()?;
    let sum: f64 = shares.iter().sum();
    if !(sum.is_finite() && sum > 0.0) {
        let first = covered.first().map_or("", |one| &one.name);
        return Err(DriveError::Overflow(first.to_owned()));
    }
    Ok(normal(&shares))
}

fn answered_shares(
    covered: &[&SourceBefore],
    answer: &BTreeMap<String, f64>,
) -> Result<Vec<f64>, DriveError> {
    let of = |one: &&SourceBefore| {
        let weight = answer.get(&one.name).copied();
        let weight = weight.ok_or_else(|| DriveError::NoAnswer(one.name.clone()))?;
        if !(weight.is_finite() && weight >= 0.0) {
            return Err(DriveError::BadAnswer(one.name.clone()));
        }
        Ok(weight)
    };
    let weights = covered.iter().map(of).collect::<Result<Vec<f64>, _>>()?;
    let is_known = |name: &&String| covered.iter().any(|one| one.name == **name);
    if let Some(strange) = answer.keys().find(|name| !is_known(name)) {
        return Err(DriveError::StrangeAnswer(strange.clone()));
    }
    // Divided by the largest first, so that the sum does not overflow.
    let largest = weights.iter().copied().fold(0.0, f64::max);
    if largest <= 0.0 {
        return Err(DriveError::ZeroAnswer);
    }
    let scaled: Vec<f64> = weights.iter().map(|weight| weight / largest).collect();
    Ok(normal(&scaled))
}

fn normal(shares: &[f64]) -> Vec<f64> {
    let sum: f64 = shares.iter().sum();
    shares.iter().map(|share| share / sum).collect()
}
