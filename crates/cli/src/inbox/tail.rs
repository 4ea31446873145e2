//! `batchweave inbox tail`: prints the files of an inbox as they appear.

use std::collections::BTreeMap;

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::output::{Output, count};
use batchweave_core::inbox::{Listed, Read, look};
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

pub(super) async fn run(args: &TailArgs, context: &Context) -> Result<Exit, CliError> {
    let inbox = StoredInbox::open(&args.of.inbox, context).await?;
    let mut read: BTreeMap<String, Read> = BTreeMap::new();
    let (mut ended, mut begun) = (BTreeMap::<String, bool>::new(), false);
    let mut left = args.files.unwrap_or(u64::MAX);
    loop {
        for writer in inbox.writers(&args.of.writers).await? {
            let known = read.entry(writer.clone()).or_default();
            let listed = inbox.listed(&writer, known).await?;
            let found = look(known, listed).map_err(|fault| {
                CliError::Unsound(format!("{}/{writer}: {fault}", inbox.root()))
            })?;
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
            let over = found.ended || found.job;
            if over && ended.insert(writer.clone(), true).is_none() && begun && !context.json() {
                say_over(&writer, found.job)?;
            }
        }
        if left == 0 {
            return Ok(Exit::Ok);
        }
        begun = true;
        tokio::time::sleep(args.every.0).await;
    }
}

fn say_over(writer: &str, job: bool) -> Result<(), CliError> {
    let what = if job {
        "job is committed"
    } else {
        "writer has ended"
    };
    Output::line(&format!("{writer}  {what}"))
}

async fn print(
    context: &Context,
    inbox: &StoredInbox,
    writer: &str,
    number: u64,
    file: &Listed,
) -> Result<(), CliError> {
    let footer = inbox.footer(writer, file).await?;
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
