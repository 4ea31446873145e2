//! `batchweave-producer --stages FILE`: the stages of a configuration, for `batchweave stage`.

use std::ffi::OsString;
use std::path::PathBuf;

use batchweave_daemon::config::load;
use batchweave_daemon::stages::{ConfiguredStage, ConfiguredStages};
use batchweave_daemon::{Exit, run_to_exit};

use crate::config::ProducerConfig;
use crate::transform::{DocumentTransform, TransformError};
use crate::worker::{Worker, WorkerError};

/// Prints the stages of the configuration that `words` name.
pub(crate) fn main(name: &str, words: Vec<OsString>) -> Exit {
    run_to_exit(name, async {
        let [path] = &words[..] else {
            eprintln!("{name}: --stages needs the path of a configuration");
            return Exit::Config;
        };
        let config = match load::<ProducerConfig>(&PathBuf::from(path)) {
            Ok(config) => config.with_named_source(),
            Err(why) => {
                eprintln!("{why}");
                return Exit::Config;
            }
        };
        match configured(config).await {
            Ok(stages) => {
                println!("{}", serde_json::to_string(&stages).unwrap_or_default());
                Exit::Ok
            }
            Err(why) => {
                eprintln!("{why}");
                Exit::Config
            }
        }
    })
}

/// The reason why the stages cannot be named.
#[derive(Debug, thiserror::Error)]
enum StagesError {
    #[error(transparent)]
    Transform(#[from] TransformError),
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

async fn configured(config: ProducerConfig) -> Result<ConfiguredStages, StagesError> {
    let loaded = config.clone();
    let worker = Worker::start("tokenizer", move || DocumentTransform::new(&loaded))?;
    let transform = worker.join().await??;
    let stages = config.stages.iter().filter_map(|stage| {
        let state = transform.configured_stage(&stage.name)?;
        Some(ConfiguredStage {
            name: stage.name.clone(),
            rows_per_slice: state.rows_per_slice,
            seq_len: state.seq_len,
            form: state.form,
            fingerprint: state.fingerprint.to_string(),
            weights: stage.weights.clone(),
        })
    });
    let shape = config.shape();
    Ok(ConfiguredStages {
        fingerprint: transform.identity().fingerprint.to_string(),
        shape: [shape.slices, shape.rows_per_slice, shape.seq_len],
        stages: stages.collect(),
    })
}
