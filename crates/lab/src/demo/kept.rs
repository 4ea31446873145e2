//! The commands to look at the things that `--keep` leaves.

use std::path::Path;

use super::summary::Summary;
use super::{DemoArgs, DemoStore};

/// Returns the commands as lines, each with its purpose.
pub(super) fn commands(args: &DemoArgs, folder: &Path, summary: &Summary) -> String {
    let (folder, store) = (folder.display(), &summary.store);
    let (kept, head) = (summary.aftermath.reclaimed, summary.aftermath.head);
    let newest = head.saturating_sub(1);
    let look = [
        (format!("export BATCHWEAVE_STORE={store}"), String::new()),
        (
            "batchweave status".to_owned(),
            "how much there is, and the job that read it".to_owned(),
        ),
        (
            format!("batchweave show {newest} --decode"),
            format!("the text of a step; {kept} to {newest} are kept"),
        ),
        ("batchweave log".to_owned(), "the newest commits".to_owned()),
        (
            "batchweave verify --job demo".to_owned(),
            "the proof".to_owned(),
        ),
        (
            format!("batchweave-consumer --config {folder}/consumer.toml"),
            format!("the status page: http://127.0.0.1:{}/", summary.admin),
        ),
    ];
    let remove = (
        format!("rm -r {folder}"),
        "ends it; configuration and logs are there, too".to_owned(),
    );
    // The embedded server ended with the demo, and its objects with it.
    let stays = args.store != DemoStore::S3;
    let rows: Vec<_> = look.into_iter().filter(|_| stays).chain([remove]).collect();
    format!("\nLook at it:\n{}", aligned(&rows).join("\n"))
}

/// Formats the commands with their purposes in a column.
fn aligned(rows: &[(String, String)]) -> Vec<String> {
    let width = rows
        .iter()
        .map(|(command, _)| command.len())
        .max()
        .unwrap_or(0);
    let row = |(command, why): &(String, String)| match why.as_str() {
        "" => format!("  {command}"),
        why => format!("  {command:width$}  # {why}"),
    };
    rows.iter().map(row).collect()
}
