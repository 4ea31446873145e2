//! The text of `batchweave delete`.

use std::fmt::Write as _;

use batchweave_console::output::{Style, bytes, cells, count, printable, table};

use super::{DeleteReport, Listing};

/// Most keys of others that the text names.
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
        None if report.in_use.is_empty() && !report.forced => {
            text.push_str("nothing was deleted; --apply deletes it");
        }
        None => text.push_str("nothing was deleted; --apply --force deletes it nevertheless"),
    }
    text
}

fn push_foreign(text: &mut String, listing: &Listing) {
    let objects = count(listing.foreign.objects, "object");
    let keys = listing.foreign_keys.iter().take(FOREIGN_SHOWN);
    let shown: Vec<_> = keys.map(|key| printable(key)).collect();
    let few = listing.foreign.objects as usize <= shown.len();
    let which = if few { "" } else { "for example " };
    let shown = shown.join(", ");
    let _ = writeln!(text, "not BatchWeave's, left: {objects} ({which}{shown})");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delete::listing::Tally;

    #[test]
    fn keys_of_others_are_named_without_their_control_characters() {
        let named = |objects: u64, keys: &[&str]| {
            let mut listing = Listing::default();
            listing.foreign = Tally { objects, bytes: 0 };
            listing.foreign_keys = keys.iter().map(|key| (*key).to_owned()).collect();
            let mut text = String::new();
            push_foreign(&mut text, &listing);
            text
        };
        assert_eq!(
            named(2, &["a\u{1b}[31mred\n", "notes.txt"]),
            "not BatchWeave's, left: 2 objects (a\\u{1b}[31mred\\n, notes.txt)\n"
        );
        assert_eq!(
            named(4, &["a", "b", "c", "d"]),
            "not BatchWeave's, left: 4 objects (for example a, b, c)\n"
        );
    }
}
