//! How far producers are in their input, from their cursors and stored input lists.

use batchweave_console::output::{count, printable};
use batchweave_core::cursor::Cursor;
use batchweave_core::ids::ProducerName;
use batchweave_core::manifest::Manifest;
use batchweave_core::order::{PASS_OF_EMPTY, Position, SamplerState};
use batchweave_log::read_inputs;
use batchweave_store::Store;
use serde::{Deserialize, Serialize};

/// The longest input list that is read for the name and sizes of its files, and the most in all.
const FILES_MAX: u64 = 20_000;
const ALL_FILES_MAX: u64 = 100_000;

/// The place of a producer in its input.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct InputStatus {
    pub(super) producer: ProducerName,
    /// Passes over the input that are complete.
    pub(super) passes: u64,
    /// The number of the file, from 1, and of all files.
    pub(super) file: u64,
    pub(super) files: u64,
    /// Name of the file; `None` for very long lists.
    pub(super) name: Option<String>,
    /// Share of the pass that is read, by the sizes of the files; within a file that is compressed or of columns an
    /// estimate.
    pub(super) share: Option<f64>,
    /// The sources, where there are several; then name and share of a file are not given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) sources: Vec<SourceStatus>,
}

/// The place in one of several sources, and what it has given.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SourceStatus {
    name: String,
    /// Passes over it that are complete; `None` where it repeats without end and has no document.
    passes: Option<u64>,
    /// No pass has begun after these.
    #[serde(skip)]
    at_end: bool,
    /// Tokens, or documents (`mixture.unit`), that it has given under the mixture in force.
    given: u64,
    /// Its share of what all have given.
    share: Option<f64>,
}

/// The part of a cursor that is needed here.
#[derive(Debug, Deserialize)]
struct At {
    pass: u64,
    file: u64,
    #[serde(default)]
    offset: u64,
}

/// Returns the places of all producers that have a cursor of the usual kind.
pub(super) async fn places(store: &dyn Store, m: &Manifest) -> Vec<InputStatus> {
    let (mut all, mut read) = (Vec::new(), 0);
    for (name, state) in m.producers() {
        let at = state
            .cursor
            .0
            .get("at")
            .cloned()
            .and_then(|at| serde_json::from_value::<At>(at).ok());
        let (Some(at), Ok(Some(list))) = (at, state.input_list()) else {
            continue;
        };
        let mut place = InputStatus {
            producer: name.clone(),
            passes: at.pass,
            file: (at.file + 1).min(list.files),
            files: list.files,
            name: None,
            share: None,
            sources: sources(&state.cursor),
        };
        if place.sources.is_empty() && list.files <= FILES_MAX && read + list.files <= ALL_FILES_MAX
        {
            read += list.files;
            // A list that grows may be replaced meanwhile; then its names are left out.
            if let Ok((_, files)) = read_inputs(store, name, Some(list)).await {
                let sizes: Vec<u64> = files.iter().map(|file| file.size).collect();
                place.share = share(&sizes, at.file, at.offset);
                let index = usize::try_from(at.file).ok();
                let file = index.and_then(|index| files.into_iter().nth(index));
                place.name = file.map(|file| file.name);
            }
        }
        all.push(place);
    }
    all
}

/// Returns the sources of a cursor of several; empty for one source.
fn sources(cursor: &Cursor) -> Vec<SourceStatus> {
    let order = cursor
        .0
        .get("order")
        .cloned()
        .and_then(|order| serde_json::from_value::<SamplerState>(order).ok());
    let named = cursor
        .0
        .pointer("/settings/sources")
        .and_then(serde_json::Value::as_array);
    let (Some(order), Some(named)) = (order, named) else {
        return Vec::new();
    };
    let all: u64 = order.at.iter().map(|source| source.given).sum();
    let name = |source: &serde_json::Value| source["name"].as_str().unwrap_or_default().to_owned();
    let sources = named
        .iter()
        .zip(&order.at)
        .map(|(named, state)| SourceStatus {
            name: name(named),
            passes: Some(state.position.pass).filter(|pass| *pass < PASS_OF_EMPTY),
            at_end: state.position == Position::pass(state.position.pass),
            given: state.given,
            share: (all > 0).then(|| state.given as f64 / all as f64),
        });
    sources.collect()
}

/// Returns the share of a pass before byte `offset` of file `file`.
fn share(sizes: &[u64], file: u64, offset: u64) -> Option<f64> {
    let all: u64 = sizes.iter().sum();
    let before = usize::try_from(file).unwrap_or(usize::MAX).min(sizes.len());
    let earlier: u64 = sizes[..before].iter().sum();
    // Of a compressed file the offset is that in its content.
    let within = sizes.get(before).map_or(0, |size| offset.min(*size));
    (all > 0).then(|| (earlier + within) as f64 / all as f64)
}

impl InputStatus {
    /// Formats the place: `34 % of pass 42, file 6 of 17: corpus/a.jsonl`.
    pub(super) fn text(&self, finished: bool) -> String {
        if finished {
            return "all read".to_owned();
        }
        if !self.sources.is_empty() {
            let texts: Vec<String> = self.sources.iter().map(SourceStatus::text).collect();
            return texts.join(", ");
        }
        let pass = self.passes.saturating_add(1);
        let mut text = match self.share {
            Some(share) => format!("{} % of pass {pass}", (share * 100.0) as u64),
            None => format!("pass {pass}"),
        };
        if self.files > 1 {
            text = format!("{text}, file {} of {}", self.file, self.files);
        }
        match &self.name {
            Some(name) => format!("{text}: {}", printable(name)),
            None => text,
        }
    }
}

impl SourceStatus {
    /// Formats the source's share and pass, as `web 60.0 % (pass 2)`.
    fn text(&self) -> String {
        let name = &self.name;
        let pass = match self.passes {
            None => "no document".to_owned(),
            Some(passes) if passes > 0 && self.at_end => format!("{} read", count(passes, "pass")),
            Some(passes) => format!("pass {}", passes + 1),
        };
        match self.share {
            Some(share) => format!("{name} {:.1} % ({pass})", share * 100.0),
            None => format!("{name} ({pass})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_sources_have_their_shares() {
        let cursor = Cursor(serde_json::json!({
            "order": {"ahead": 0, "at": [[1, 2, 3, 4, 600], [0, 0, 0, 9, 300], [2, 0, 0, 0, 100], [9_007_199_254_740_991_u64, 0, 0, 0, 0]], "mix": 0, "total": [13, 1000]},
            "settings": {"sources": [{"name": "web"}, {"name": "code"}, {"name": "books"}, {"name": "empty"}]},
        }));
        let texts: Vec<String> = sources(&cursor).iter().map(SourceStatus::text).collect();
        let expected = [
            "web 60.0 % (pass 2)",
            "code 30.0 % (pass 1)",
            "books 10.0 % (2 passes read)",
            "empty 0.0 % (no document)",
        ];
        assert_eq!(texts, expected);
        assert_eq!(sources(&Cursor(serde_json::json!({"settings": {}}))), []);
    }

    #[test]
    fn a_place_is_a_share_of_the_bytes() {
        assert_eq!(share(&[60, 40], 1, 20), Some(0.8));
        assert_eq!(share(&[60, 40], 1, 9000), Some(1.0), "compressed");
        assert_eq!(share(&[60, 40], 2, 0), Some(1.0));
        assert_eq!(share(&[0], 0, 0), None, "nothing to read");
        let mut place = InputStatus {
            producer: "p".parse().unwrap(),
            passes: 41,
            file: 6,
            files: 17,
            name: Some("corpus/a.jsonl".to_owned()),
            share: Some(0.349),
            sources: Vec::new(),
        };
        assert_eq!(
            place.text(false),
            "34 % of pass 42, file 6 of 17: corpus/a.jsonl"
        );
        (place.name, place.share, place.files) = (None, None, 1);
        assert_eq!(place.text(false), "pass 42");
        assert_eq!(place.text(true), "all read");
    }
}
