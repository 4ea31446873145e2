//! Windows one after another, as a producer makes them.

use std::time::{Duration, Instant};

use batchweave_console::CliError;
use batchweave_core::balance::{Arrangement, BalanceSettings, Document, WindowFill, arrange};

use super::measures::StepCosts;
use crate::error::bench_error;

/// A document that waits, with the number of its source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) document: Document,
    pub(super) source: usize,
    /// Windows that carried it.
    late: u32,
}

/// Arranges a stream, window by window.
#[derive(Debug)]
pub(super) struct Windows {
    settings: BalanceSettings,
    waiting: Vec<Waiting>,
    /// Steps that were made.
    pub(super) steps: usize,
    /// The most windows that a document was late.
    pub(super) late_max: u32,
    /// Tokens that were arranged, and the time that it took.
    pub(super) tokens: u64,
    pub(super) time: Duration,
}

/// An arranged window and its documents.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) documents: Vec<Waiting>,
    pub(super) arranged: Arrangement,
}

impl Windows {
    pub(super) fn new(settings: BalanceSettings) -> Self {
        Self {
            settings,
            waiting: Vec::new(),
            steps: 0,
            late_max: 0,
            tokens: 0,
            time: Duration::ZERO,
        }
    }

    /// Arranges the next window. `more` returns the pieces of the next document, and the number of its source.
    pub(super) fn next(
        &mut self,
        mut more: impl FnMut() -> Result<(Vec<Document>, usize), CliError>,
    ) -> Result<Window, CliError> {
        let mut fill = WindowFill::new(&self.settings);
        let mut count = self
            .waiting
            .iter()
            .take_while(|w| fill.take(&w.document))
            .count();
        while !fill.is_full() {
            let (pieces, source) = more()?;
            for document in pieces {
                count += usize::from(fill.take(&document));
                self.waiting.push(Waiting {
                    document,
                    source,
                    late: 0,
                });
            }
        }
        let documents: Vec<Document> = self.waiting[..count].iter().map(|w| w.document).collect();
        let began = Instant::now();
        let arranged = arrange(&self.settings, &documents, self.steps as u64);
        self.time += began.elapsed();
        let arranged = arranged.map_err(bench_error)?;
        self.steps += arranged.batches.len();
        self.tokens += documents.iter().map(|d| u64::from(d.tokens)).sum::<u64>();
        Ok(self.leave(arranged))
    }

    /// Leaves the documents that were not placed for the next window.
    fn leave(&mut self, arranged: Arrangement) -> Window {
        let again = arranged.carried.iter().map(|index| {
            let waiting = self.waiting[*index as usize];
            let document = Document {
                carried: true,
                ..waiting.document
            };
            Waiting {
                document,
                late: waiting.late + 1,
                ..waiting
            }
        });
        let mut left: Vec<Waiting> = again.collect();
        left.extend_from_slice(&self.waiting[arranged.taken..]);
        let late = left.iter().map(|waiting| waiting.late).max();
        self.late_max = self.late_max.max(late.unwrap_or(0));
        let documents = std::mem::replace(&mut self.waiting, left);
        Window {
            documents,
            arranged,
        }
    }
}

impl Window {
    /// Returns the costs of each step of the window.
    pub(super) fn costs(&self, settings: &BalanceSettings) -> Vec<StepCosts> {
        let capacity = settings.bins() as f64 * f64::from(settings.tokens);
        let mut steps = Vec::new();
        for batch in &self.arranged.batches {
            let mut tokens = 0_u64;
            let mut bin = |slice, micro| {
                let documents = batch.bin(slice, micro).iter();
                let documents = documents.map(|index| &self.documents[*index as usize].document);
                let mut cost = 0;
                for document in documents {
                    tokens += u64::from(document.tokens);
                    cost += document.cost;
                }
                cost as f64
            };
            let slice = |slice| {
                (0..batch.micro_batches())
                    .map(|micro| bin(slice, micro))
                    .collect()
            };
            let bins = (0..batch.slices()).map(slice).collect();
            steps.push(StepCosts {
                bins,
                fill: tokens as f64 / capacity,
            });
        }
        steps
    }

    /// Returns the share of source 0 in the tokens of each step.
    pub(super) fn shares(&self) -> Vec<f64> {
        let share = |batch: &batchweave_core::balance::BalancedBatch| {
            let mut tokens = [0_u64; 2];
            for (slice, micro) in (0..batch.slices())
                .flat_map(|slice| (0..batch.micro_batches()).map(move |micro| (slice, micro)))
            {
                for index in batch.bin(slice, micro) {
                    let waiting = &self.documents[*index as usize];
                    tokens[waiting.source] += u64::from(waiting.document.tokens);
                }
            }
            tokens[0] as f64 / (tokens[0] + tokens[1]).max(1) as f64
        };
        self.arranged.batches.iter().map(share).collect()
    }
}
