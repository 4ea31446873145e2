//! The tokens that each source really gave, from the provenance of steps.

use std::collections::BTreeMap;
use std::ops::Range;

use batchweave_core::ids::{ProducerName, Seq, Step};
use batchweave_core::provenance::Piece;
use batchweave_log::{Located, Log};
use futures::stream::{self, StreamExt, TryStreamExt};

use batchweave_console::CliError;
use batchweave_console::sources::{self, Names};

/// Provenance objects that are read at the same time.
const READS: usize = 16;

/// The content of the steps of one producer with one mixture.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// The first and the last step that was counted.
    pub(super) steps: Option<(Step, Step)>,
    /// The tokens of these steps, and the documents that begin in them, by the name of their source.
    pub(super) tokens: BTreeMap<String, u64>,
    pub(super) documents: BTreeMap<String, u64>,
}

/// The content, by producer and the sequence number from which its mixture is in force.
pub(super) type GivenByMixture = BTreeMap<(ProducerName, Seq), Given>;

/// Counts the steps, whose mixtures begin at `begins` for each producer. Also returns the number of steps without
/// provenance.
pub(super) async fn count(
    log: &mut Log,
    steps: Range<Step>,
    begins: &BTreeMap<ProducerName, Vec<Seq>>,
) -> Result<(GivenByMixture, u64), CliError> {
    let mut names: BTreeMap<ProducerName, Names> = BTreeMap::new();
    for producer in begins.keys() {
        names.insert(producer.clone(), sources::names(log, producer).await?);
    }
    let (objects, without) = by_provenance(log, steps, begins).await?;
    let store = log.store().clone();
    let inputs = log.manifest().stream().batch_items();
    let reads = stream::iter(objects).map(async |(key, steps)| {
        let provenance = sources::provenance(store.as_ref(), &key).await?;
        Ok::<_, CliError>((provenance, steps))
    });
    let mut reads = std::pin::pin!(reads.buffer_unordered(READS));
    let mut given = GivenByMixture::new();
    while let Some((provenance, steps)) = reads.try_next().await? {
        for (step, seq, mixture) in steps {
            let files = names.get(&mixture.0);
            let one = given.entry(mixture).or_default();
            one.count_step(step);
            let sources = provenance.get(seq).into_iter();
            for piece in sources.flat_map(|s| s.counted(inputs)) {
                one.count_piece(&piece, files);
            }
        }
    }
    Ok((given, without))
}

/// Steps with their mixture, by the key of their provenance object.
type StepsByProvenance = BTreeMap<String, Vec<(Step, Seq, (ProducerName, Seq))>>;

/// Groups the steps of these producers. Also returns the number of steps without provenance.
async fn by_provenance(
    log: &mut Log,
    steps: Range<Step>,
    begins: &BTreeMap<ProducerName, Vec<Seq>>,
) -> Result<(StepsByProvenance, u64), CliError> {
    let (mut objects, mut without) = (StepsByProvenance::new(), 0);
    for step in steps {
        let Located::At(entry) = log.locate(step).await? else {
            continue;
        };
        let Some(begins) = begins.get(&entry.producer) else {
            continue;
        };
        let before = begins.iter().rev().find(|begin| **begin <= entry.seq);
        let mixture = (entry.producer.clone(), before.copied().unwrap_or(0));
        match &entry.tgb.provenance {
            Some(key) => objects
                .entry(key.clone())
                .or_default()
                .push((step, entry.seq, mixture)),
            None => without += 1,
        }
    }
    Ok((objects, without))
}

impl Given {
    fn count_step(&mut self, step: Step) {
        self.steps = Some(match self.steps {
            Some((first, last)) => (first.min(step), last.max(step)),
            None => (step, step),
        });
    }

    /// Counts a piece of a document of one of these files.
    fn count_piece(&mut self, piece: &Piece, files: Option<&Names>) {
        let file = files.and_then(|files| files.get(piece.file as usize));
        let source = file
            .and_then(|file| file.source.clone())
            .unwrap_or_default();
        let begun = u64::from(piece.skip == 0);
        *self.documents.entry(source.clone()).or_default() += begun;
        *self.tokens.entry(source).or_default() += piece.items;
    }
}
