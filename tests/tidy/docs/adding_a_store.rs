//! The page "Adding a store" lists the files that name a cloud, and no other file does.

use std::collections::BTreeSet;

use super::pages;
use crate::assert_none;
use crate::files::sources;

/// Clouds: the name of the folder in `crates/store/src`, which is a word of each file that names it.
const CLOUDS: [&str; 2] = ["gcs", "azure"];

/// Whether a line of code, comments aside, has a name that begins with the cloud's.
fn names(line: &str, cloud: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    code.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .any(|word| word.to_lowercase().starts_with(cloud))
}

/// Files outside of the cloud's folder whose code names it.
fn files_with(cloud: &str) -> BTreeSet<String> {
    let own = format!("crates/store/src/{cloud}/");
    sources(&["rs"])
        .into_iter()
        .filter(|(file, _)| file.starts_with("crates/") && file.contains("/src/"))
        .filter(|(file, _)| !file.starts_with(&own))
        .filter(|(_, text)| text.lines().any(|line| names(line, cloud)))
        .map(|(file, _)| file)
        .collect()
}

/// Files that the page lists.
fn listed() -> BTreeSet<String> {
    let pages = pages();
    let page = pages.iter().find(|page| page.name == "docs/stores.md");
    let text = &page.unwrap().text;
    let section = text.split("## Adding a store").nth(1).unwrap();
    section
        .lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_digit()))
        .filter_map(|line| line.split('`').nth(1).map(str::to_owned))
        .collect()
}

#[test]
fn the_page_lists_the_files_that_name_a_cloud() {
    let listed = listed();
    assert_eq!(listed.len(), 6, "{listed:?}");
    let mut found = Vec::new();
    for cloud in CLOUDS {
        let files = files_with(cloud);
        let unlisted = files.difference(&listed);
        found.extend(unlisted.map(|file| format!("{file} names {cloud} and is not listed")));
        let idle = listed.difference(&files);
        found.extend(idle.map(|file| format!("{file} is listed and does not name {cloud}")));
    }
    assert_none("docs/stores.md, Adding a store", &found);
}
