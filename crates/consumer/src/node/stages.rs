//! The stages of the steps that ranks are sent: each rank is notified before the first batch of another stage, and one that
//! cannot take it is refused there.

use std::collections::BTreeMap;

use batchweave_core::ids::Step;
use batchweave_core::manifest::stages::Stages;
use batchweave_core::stream::StreamConfig;
use batchweave_wire::{BALANCED, ErrorName, Fault, Hello, STAGES, Stage};

/// Most steps whose stage is remembered: more than are located ahead.
const STEPS_MAX: usize = 16 << 10;
/// Bytes of the smallest token.
const TOKEN_BYTES: u64 = 2;

/// The stages of located steps; those of stage 0 are left out.
#[derive(Debug, Default)]
pub(super) struct StepStages(BTreeMap<Step, u64>);

impl StepStages {
    /// Remembers the stage of a located step.
    pub(super) fn note(&mut self, step: Step, stage: u64) {
        if stage == 0 {
            self.0.remove(&step);
            return;
        }
        self.0.insert(step, stage);
        if self.0.len() > STEPS_MAX {
            self.0.pop_first();
        }
    }

    pub(super) fn at(&self, step: Step) -> u64 {
        self.0.get(&step).copied().unwrap_or(0)
    }
}

/// The shapes that a rank can take.
#[derive(Debug, Clone)]
pub(super) struct RankStages {
    client: String,
    knows: bool,
    /// The client reads bins.
    knows_bins: bool,
    /// The tokens per row and the rows per slice that the trainer counts on.
    wanted: (Option<u32>, Option<u32>),
    /// The stage of the last batch that it was sent.
    now: u64,
}

impl RankStages {
    pub(super) fn of(hello: &Hello) -> Self {
        Self {
            client: hello.client.clone(),
            knows: hello.forms.iter().any(|form| form == STAGES),
            knows_bins: hello.forms.iter().any(|form| form == BALANCED),
            wanted: (hello.seq_len, hello.rows_per_slice),
            now: 0,
        }
    }

    /// Returns the message before a batch of `stage`, if one is due; fails where the rank cannot take it.
    pub(super) fn enter(
        &mut self,
        step: Step,
        id: u64,
        stages: &Stages,
        stream: &StreamConfig,
    ) -> Result<Option<Stage>, Box<Fault>> {
        if id == self.now {
            return Ok(None);
        }
        let stage = described(id, stages, stream);
        if let Some(why) = self.fault(&stage) {
            let fault = Fault::new(ErrorName::BadHello, format!("step {step} is of {why}"));
            let remedy = "install the client of the release of this daemon, and give the trainer the shapes of all stages";
            return Err(Box::new(fault.at_step(step).remedy(remedy)));
        }
        self.now = id;
        Ok(Some(stage))
    }

    /// Returns why the rank cannot take a stage.
    pub(super) fn fault(&self, stage: &Stage) -> Option<String> {
        let (rows, row) = if stage.is_balanced() {
            ("bins", "bin")
        } else {
            ("rows", "row")
        };
        let what = format!(
            "stage {:?} ({} {rows} per slice, {} tokens per {row})",
            stage.name, stage.rows_per_slice, stage.seq_len
        );
        if !self.knows {
            return Some(format!(
                "{what}, and the client ({}) does not know stages",
                self.client
            ));
        }
        if stage.is_balanced() && !self.knows_bins {
            return Some(format!(
                "{what}, whose slices are bins of equal cost, and the client ({}) does not know them",
                self.client
            ));
        }
        let (seq_len, rows) = self.wanted;
        let differs = seq_len.is_some_and(|n| n != stage.seq_len)
            || rows.is_some_and(|n| n != stage.rows_per_slice);
        differs.then(|| {
            let wanted = |n: Option<u32>| n.map_or("any".to_owned(), |n| n.to_string());
            format!(
                "{what}, and the trainer expects rows_per_slice {} and seq_len {}",
                wanted(rows),
                wanted(seq_len)
            )
        })
    }
}

/// Returns the stage as ranks know it; 0 is the shape of stream.json.
pub(crate) fn described(id: u64, stages: &Stages, stream: &StreamConfig) -> Stage {
    let Some(stage) = stages.all.get(&id) else {
        let form = stream.tokenizer.name.rsplit_once("; ");
        return Stage {
            id: 0,
            name: String::new(),
            rows_per_slice: stream.rows_per_slice,
            seq_len: stream.seq_len,
            form: form.map_or(String::new(), |(_, form)| form.to_owned()),
        };
    };
    Stage {
        id,
        name: stage.name.to_string(),
        rows_per_slice: stage.rows_per_slice,
        seq_len: stage.seq_len,
        form: stage.form.clone(),
    }
}

/// Returns the stage whose slices surely do not fit into a segment of these bytes, with the bytes of a slice; of full bins,
/// which are rarely much less full than that.
pub(crate) fn too_large(stages: &Stages, segment: u64) -> Option<(String, u64)> {
    let of = |stage: &batchweave_core::manifest::stages::StageState| {
        let row = u64::from(stage.seq_len) + u64::from(!stage.is_balanced());
        let bytes = u64::from(stage.rows_per_slice) * row * TOKEN_BYTES;
        (stage.name.to_string(), bytes)
    };
    let largest = stages.all.values().map(of).max_by_key(|(_, bytes)| *bytes);
    largest.filter(|(_, bytes)| *bytes > segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(forms: &[&str]) -> Hello {
        let forms = forms.iter().map(|form| (*form).to_owned());
        let mut hello = Hello::new("c/1", 0);
        hello.forms = forms.collect();
        hello
    }

    fn stage(form: &str) -> Stage {
        Stage {
            id: 1,
            name: "next".to_owned(),
            rows_per_slice: 4,
            seq_len: 512,
            form: form.to_owned(),
        }
    }

    #[test]
    fn a_rank_is_refused_at_bins_that_its_client_does_not_know() {
        let why = |forms: &[&str], form: &str| RankStages::of(&hello(forms)).fault(&stage(form));
        let bins = why(&[STAGES], "balanced, positions").unwrap();
        assert!(
            bins.contains(
                "(4 bins per slice, 512 tokens per bin), whose slices are bins of equal cost"
            ) && bins.contains("the client (c/1) does not know them"),
            "{bins}"
        );
        assert!(
            why(&[BALANCED], "")
                .unwrap()
                .contains("does not know stages")
        );
        for (forms, form) in [
            (&[STAGES, BALANCED][..], "balanced"),
            (&[STAGES], ""),
            (&[STAGES], "best_fit, column balanced"),
        ] {
            assert_eq!(why(forms, form), None);
        }
    }
}
