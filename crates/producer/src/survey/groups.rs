//! The files of a survey by format. Texts come in two kinds: prose, and each other ending for itself, since any name that
//! no format takes counts as a text.

use std::collections::{BTreeMap, BTreeSet};

use batchweave_daemon::survey::Unread;

use super::shorter;
use crate::sources::{Format, InputFile, ending};

/// Endings of texts that people write, without that of a compression.
const PROSE: [&str; 12] = [
    "txt", "text", "md", "markdown", "rst", "adoc", "org", "tex", "html", "htm", "xml", "srt",
];

/// Files of one format.
pub(super) struct FoundGroup {
    pub(super) format: Format,
    pub(super) files: Vec<InputFile>,
    /// The files are texts that people write.
    pub(super) prose: bool,
    /// The endings of their names.
    pub(super) endings: BTreeSet<String>,
}

/// Returns the files that no format reads, by reason, and all others.
pub(super) fn unread(files: Vec<InputFile>) -> (Vec<Unread>, Vec<InputFile>) {
    let mut unread: BTreeMap<&str, Unread> = BTreeMap::new();
    let mut rest = Vec::new();
    for file in files {
        let Some(why) = Format::refusal(&file.pin.name) else {
            rest.push(file);
            continue;
        };
        let own = unread.entry(why).or_insert_with(|| Unread {
            first: shorter(&file.pin.name),
            why: why.to_owned(),
            files: 0,
        });
        own.files += 1;
    }
    (unread.into_values().collect(), rest)
}

/// Returns the files by format.
pub(super) fn groups(files: Vec<InputFile>) -> Vec<FoundGroup> {
    let mut groups: BTreeMap<(String, String), FoundGroup> = BTreeMap::new();
    for file in files {
        let format = Format::Auto.for_file(&file.pin.name);
        let ending = ending(&file.pin.name).to_owned();
        let kind = kind(&ending).filter(|_| format == Format::Text);
        let prose = format == Format::Text && kind.is_none();
        let key = (format.key(), kind.unwrap_or_default());
        let group = groups.entry(key).or_insert_with(|| FoundGroup {
            format,
            files: Vec::new(),
            prose,
            endings: BTreeSet::new(),
        });
        group.endings.insert(ending);
        group.files.push(file);
    }
    groups.into_values().collect()
}

/// Returns the kind of texts with this ending; `None` for prose.
fn kind(ending: &str) -> Option<String> {
    let lower = ending.to_ascii_lowercase();
    let first = lower.trim_start_matches('.').split('.').next();
    let prose = first.is_some_and(|name| PROSE.contains(&name));
    (!prose).then_some(lower)
}
