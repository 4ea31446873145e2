//! `batchweave inbox verify`: checks by the provenance of all steps that each committed row is in the stream once.

use std::collections::BTreeMap;

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::output::joined;
use batchweave_console::sources;
use batchweave_core::ids::{ProducerName, Seq};
use batchweave_core::provenance::{Form, Sources};
use batchweave_daemon::Exit;
use batchweave_log::{Located, Log};
use futures::stream::{self, StreamExt, TryStreamExt};

use super::committed::{Committed, listed};
use super::stored::StoredInbox;
use super::verify_report::VerifyReport;
use super::{LsArgs, render};

/// Provenance objects that are read at the same time.
const READS: usize = 16;
/// Faults that are listed.
const FAULTS_MAX: usize = 20;

/// By producer and file: how often each row begins in the stream.
type Begins = BTreeMap<(ProducerName, u32), Vec<u8>>;

pub(super) async fn run(args: &LsArgs, context: &Context) -> Result<Exit, CliError> {
    let inbox = StoredInbox::open(&args.inbox, context).await?;
    let mut log = context.log().await?;
    let committed = Committed::read(&mut log, &inbox).await?;
    if committed.writers.is_empty() {
        let (root, inbox) = (log.store().root(), inbox.root());
        let text = format!("no producer of {root} has read {inbox}");
        return Err(CliError::Absent(text));
    }
    let is_read = |name: &&String| committed.writers.contains_key(*name);
    let unread = joined(args.writers.iter().filter(|name| !is_read(name)), "");
    if !unread.is_empty() {
        let (root, inbox) = (log.store().root(), inbox.root());
        let text = format!("no producer of {root} has read a file of {unread} in {inbox}");
        return Err(CliError::Absent(text));
    }
    let (begins, steps_unknown) = begins(&mut log).await?;
    let mut report = VerifyReport::new(inbox.root(), steps_unknown);
    for (writer, (producer, files)) in &committed.writers {
        if !args.writers.is_empty() && !args.writers.contains(writer) {
            continue;
        }
        report.writers += 1;
        for file in files {
            let index = u32::try_from(file.index).unwrap_or(u32::MAX);
            let counts = begins
                .get(&(producer.clone(), index))
                .map_or(&[][..], |counts| counts);
            // A file that was deleted is known by its rows in the stream alone.
            let rows = match inbox.footer(writer, &listed(&file.pin)).await {
                Err(CliError::Store(why)) if why.is_not_found() => counts.len() as u64,
                footer => footer?.rows,
            };
            let due = file.rows.unwrap_or(rows).min(rows);
            report.file(&file.pin.name, counts, due);
        }
    }
    report.conclude();
    let missing = report.rows_missing > 0 && steps_unknown == 0;
    let faulty = report.rows_twice > 0 || missing;
    context.out.report(&report, render::verify)?;
    Ok(if faulty { Exit::Protocol } else { Exit::Ok })
}

impl VerifyReport {
    fn new(inbox: &str, steps_unknown: u64) -> Self {
        Self {
            inbox: inbox.to_owned(),
            writers: 0,
            rows_once: 0,
            rows_twice: 0,
            rows_missing: 0,
            steps_unknown,
            faults: Vec::new(),
            more_faults: 0,
            incomplete: Vec::new(),
        }
    }

    /// Adds the rows of a file, of which the first `due` must be in the stream.
    fn file(&mut self, name: &str, counts: &[u8], due: u64) {
        let (mut once, mut twice) = (0, 0);
        for count in counts {
            once += u64::from(*count == 1);
            twice += u64::from(*count > 1);
        }
        let before = counts
            .iter()
            .take(usize::try_from(due).unwrap_or(usize::MAX));
        let missing = due - before.filter(|count| **count > 0).count() as u64;
        self.rows_once += once;
        self.rows_twice += twice;
        self.rows_missing += missing;
        let listed = match (twice, missing) {
            (0, 0) => return,
            (0, _) => &mut self.incomplete,
            _ => &mut self.faults,
        };
        if listed.len() == FAULTS_MAX {
            self.more_faults += 1;
        } else {
            listed.push(format!(
                "{name}: of {due} committed rows {missing} are missing and {twice} doubled"
            ));
        }
    }

    /// Joins the lists of files within their bound.
    fn conclude(&mut self) {
        self.faults.append(&mut self.incomplete);
        self.more_faults += self.faults.len().saturating_sub(FAULTS_MAX) as u64;
        self.faults.truncate(FAULTS_MAX);
    }
}

/// Counts how often each row begins, over all steps that are there. Also returns the number of steps that are not known.
async fn begins(log: &mut Log) -> Result<(Begins, u64), CliError> {
    let mut objects: BTreeMap<String, Vec<(ProducerName, Seq)>> = BTreeMap::new();
    let watermark = log.manifest().watermark();
    let mut unknown = watermark;
    for step in watermark..log.manifest().next_step() {
        let Located::At(entry) = log.locate(step).await? else {
            unknown += 1;
            continue;
        };
        match &entry.tgb.provenance {
            Some(key) => {
                let of = objects.entry(key.clone()).or_default();
                of.push((entry.producer.clone(), entry.seq));
            }
            None => unknown += 1,
        }
    }
    let store = log.store().clone();
    let reads = stream::iter(objects).map(async |(key, tgbs)| {
        let provenance = sources::provenance(store.as_ref(), &key).await?;
        Ok::<_, CliError>((provenance, tgbs))
    });
    let mut reads = std::pin::pin!(reads.buffer_unordered(READS));
    let mut begins = Begins::new();
    while let Some((provenance, tgbs)) = reads.try_next().await? {
        for (producer, seq) in tgbs {
            match provenance.get(seq) {
                Some(sources) => count_begins(&mut begins, &producer, sources, seq > 0),
                None => unknown += 1,
            }
        }
    }
    Ok((begins, unknown))
}

/// Counts the rows that begin in a batch; `continues` if there is a batch before it.
fn count_begins(begins: &mut Begins, producer: &ProducerName, sources: &Sources, continues: bool) {
    // The first token of a batch that continues a sequence is the last one of the batch before.
    let repeated = usize::from(sources.form == Form::Sequence && continues);
    let new = sources.pieces.iter().skip(repeated);
    for piece in new.filter(|piece| piece.skip == 0) {
        let counts = begins.entry((producer.clone(), piece.file)).or_default();
        let Ok(unit) = usize::try_from(piece.unit) else {
            continue;
        };
        if counts.len() <= unit {
            counts.resize(unit + 1, 0);
        }
        counts[unit] = counts[unit].saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_doubled_rows_are_counted() {
        let mut report = VerifyReport::new("", 0);
        report.file("a", &[1, 1, 1], 2);
        report.conclude();
        assert!(report.faults.is_empty());
        report.file("b", &[1, 0, 2], 4);
        assert_eq!(
            (report.rows_once, report.rows_twice, report.rows_missing),
            (4, 1, 2)
        );
        assert_eq!(
            report.faults,
            ["b: of 4 committed rows 2 are missing and 1 doubled"]
        );
    }

    #[test]
    fn files_with_doubled_rows_are_listed_first_and_the_rest_is_counted() {
        let mut report = VerifyReport::new("", 0);
        for n in 0..FAULTS_MAX + 5 {
            report.file(&format!("missing {n}"), &[], 1);
        }
        for n in 0..3 {
            report.file(&format!("doubled {n}"), &[2], 1);
        }
        report.conclude();
        assert_eq!(report.faults.len(), FAULTS_MAX);
        assert!(report.faults[2].starts_with("doubled 2:"), "{report:?}");
        assert!(report.faults[3].starts_with("missing 0:"), "{report:?}");
        assert_eq!(report.more_faults, 8);
    }
}
