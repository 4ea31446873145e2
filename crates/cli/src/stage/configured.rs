//! The stage in a producer's configuration, which the producer's program reads.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use batchweave_console::CliError;
use batchweave_console::output::joined;
use batchweave_console::programs::{self, Name};
use batchweave_core::ids::{Hash, RequestId, StageName};
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::entry::{Stage, StageMixture};
use batchweave_core::order::{NumberedMixture, named_weights};
use batchweave_daemon::config::nearest;
use batchweave_daemon::stages::{ConfiguredStage, ConfiguredStages, STAGES};
use serde::Serialize;
use tokio::process::Command;

use super::begin::Begins;
use crate::mixture::{needed_mixtures, read_spec};

/// A stage as a person wants it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct WantedStage {
    pub(super) name: StageName,
    pub(super) rows_per_slice: u32,
    pub(super) seq_len: u32,
    pub(super) form: String,
    pub(super) fingerprint: Hash,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) weights: BTreeMap<String, f64>,
    /// The stream of the configuration: the fingerprint of its tokenizer and form, and its shape.
    #[serde(skip)]
    stream: (String, [u32; 3]),
}

/// Returns the stage `name` of the configuration at `path`.
pub(super) async fn stage(path: &Path, name: &str) -> Result<WantedStage, CliError> {
    let all = read(path).await?;
    let Some(found) = all.stages.iter().find(|stage| stage.name == name) else {
        let names = || all.stages.iter().map(|stage| stage.name.as_str());
        let near =
            nearest(name, names()).map_or(String::new(), |near| format!(", did you mean {near}?"));
        return Err(CliError::Usage(format!(
            "{} has no [[stages]] of the name {name:?}{near} (it has {})",
            path.display(),
            joined(names(), "none")
        )));
    };
    WantedStage::new(found, (all.fingerprint.clone(), all.shape))
}

/// Reads the stages of a configuration by the producer's program, which alone knows its keys.
async fn read(path: &Path) -> Result<ConfiguredStages, CliError> {
    let mut command = Command::from(programs::start(Name::Producer).command());
    let ended = command
        .arg(STAGES)
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .await
        .map_err(|why| CliError::Input(format!("cannot run {}: {why}", Name::Producer)))?;
    if !ended.status.success() {
        let why = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
        return Err(CliError::Input(why));
    }
    serde_json::from_slice(&ended.stdout).map_err(|why| {
        CliError::Input(format!(
            "{} is of another version, its stages cannot be read: {why}",
            Name::Producer
        ))
    })
}

impl WantedStage {
    fn new(stage: &ConfiguredStage, stream: (String, [u32; 3])) -> Result<Self, CliError> {
        let wrong = |why: batchweave_core::ids::IdError| CliError::Input(why.to_string());
        Ok(Self {
            name: stage.name.parse().map_err(wrong)?,
            rows_per_slice: stage.rows_per_slice,
            seq_len: stage.seq_len,
            form: stage.form.clone(),
            fingerprint: stage.fingerprint.parse().map_err(wrong)?,
            weights: stage.weights.clone(),
            stream,
        })
    }

    pub(super) fn has_weights(&self) -> bool {
        !self.weights.is_empty()
    }

    /// Checks that the configuration is one of this stream.
    pub(super) fn check(&self, m: &Manifest) -> Result<(), CliError> {
        let stream = m.stream();
        let own = [stream.slices, stream.rows_per_slice, stream.seq_len];
        let (fingerprint, shape) = &self.stream;
        if *shape != own {
            return Err(CliError::Refused(format!(
                "the configuration is for another stream: it has slices, rows_per_slice and seq_len {shape:?}, and stream.json {own:?}"
            )));
        }
        if *fingerprint != stream.tokenizer.fingerprint.to_string() {
            return Err(CliError::Refused(
                "the configuration is for another stream: its tokenizer or the form of its slices is not that of stream.json"
                    .to_owned(),
            ));
        }
        let same = m.stages().all.values().find(|other| {
            let shape = (other.rows_per_slice, other.seq_len, other.fingerprint);
            other.name == self.name
                && shape != (self.rows_per_slice, self.seq_len, self.fingerprint)
        });
        if let Some(other) = same
            && m.producers().any(|(_, p)| {
                let mut begun = p.stages.range(..p.next_seq);
                begun.any(|(_, id)| m.stages().all.get(id) == Some(other))
            })
        {
            return Err(CliError::Refused(format!(
                "stage {:?} has begun with another shape ({} x {}): give this one a name of its own",
                self.name.as_str(),
                other.rows_per_slice,
                other.seq_len
            )));
        }
        Ok(())
    }

    /// Returns the entry without numbers.
    pub(super) fn empty_entry(&self) -> Stage {
        Stage {
            request: RequestId([0; 16]),
            id: 0,
            name: self.name.clone(),
            from: BTreeMap::new(),
            rows_per_slice: self.rows_per_slice,
            seq_len: self.seq_len,
            form: self.form.clone(),
            fingerprint: self.fingerprint,
            mixture: None,
        }
    }

    /// Returns the entry that begins the stage with these batches.
    pub(super) fn entry(
        &self,
        m: &Manifest,
        request: RequestId,
        begins: &Begins,
    ) -> Result<Stage, CliError> {
        let from: BTreeMap<_, _> = begins
            .0
            .iter()
            .map(|begin| (begin.producer.clone(), begin.from))
            .collect();
        Ok(Stage {
            request,
            id: m.stages().newest() + 1,
            mixture: self.mixture(m, &from)?,
            from,
            ..self.empty_entry()
        })
    }

    fn mixture(
        &self,
        m: &Manifest,
        from: &BTreeMap<batchweave_core::ids::ProducerName, u64>,
    ) -> Result<Option<StageMixture>, CliError> {
        if self.weights.is_empty() {
            return Ok(None);
        }
        let id = m.mixture().id + 1;
        let weights =
            named_weights(&self.weights).map_err(|why| CliError::Usage(why.to_string()))?;
        let from = from.clone();
        let mixture = NumberedMixture { id, weights, from };
        let spec = read_spec(m)?.with(mixture, needed_mixtures(m)).to_json();
        Ok(Some(StageMixture { id, spec }))
    }
}
