//! `verify --job --mend`: stores ledgers for steps that ranks received and that no ledger covers, from the
//! indexes of data objects while these exist. Later ledgers, progress, marks and the start of the next
//! attempt show which steps ranks received.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::context;
use batchweave_console::output::{count, range};
use batchweave_core::ids::{AttemptNo, Step};
use batchweave_core::keys;
use batchweave_core::mesh;
use batchweave_core::proof::{
    AttemptRecord, JobRecord, LEDGER_STEPS, Ledger, LedgerEntry, LedgerPlace, Leg, ReaderCoverage,
    ReaderSlices, rebuild_entries,
};
use batchweave_core::stream::StreamConfig;
use batchweave_log::{Checksums, get_fitting, slice_crcs};
use batchweave_store::Store;
use serde::Serialize;

use crate::listing::JobListing;

/// A data coordinate, and the global rank where it is known.
type Reader = (u32, Option<u32>);

/// Steps that no ledger could be stored for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct NotMended {
    attempt: AttemptNo,
    dp_rank: u32,
    from: Step,
    /// The step after the last one.
    to: Step,
    why: String,
}

/// The result of mending.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Mended {
    /// Number of stored ledgers.
    pub(crate) ledgers: u64,
    /// Number of steps in them, counted per rank.
    pub(crate) steps: u64,
    /// The steps that remain without a ledger.
    pub(crate) left: Vec<NotMended>,
}

impl Mended {
    /// Formats one line, and one for each range of steps that remains without a ledger.
    pub(crate) fn text(&self) -> String {
        let (steps, ledgers) = (self.steps, count(self.ledgers, "ledger"));
        let mut text =
            format!("mended: {steps} steps by rank from the objects' indexes, in {ledgers}\n");
        for left in &self.left {
            let steps = range(left.from, left.to);
            let (rank, attempt, why) = (left.dp_rank, left.attempt, &left.why);
            let _ = writeln!(
                text,
                "not mended: steps {steps} of coordinate {rank}, attempt {attempt}: {why}"
            );
        }
        text
    }
}

pub(crate) struct Mender<'m> {
    pub(crate) store: &'m Arc<dyn Store>,
    pub(crate) stream: &'m StreamConfig,
    pub(crate) record: &'m JobRecord,
    pub(crate) listed: &'m JobListing,
    /// The node's name in the keys of this run's ledgers.
    pub(crate) node: String,
}

/// The steps that ledgers cover, by reader.
type Covered = BTreeMap<Reader, Vec<Range<Step>>>;

impl Mender<'_> {
    /// Mends the legs of the lineage.
    pub(crate) async fn mend(&self, legs: &[Leg]) -> Result<Mended, CliError> {
        let mut mended = Mended::default();
        let mut sums = Checksums::new(context::open_log(Arc::clone(self.store)).await?);
        for leg in legs {
            if let Some(attempt) = self.record.attempt(leg.attempt) {
                self.leg(*leg, attempt, &mut sums, &mut mended).await?;
            }
        }
        Ok(mended)
    }

    async fn leg(
        &self,
        leg: Leg,
        attempt: &AttemptRecord,
        sums: &mut Checksums,
        mended: &mut Mended,
    ) -> Result<(), CliError> {
        let mut covered = self.covered(leg).await?;
        let mut holes = self.holes(leg, attempt, &covered);
        while let Some(from) = holes.values().flatten().map(|hole| hole.start).min() {
            let window = from..from + LEDGER_STEPS;
            let (mut entries, mut steps) = (Vec::new(), Vec::new());
            let mut slices = Vec::new();
            let mut now: Vec<(ReaderSlices, Range<Step>)> = Vec::new();
            for (&(dp_rank, rank), own) in &mut holes {
                for hole in own.iter_mut().filter(|hole| hole.start < window.end) {
                    let part = hole.start..hole.end.min(window.end);
                    hole.start = part.end;
                    let of = self.retold(attempt, dp_rank, rank)?;
                    steps.extend(part.clone().filter(|step| !attempt.skips(*step)));
                    slices.push(of.slices.clone());
                    now.push((of, part));
                }
                own.retain(|hole| hole.start < hole.end);
            }
            steps.sort_unstable();
            steps.dedup();
            let read = sums.for_steps(&steps, &slices).await?;
            for (of, part) in now {
                let crcs = |step| slice_crcs(of.slices.clone(), read.get(&step));
                let kept = |step| attempt.next_kept(step);
                let (rebuilt, lost) = rebuild_entries(&of, part.clone(), kept, crcs);
                // Covered from here on, whether it was readable or not.
                covered.entry((of.dp_rank, of.rank)).or_default().push(part);
                entries.extend(rebuilt);
                let not_mended = lost.into_iter().map(|(steps, why)| NotMended {
                    attempt: leg.attempt,
                    dp_rank: of.dp_rank,
                    from: steps.start,
                    to: steps.end,
                    why,
                });
                mended.left.extend(not_mended);
            }
            self.put(leg, attempt, entries, &covered, mended).await?;
        }
        Ok(())
    }

    fn retold(
        &self,
        attempt: &AttemptRecord,
        dp_rank: u32,
        rank: Option<u32>,
    ) -> Result<ReaderSlices, CliError> {
        let slices = mesh::slices_of(self.stream.slices, attempt.state.dp_size, dp_rank)
            .map_err(|why| CliError::Unsound(why.to_string()))?;
        Ok(ReaderSlices {
            dp_rank,
            rank,
            slices,
        })
    }

    /// Returns the steps that an attempt's ledgers cover, by reader.
    async fn covered(&self, leg: Leg) -> Result<Covered, CliError> {
        let mut covered = Covered::new();
        let keys = self.listed.ledgers.get(&leg.attempt);
        for (_, key) in keys.into_iter().flatten() {
            let place = LedgerPlace {
                stream: self.stream.stream_id,
                job: &self.record.name,
                opened: self.record.opened,
                attempt: leg.attempt,
            };
            let store = self.store.as_ref();
            let ledger = get_fitting(store, key, |bytes| Ledger::from_json(bytes, key, &place))
                .await?
                .map_err(|why| CliError::Unsound(why.to_string()))?;
            for entry in ledger.entries {
                let own = covered.entry(entry.reader()).or_default();
                own.push(entry.from..entry.to);
            }
        }
        Ok(covered)
    }

    /// Returns the received steps that no ledger covers, by reader.
    fn holes(&self, leg: Leg, attempt: &AttemptRecord, covered: &Covered) -> Covered {
        let mut holes = Covered::new();
        for dp_rank in 0..attempt.state.dp_size {
            let end = |own: &Vec<Range<Step>>| own.iter().map(|r| r.end).max().unwrap_or(leg.from);
            let readers: Vec<(Reader, Step)> = covered
                .range((dp_rank, None)..=(dp_rank, Some(u32::MAX)))
                .map(|(reader, own)| (*reader, end(own)))
                .collect();
            let shown = self.listed.shown_of(leg.attempt, dp_rank);
            let furthest = readers.iter().max_by_key(|(_, end)| *end).copied();
            let (furthest, most) = furthest.unwrap_or(((dp_rank, None), leg.from));
            let most = leg.to.unwrap_or(most.max(shown));
            let others = readers
                .into_iter()
                .filter(|(reader, _)| *reader != furthest);
            for (reader, to) in others.chain([(furthest, most)]) {
                let own = covered.get(&reader).map_or(&[][..], Vec::as_slice);
                let to = leg.to.map_or(to, |end| end.min(to));
                let lacking = gaps(own, attempt.next_kept(leg.from)..to);
                if !lacking.is_empty() {
                    holes.insert(reader, lacking);
                }
            }
        }
        holes
    }

    async fn put(
        &self,
        leg: Leg,
        attempt: &AttemptRecord,
        entries: Vec<LedgerEntry>,
        covered: &Covered,
        mended: &mut Mended,
    ) -> Result<(), CliError> {
        if entries.is_empty() {
            return Ok(());
        }
        let from = attempt.next_kept(leg.from);
        let mut readers: Vec<Reader> = entries.iter().map(LedgerEntry::reader).collect();
        readers.sort_unstable();
        readers.dedup();
        let told = readers.into_iter().map(|(dp_rank, rank)| {
            let own = covered.get(&(dp_rank, rank));
            let gaps = gaps(own.map_or(&[][..], Vec::as_slice), from..Step::MAX);
            let to = gaps.first().map_or(from, |gap| gap.start);
            ReaderCoverage { dp_rank, rank, to }
        });
        mended.steps += entries.iter().map(LedgerEntry::received).sum::<u64>();
        let (job, opened) = (&self.record.name, self.record.opened);
        let ledger = Ledger {
            format: 1,
            stream: self.stream.stream_id,
            job: job.clone(),
            opened,
            attempt: leg.attempt,
            id: attempt.state.id,
            node: self.node.clone(),
            told: told.collect(),
            states: Vec::new(),
            entries,
        };
        let (first, number) = (ledger.first(), mended.ledgers);
        let key = keys::ledger(job, opened, leg.attempt, first, &self.node, number);
        let _ = self.store.create(&key, ledger.to_json().into()).await?;
        mended.ledgers += 1;
        Ok(())
    }
}

/// Returns the parts of `steps` that `own` does not cover.
fn gaps(own: &[Range<Step>], steps: Range<Step>) -> Vec<Range<Step>> {
    let mut sorted = own.to_vec();
    sorted.sort_by_key(|range| (range.start, range.end));
    let (mut at, mut gaps) = (steps.start, Vec::new());
    for range in sorted {
        if at < range.start.min(steps.end) {
            gaps.push(at..range.start.min(steps.end));
        }
        at = at.max(range.end);
    }
    if at < steps.end {
        gaps.push(at..steps.end);
    }
    gaps
}
