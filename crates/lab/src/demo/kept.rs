//! The commands to look at the things that `--keep` leaves.

use std::path::Path;

use super::summary::Summary;
use super::{DemoArgs, DemoStore};

/// Returns the commands as lines.
pub(super) fn commands(args: &DemoArgs, folder: &Path, summary: &Summary) -> String {
    let (folder, store) = (folder.display(), &summary.store);
    let mut lines = Vec::new();
    if args.store == DemoStore::S3 {
        lines.push(
            "# the stream ended with the embedded server; without --store s3 it stays, too"
                .to_owned(),
        );
    } else {
        let a = &summary.aftermath;
        let newest = a.head.saturating_sub(1);
        lines.extend([
            format!("export BATCHWEAVE_STORE={store}"),
            "batchweave status                # how much there is, and the job that read it".to_owned(),
            format!(
                "batchweave show {newest} --decode    # a step's text and documents; {} to {newest} are kept",
                a.reclaimed
            ),
            "batchweave log --limit 20        # the newest commits".to_owned(),
            "batchweave verify --job demo     # the proof".to_owned(),
            format!("batchweave-consumer --config {folder}/consumer.toml"),
            format!("                                 # its status page: http://127.0.0.1:{}/", summary.admin),
        ]);
    }
    lines.push(format!(
        "rm -r {folder}   # removes it all, with configuration and logs"
    ));
    let lines: Vec<String> = lines.iter().map(|line| format!("  {line}")).collect();
    format!("Look at it:\n{}", lines.join("\n"))
}
