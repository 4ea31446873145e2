//! `batchweave inbox tail`: prints the files of an inbox as they appear.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::output::count;
use batchweave_core::inbox::{Fault, Found, Listed, Read, look};
use batchweave_daemon::Exit;
use serde::Serialize;

use super::TailArgs;
use super::stored::StoredInbox;

/// A file that has appeared.
#[derive(Debug, Serialize)]
struct NewFile<'a> {
    writer: &'a str,
    file: u64,
    first_row: u64,
    rows: u64,
    bytes: u64,
}

/// Files that were deleted before they were printed.
#[derive(Debug, Serialize)]
struct GoneFiles<'a> {
    writer: &'a str,
    gone_from: u64,
    gone_to: u64,
}

/// The end of a writer: `ended`, or `job` for a committed job.
#[derive(Debug, Serialize)]
struct Over<'a> {
    writer: &'a str,
    over: &'static str,
}

pub(super) async fn run(args: &TailArgs, context: &Context) -> Result<Exit, CliError> {
    let inbox = StoredInbox::open(&args.of.inbox, context).await?;
    let mut seen: BTreeMap<String, Read> = BTreeMap::new();
    let mut ended: BTreeSet<String> = BTreeSet::new();
    // The first look only takes stock: what is there has not just appeared.
    let mut begun = false;
    let mut left = args.files.unwrap_or(u64::MAX);
    loop {
        for writer in inbox.writers(&args.of.writers).await? {
            let known = seen.entry(writer.clone()).or_default();
            let listed = inbox.listed(&writer, known).await?;
            let (found, gone) = passing_over(known, listed).map_err(|fault| {
                CliError::Unsound(format!("{}/{writer}: {fault}", inbox.root()))
            })?;
            if let Some(gone) = gone {
                say_gone(context, &writer, gone)?;
            }
            // Files that were made before the end may appear in the next look only.
            let over = (found.ended && found.files.is_empty()) || found.job;
            for (number, file) in found.files {
                if begun && left > 0 {
                    print(context, &inbox, &writer, number, &file).await?;
                    left -= 1;
                }
                *known = Read::UpTo {
                    number,
                    size: file.size,
                    fingerprint: file.fingerprint.unwrap_or_default(),
                };
            }
            if found.job {
                *known = Read::Job;
            }
            if over && ended.insert(writer.clone()) && begun {
                say_over(context, &writer, found.job)?;
            }
        }
        if left == 0 {
            return Ok(Exit::Ok);
        }
        begun = true;
        tokio::time::sleep(args.every.0).await;
    }
}

/// Returns what is new, and the files that a stream has read and deleted since the last look.
fn passing_over(
    known: &Read,
    listed: Vec<Listed>,
) -> Result<(Found, Option<RangeInclusive<u64>>), Fault> {
    match (look(known, listed.clone()), known) {
        (Err(Fault::Missing { missing, next }), Read::UpTo { number, .. })
            if number.checked_add(1) == Some(missing) =>
        {
            let found = look(&Read::Nothing, listed)?;
            Ok((found, Some(missing..=next - 1)))
        }
        (found, _) => Ok((found?, None)),
    }
}

fn say_gone(context: &Context, writer: &str, gone: RangeInclusive<u64>) -> Result<(), CliError> {
    let (gone_from, gone_to) = gone.into_inner();
    let gone = GoneFiles {
        writer,
        gone_from,
        gone_to,
    };
    context.out.report(&gone, |_, _| {
        format!("{writer}  files {gone_from} to {gone_to} were deleted before they were seen here")
    })
}

fn say_over(context: &Context, writer: &str, job: bool) -> Result<(), CliError> {
    let over = if job { "job" } else { "ended" };
    context.out.report(&Over { writer, over }, |_, _| {
        let what = if job {
            "job is committed"
        } else {
            "writer has ended"
        };
        format!("{writer}  {what}")
    })
}

async fn print(
    context: &Context,
    inbox: &StoredInbox,
    writer: &str,
    number: u64,
    file: &Listed,
) -> Result<(), CliError> {
    let footer = match inbox.footer(writer, file).await {
        Err(CliError::Store(why)) if why.is_not_found() => {
            return say_gone(context, writer, number..=number);
        }
        footer => footer?,
    };
    let new = NewFile {
        writer,
        file: number,
        first_row: footer.first_row,
        rows: footer.rows,
        bytes: file.size,
    };
    context.out.report(&new, |new, _| {
        let rows = count(new.rows, "row");
        let (first, end) = (new.first_row, new.first_row + new.rows);
        format!("{writer}  file {number}  {rows} ({first}..{end})")
    })
}

#[cfg(test)]
mod tests {
    use batchweave_core::inbox::file_name;

    use super::*;

    fn listed(numbers: &[u64]) -> Vec<Listed> {
        let one = |n: &u64| Listed {
            name: file_name(*n),
            size: 7,
            fingerprint: None,
        };
        numbers.iter().map(one).collect()
    }

    #[test]
    fn files_that_a_stream_deleted_are_passed_over_and_a_gap_between_others_is_a_fault() {
        let known = Read::UpTo {
            number: 3,
            size: 7,
            fingerprint: String::new(),
        };
        let (found, gone) = passing_over(&known, listed(&[6, 7])).unwrap();
        let numbers: Vec<_> = found.files.iter().map(|(n, _)| *n).collect();
        assert_eq!((numbers, gone), (vec![6, 7], Some(4..=5)));
        let (found, gone) = passing_over(&known, listed(&[3, 4])).unwrap();
        assert_eq!((found.files.len(), gone), (1, None));
        for wrong in [&[3, 4, 6][..], &[6, 8]] {
            assert!(passing_over(&known, listed(wrong)).is_err(), "{wrong:?}");
        }
    }
}
