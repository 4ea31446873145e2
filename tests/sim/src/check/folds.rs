//! Checks with the product's own fold from the beginning: no correct writer's entry is void, and the
//! objects stored beside the log are byte for byte those of the fold.

use std::collections::BTreeMap;

use batchweave_core::ids::Version;
use batchweave_core::keys;
use batchweave_core::manifest::{Bundle, Folded, Manifest};

use super::oracle::Log;
use crate::evidence::{Evidence, Violation};
use crate::store::Landed;
use crate::world::faulty::FAULTY;

pub(super) fn check(evidence: &Evidence, log: &Log, found: &mut Vec<Violation>) {
    let mut snapshots: BTreeMap<Version, Vec<&Landed>> = BTreeMap::new();
    let mut segments: BTreeMap<&str, Vec<&Landed>> = BTreeMap::new();
    let good = |l: &&Landed| evidence.actor(l.actor) != FAULTY;
    for landed in evidence.landed.iter().filter(good) {
        if let Some(version) = keys::snapshot_version(&landed.key) {
            snapshots.entry(version).or_default().push(landed);
        } else if let Some(last) = keys::bundle_version(&landed.key) {
            bundle(evidence, log, last, landed, found);
        } else if landed.key.starts_with("index/") {
            segments.entry(&landed.key).or_default().push(landed);
        }
    }
    let mut manifest = Manifest::new(evidence.stream.clone(), &evidence.stream_json);
    for (version, body) in (0..).zip(&log.records) {
        let repaired = evidence
            .objects
            .contains_key(keys::repair(version).as_str());
        let folded = match manifest.fold(body) {
            Ok(folded) => folded,
            Err(e) if repaired && e.may_be_repaired() => manifest.fold_repaired(body),
            Err(e) => {
                found.push(Violation::new("void", Some(version), e.to_string()));
                return;
            }
        };
        if !log.void.contains(&version) {
            nothing_void(version, &folded, found);
        }
        for segment in &folded.segments {
            let key = keys::segment(segment.segment);
            let stored = segments.remove(key.as_str()).unwrap_or_default();
            same("segment", version, &stored, &segment.to_json(), found);
        }
        if let Some(stored) = snapshots.remove(&version) {
            let bytes = manifest.snapshot().map_or(Vec::new(), |(_, bytes)| bytes);
            same("snapshot", version, &stored, &bytes, found);
        }
    }
    let early = snapshots.into_values().chain(segments.into_values());
    at_the_end(log, &manifest, early.flatten(), found);
}

/// Checks that nothing was written ahead of the log, and that the fold gives the steps of the rules.
fn at_the_end<'a>(
    log: &Log,
    manifest: &Manifest,
    early: impl Iterator<Item = &'a Landed>,
    found: &mut Vec<Violation>,
) {
    for landed in early {
        let text = format!("{} is ahead of the log", landed.key);
        found.push(Violation::new("snapshot", None, text).by(landed.actor, landed.at));
    }
    if manifest.next_step() != log.steps.len() as u64 {
        let text = format!(
            "the fold gives {} steps, the rules {}",
            manifest.next_step(),
            log.steps.len()
        );
        found.push(Violation::new("order", None, text));
    }
}

/// A bundle holds the records of the log byte for byte.
fn bundle(
    evidence: &Evidence,
    log: &Log,
    last: Version,
    landed: &Landed,
    found: &mut Vec<Violation>,
) {
    let read = Bundle::from_json(&landed.body, evidence.stream.stream_id, last);
    let same = read.is_ok_and(|bundle| {
        (bundle.first..)
            .zip(&bundle.records)
            .all(|(version, record)| {
                let stored = log.records.get(version as usize);
                stored.is_some_and(|stored| stored == record.as_bytes())
            })
    });
    if !same {
        let text = format!("{} differs from the log", landed.key);
        found.push(Violation::new("bundle", Some(last), text).by(landed.actor, landed.at));
    }
}

fn nothing_void(version: Version, folded: &Folded, found: &mut Vec<Violation>) {
    let record = folded.void.iter().map(ToString::to_string);
    let entries = folded.entries.iter().filter_map(|verdict| {
        let void = verdict.as_ref().err()?;
        Some(void.to_string())
    });
    for reason in record.chain(entries) {
        found.push(Violation::new("void", Some(version), reason));
    }
}

fn same(
    check: &'static str,
    version: Version,
    stored: &[&Landed],
    bytes: &[u8],
    found: &mut Vec<Violation>,
) {
    for landed in stored.iter().filter(|l| l.body != bytes) {
        let text = format!("{} differs from a fold from the beginning", landed.key);
        found.push(Violation::new(check, Some(version), text).by(landed.actor, landed.at));
    }
}
