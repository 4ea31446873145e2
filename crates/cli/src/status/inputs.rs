//! How far producers are in their input, from their cursors and stored input lists.

use batchweave_core::ids::ProducerName;
use batchweave_core::inputs::head_of;
use batchweave_core::manifest::Manifest;
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
        let at = state.cursor.0.get("at").cloned();
        let at = at.and_then(|at| serde_json::from_value::<At>(at).ok());
        let (Some(at), Ok(Some(list))) = (at, head_of(&state.cursor)) else {
            continue;
        };
        let mut place = InputStatus {
            producer: name.clone(),
            passes: at.pass,
            file: (at.file + 1).min(list.files),
            files: list.files,
            name: None,
            share: None,
        };
        if list.files <= FILES_MAX && read + list.files <= ALL_FILES_MAX {
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
        let pass = self.passes.saturating_add(1);
        let mut text = match self.share {
            Some(share) => format!("{} % of pass {pass}", (share * 100.0) as u64),
            None => format!("pass {pass}"),
        };
        if self.files > 1 {
            text = format!("{text}, file {} of {}", self.file, self.files);
        }
        match &self.name {
            Some(name) => format!("{text}: {name}"),
            None => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
