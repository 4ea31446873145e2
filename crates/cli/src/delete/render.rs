//! The text of `batchweave delete`.

use std::fmt::Write as _;

use batchweave_console::output::{Style, bytes, cells, count, table};

use super::{DeleteReport, Listing};

/// Keys of others that the text names.
const FOREIGN_SHOWN: usize = 3;

pub(super) fn text(report: &DeleteReport, style: Style) -> String {
    let id = report
        .stream
        .map_or(String::new(), |id| format!(", stream {id}"));
    let mut text = format!("{}{id}\n", style.bold(&report.root));
    if report.resumed {
        text.push_str("an earlier deletion was interrupted\n");
    }
    let listing = &report.listing;
    let rows = listing
        .classes
        .iter()
        .map(|(class, tally)| (*class, tally))
        .chain([("total", &listing.total)])
        .map(|(class, tally)| cells![class, tally.objects, bytes(tally.bytes)]);
    text.push_str(&table(style, &["CLASS", "OBJECTS", "BYTES"], rows));
    if listing.foreign.objects > 0 {
        push_foreign(&mut text, listing);
    }
    for reason in &report.in_use {
        let _ = writeln!(text, "{}", style.yellow(reason));
    }
    match report.deleted {
        Some(deleted) => {
            let objects = count(deleted, "object");
            text.push_str(&style.green(&format!("{objects} deleted; the stream is gone")));
        }
        None => text.push_str("nothing was deleted; --apply deletes it"),
    }
    text
}

fn push_foreign(text: &mut String, listing: &Listing) {
    let objects = count(listing.foreign.objects, "object");
    let shown = listing
        .foreign_keys
        .iter()
        .take(FOREIGN_SHOWN)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    let _ = writeln!(
        text,
        "not BatchWeave's, left: {objects}, for example {shown}"
    );
}
