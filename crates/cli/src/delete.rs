//! `batchweave delete`: shows the objects of a stream; with --apply, deletes them all.
//!
//! Invariants:
//! - only keys that BatchWeave writes are deleted, and only below the root; others are listed and left;
//! - the marker `deleting.json` is created first and `stream.json` deleted next, so that a half-deleted stream
//!   cannot be opened, and the command recognizes it; the marker is deleted last.

mod listing;
mod render;
mod sweep;

use std::io::{BufRead, IsTerminal, Write};
use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::context::{self, Context};
use batchweave_core::ids::StreamId;
use batchweave_core::keys;
use batchweave_core::manifest::Manifest;
use batchweave_core::stream::StreamConfig;
use batchweave_daemon::Exit;
use batchweave_log::LogError;
use batchweave_store::{Location, Store, found};
use serde::Serialize;

use listing::Listing;

const EXAMPLES: &str = "\
Examples:
  batchweave delete s3://bucket/stream
  batchweave delete s3://bucket/stream --apply
  batchweave delete file:///data/stream --apply --yes

Without --apply nothing is deleted: it shows the objects of each class. With it, the command asks for the
stream's name, the last part of its URL. It refuses while a producer or a job is open (see `retire` and
`job close`). Objects that BatchWeave did not write are listed and left. An interrupted deletion
leaves no stream that could be opened; run the command again to finish it. It needs list, put and delete on
the whole prefix, more than any role of a daemon has.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DeleteArgs {
    /// Root of the stream [default: --store]
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// Delete; otherwise only show what would be deleted
    #[arg(long)]
    apply: bool,
    /// Delete without asking for the stream's name; implies --apply
    #[arg(long)]
    yes: bool,
    /// Delete although a producer or a job is open, or the log cannot be read
    #[arg(long)]
    force: bool,
}

impl DeleteArgs {
    /// Returns the stream's URL where it stands alone.
    pub(crate) fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }
}

#[derive(Debug, Serialize)]
struct DeleteReport {
    root: String,
    /// Id of the stream; `None` when stream.json is deleted already, or cannot be read.
    stream: Option<StreamId>,
    /// An earlier deletion was interrupted.
    resumed: bool,
    #[serde(flatten)]
    listing: Listing,
    /// Reasons to take the stream for one in use.
    in_use: Vec<String>,
    /// The flag `--force` was given.
    #[serde(skip)]
    forced: bool,
    /// Objects that this command deleted; `None` without --apply.
    deleted: Option<u64>,
}

pub(crate) async fn run(args: &DeleteArgs, context: &Context) -> Result<Exit, CliError> {
    let context = context.at(args.url.as_deref())?;
    let store = context.store(false).await?;
    let (stream, in_use) = examine(&store).await?;
    let marked = found(store.head(keys::DELETING).await)?.is_some();
    let listing = listing::list(store.as_ref()).await?;
    let root = store.root().to_owned();
    if stream.is_none() && in_use.is_empty() && !marked {
        check_leftovers(&root, &listing, args.force)?;
    }
    let mut report = DeleteReport {
        resumed: marked && stream.is_none(),
        root,
        stream,
        listing,
        in_use,
        forced: args.force,
        deleted: None,
    };
    if !(args.apply || args.yes) {
        return context.done(&report, render::text);
    }
    if let Some(first) = report.in_use.first().filter(|_| !args.force) {
        return Err(CliError::Refused(format!(
            "{} looks alive: {first}; nothing was deleted (--force deletes it nevertheless)",
            report.root
        )));
    }
    if !args.yes {
        confirm(&report.root, &context)?;
    }
    report.deleted = Some(sweep::delete(&store, stream).await?);
    context.done(&report, render::text)
}

/// Refuses a folder without stream.json, unless objects of a stream are left there and `force` is set.
fn check_leftovers(root: &str, listing: &Listing, force: bool) -> Result<(), CliError> {
    match listing.example() {
        None => Err(CliError::NoStream(format!(
            "{root} has no object of a stream, so there is nothing to delete; correct the URL if there should be"
        ))),
        Some(example) if !force => Err(CliError::Refused(format!(
            "{root} has objects of a stream (for example {example}) but no stream.json: restore it from a bucket \
                     version, or delete the rest with --force"
        ))),
        Some(_) => Ok(()),
    }
}

/// Returns the stream's id and the reasons to take it for one in use.
async fn examine(store: &Arc<dyn Store>) -> Result<(Option<StreamId>, Vec<String>), CliError> {
    let bytes = store.get(keys::STREAM, keys::bytes_max(keys::STREAM));
    let Some(bytes) = found(bytes.await)? else {
        return Ok((None, Vec::new()));
    };
    let stream = StreamConfig::from_json(&bytes, keys::STREAM).map(|stream| stream.stream_id);
    match context::open_log(Arc::clone(store)).await {
        Ok(log) => Ok((stream.ok(), in_use(log.manifest()))),
        Err(CliError::Store(why) | CliError::Log(LogError::Store(why)))
            if why.kind.is_transient() =>
        {
            Err(why.into())
        }
        Err(why) => {
            let text = format!("its log cannot be read, so nothing is known of its users ({why})");
            Ok((stream.ok(), vec![text]))
        }
    }
}

/// Returns one line for each open producer and job.
fn in_use(manifest: &Manifest) -> Vec<String> {
    let open = manifest
        .producers()
        .filter(|(_, state)| !state.finished && !state.retired);
    let producers = open.map(|(name, state)| {
        format!(
            "producer {name} is open, as {}; stop it, and run `batchweave retire {name} --reason TEXT`",
            state.instance
        )
    });
    let jobs = manifest.jobs().keys();
    let jobs = jobs
        .map(|job| format!("job {job} is open; run `batchweave job close {job} --reason TEXT`"));
    jobs.chain(producers).collect()
}

/// Asks for the stream's name on the terminal.
fn confirm(root: &str, context: &Context) -> Result<(), CliError> {
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if !stdin.is_terminal() || context.json() {
        let text = "delete asks for the stream's name, and there is no terminal; repeat with --yes";
        return Err(CliError::Usage(text.to_owned()));
    }
    let name = Location::parse(root).map_or_else(|_| root.to_owned(), Location::name);
    write!(stderr, "type {name} to delete {root}: ")?;
    stderr.flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    if answer.trim() == name {
        return Ok(());
    }
    Err(CliError::Refused(format!(
        "{:?} is not the name {name}; nothing was deleted",
        answer.trim()
    )))
}
