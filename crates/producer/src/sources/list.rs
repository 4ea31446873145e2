//! The list of input files with their names, sizes and fingerprints. A place counts files by their index in
//! this list, so a list that differs from the cursor's is an error, which names every file that differs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use batchweave_core::inputs::{PinnedFile, earlier_fingerprint};

use super::SourceError;
use super::find::ends;
use super::input_error::shown;
use super::input_file::{InputFile, Location};
use super::left_out::LeftOut;

/// All input files in their order.
#[derive(Debug, Clone, Default)]
pub struct InputList {
    pub files: Vec<InputFile>,
    /// The files of the same paths that are left out.
    pub left_out: LeftOut,
}

impl InputList {
    /// Returns the list of `files`.
    pub fn of(files: Vec<InputFile>) -> Self {
        Self {
            files,
            left_out: LeftOut::default(),
        }
    }

    /// Returns the cursor's list `pins`, followed by the files of this one that it lacks. Files that are `over` (by index
    /// and pin) are never read again, so they may be missing or different; every other difference is an error.
    pub fn resumed(
        self,
        pins: Vec<PinnedFile>,
        over: impl Fn(usize, &PinnedFile) -> bool,
    ) -> Result<Self, SourceError> {
        let pinned: BTreeSet<String> = pins.iter().map(|pin| pin.name.clone()).collect();
        let (old, new): (Vec<_>, Vec<_>) =
            (self.files.into_iter()).partition(|file| pinned.contains(&file.pin.name));
        let mut old: BTreeMap<String, InputFile> = old
            .into_iter()
            .map(|file| (file.pin.name.clone(), file))
            .collect();
        let (mut files, mut differences) = (Vec::new(), Vec::new());
        let left_out = self.left_out;
        for (n, pin) in pins.into_iter().enumerate() {
            let found = old.remove(&pin.name);
            if !over(n, &pin) {
                differences.extend(difference(&pin, found.as_ref(), &left_out));
            }
            let gone = || Location::Local(PathBuf::from(&pin.name));
            let location = found.map_or_else(gone, |file| file.location);
            files.push(InputFile { pin, location });
        }
        if !differences.is_empty() {
            return Err(SourceError::Changed { differences });
        }
        files.extend(new);
        Ok(Self { files, left_out })
    }

    /// The same for the sources: those that are `followed` grow, each by the next number; the others must be as they
    /// were, except for `added` ones. More `differences` are errors, too.
    pub fn resumed_sources(
        self,
        pins: Vec<PinnedFile>,
        (followed, added): (&BTreeSet<String>, &BTreeSet<String>),
        over: impl Fn(usize, &PinnedFile) -> bool,
        more: Vec<String>,
    ) -> Result<Self, SourceError> {
        let grows = |pin: &PinnedFile| followed.contains(pin.source.as_deref().unwrap_or_default());
        let fixed: Vec<PinnedFile> = pins.iter().filter(|pin| !grows(pin)).cloned().collect();
        let others = &(followed | added);
        let mut differences = self.without(others).differences(&fixed);
        differences.extend(more);
        if !differences.is_empty() {
            return Err(SourceError::Changed { differences });
        }
        let mut next: BTreeMap<String, u64> = BTreeMap::new();
        for pin in pins.iter().filter(|pin| grows(pin)) {
            let growth = next
                .entry(pin.source.clone().unwrap_or_default())
                .or_default();
            *growth = (*growth).max(pin.growth + 1);
        }
        let known = pins.len();
        let mut list = self.resumed(pins, |n, pin| !grows(pin) || over(n, pin))?;
        for file in list.files.iter_mut().skip(known) {
            let own = file.pin.source.as_deref().unwrap_or_default();
            file.pin.growth = next.get(own).copied().unwrap_or(0);
        }
        Ok(list)
    }

    /// Returns the list without the files of these sources.
    fn without(&self, sources: &BTreeSet<String>) -> Self {
        let of = |file: &InputFile| {
            let own = file.pin.source.as_deref().unwrap_or_default();
            sources.contains(own)
        };
        let files = self.files.iter().filter(|file| !of(file));
        Self {
            files: files.cloned().collect(),
            left_out: self.left_out.clone(),
        }
    }

    /// Returns one line for each file that differs from the pinned list, at most 20.
    pub fn differences(&self, pinned: &[PinnedFile]) -> Vec<String> {
        let now: BTreeMap<&str, &InputFile> = self
            .files
            .iter()
            .map(|file| (file.pin.name.as_str(), file))
            .collect();
        let then: BTreeSet<&str> = pinned.iter().map(|p| p.name.as_str()).collect();
        let mut lines: Vec<String> = pinned
            .iter()
            .filter_map(|was| difference(was, now.get(was.name.as_str()).copied(), &self.left_out))
            .collect();
        lines.extend(
            now.values()
                .filter(|file| !then.contains(file.pin.name.as_str()))
                .map(|file| format!("{}: is new{}", shown(&file.pin.name), found_since(file))),
        );
        let moved = self
            .files
            .iter()
            .zip(pinned)
            .find(|(is, was)| is.pin.name != was.name);
        if let (true, Some((is, was))) = (lines.is_empty(), moved) {
            lines.push(format!(
                "{}: is now at the place of {}; source.paths were reordered",
                is.pin.name, was.name
            ));
        }
        if lines.len() > 20 {
            let more = lines.len() - 20;
            lines.truncate(20);
            lines.push(format!("and {more} more"));
        }
        lines
    }
}

/// Returns why a new file may have been there before, when earlier releases left it out.
fn found_since(file: &InputFile) -> &'static str {
    let is_ours = |c: char| c.is_ascii_alphanumeric() || "/._@=-".contains(c);
    match &file.location {
        Location::Remote { key, .. } if !key.chars().all(is_ours) => {
            ", or was left out by an earlier release, which read only keys of letters, digits and . _ @ = -"
        }
        _ => "",
    }
}

fn difference(was: &PinnedFile, is: Option<&InputFile>, left_out: &LeftOut) -> Option<String> {
    let name = shown(&was.name);
    match is.map(|file| (file, &file.pin)) {
        None => Some(match left_out.cause(&was.name) {
            Some(why) => format!("{name}: is left out now: {why}"),
            None => format!("{name}: has vanished"),
        }),
        Some((_, is)) if is.size != was.size => Some(format!(
            "{name}: has changed, from {} to {} bytes",
            was.size, is.size
        )),
        Some((file, _)) if !has_same_content(was, file) => {
            Some(format!("{name}: has changed its content"))
        }
        Some((_, is)) if is.source != was.source => {
            let of = |pin: &PinnedFile| pin.source.clone().unwrap_or("[source]".to_owned());
            Some(format!(
                "{name}: has moved from source {} to {}",
                of(was),
                of(is)
            ))
        }
        Some(_) => None,
    }
}

/// Compares fingerprints; for one that an earlier release made, the ends of the file are read again.
fn has_same_content(was: &PinnedFile, is: &InputFile) -> bool {
    if let Location::Local(path) = &is.location
        && was.has_earlier_fingerprint()
    {
        let again = ends(path).map(|(_, head, tail)| earlier_fingerprint(&head, &tail));
        return again.is_ok_and(|again| again == was.fingerprint);
    }
    is.pin.fingerprint == was.fingerprint
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::find::pin_local;
    use crate::sources::input_file::FINGERPRINT_BYTES;

    fn list(files: &[(&str, &[u8])]) -> InputList {
        let file = |(name, content): &(&str, &[u8])| InputFile {
            pin: PinnedFile::new((*name).to_owned(), content.len() as u64, content, b""),
            location: Location::Local(PathBuf::from(name)),
        };
        InputList::of(files.iter().map(file).collect())
    }

    #[test]
    fn a_pin_of_an_earlier_release_is_compared_with_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let content = vec![7; 3 * FINGERPRINT_BYTES as usize];
        std::fs::write(&path, &content).unwrap();
        let now = || InputList::of(vec![pin_local(path.clone()).unwrap()]);
        let mut was = now().files[0].pin.clone();
        assert!(!was.has_earlier_fingerprint());
        let end = &content[..FINGERPRINT_BYTES as usize];
        was.fingerprint = earlier_fingerprint(end, end);
        assert!(was.has_earlier_fingerprint());
        assert_eq!(
            now().differences(std::slice::from_ref(&was)),
            Vec::<String>::new()
        );
        let resumed = now().resumed(vec![was.clone()], |_, _| false).unwrap();
        assert_eq!(resumed.files[0].pin, was, "the list keeps its pins");
        let mut changed = content;
        changed[5] = 8;
        std::fs::write(&path, &changed).unwrap();
        let found = now().differences(&[was]);
        assert!(found[0].ends_with("has changed its content"), "{found:?}");
    }

    #[test]
    fn every_difference_names_its_file() {
        let was = list(&[("a", b"1"), ("b", b"22"), ("c", b"3"), ("d", b"4")]);
        let pins: Vec<PinnedFile> = was.files.iter().map(|file| file.pin.clone()).collect();
        assert_eq!(was.differences(&pins), Vec::<String>::new());
        let is = list(&[("a", b"1"), ("b", b"222"), ("c", b"x"), ("e", b"5")]);
        assert_eq!(
            is.differences(&pins),
            [
                "b: has changed, from 2 to 3 bytes",
                "c: has changed its content",
                "d: has vanished",
                "e: is new"
            ]
        );
        let grown = list(&[("c", b"3"), ("d", b"4"), ("aa", b"5")]);
        let resumed = grown.clone().resumed(pins.clone(), |n, _| n < 2).unwrap();
        let names: Vec<&str> = resumed.files.iter().map(|f| f.pin.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d", "aa"]);
        let why = grown
            .resumed(pins.clone(), |n, _| n < 1)
            .unwrap_err()
            .to_string();
        assert!(
            why.contains("b: has vanished") && !why.contains("a: "),
            "{why}"
        );
        let turned = list(&[("b", b"22"), ("a", b"1"), ("c", b"3"), ("d", b"4")]);
        assert_eq!(
            turned.differences(&pins),
            ["b: is now at the place of a; source.paths were reordered"]
        );
    }
}
