//! The report of `--check`: what it opened, and one line per fault; and the part of the check that both daemons
//! share, the store.

use std::fmt::{Display, Write as _};
use std::path::Path;
use std::sync::Arc;

use batchweave_store::{OpenOptions, Patience, Store, StoreError, list_all};

/// The results of opening what a configuration names.
#[derive(Debug, Default)]
pub struct Findings {
    opened: Vec<(&'static str, String)>,
    faults: Vec<String>,
}

impl Findings {
    /// Adds a line about something that was opened.
    pub fn opened(&mut self, name: &'static str, text: impl Into<String>) {
        self.opened.push((name, text.into()));
    }

    /// Adds a fault of the configuration key or file `place`, which is left out where the text begins with it.
    pub fn fault(&mut self, place: &str, why: impl Display) {
        let why = one_line(&why.to_string());
        let named = place.is_empty() || why.starts_with(place);
        let fault = if named {
            why
        } else {
            format!("{place}: {why}")
        };
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// Returns whether nothing is wrong.
    pub fn is_ok(&self) -> bool {
        self.faults.is_empty()
    }

    /// Returns all faults in the form of the problems of a file, one line each; `None` without a fault.
    pub fn problems(&self, file: &Path) -> Option<String> {
        let file = file.display();
        match &self.faults[..] {
            [] => None,
            [one] => Some(format!("{file}: {one}")),
            faults => {
                let mut text = format!("{file} has {} problems:", faults.len());
                for fault in faults {
                    let _ = write!(text, "\n  {file}: {fault}");
                }
                Some(text)
            }
        }
    }

    /// Returns the lines about what was opened.
    pub fn report(&self, file: &Path) -> String {
        let width = self
            .opened
            .iter()
            .map(|(name, _)| name.len())
            .max()
            .unwrap_or_default();
        let mut text = format!("{}: ok", file.display());
        for (name, line) in &self.opened {
            let _ = write!(text, "\n  {name:width$}  {line}");
        }
        text
    }
}

/// Joins the lines of a message to one.
fn one_line(text: &str) -> String {
    let mut joined = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if !joined.is_empty() {
            joined.push_str(if joined.ends_with([':', ';']) {
                " "
            } else {
                "; "
            });
        }
        joined.push_str(line);
    }
    joined
}

/// Opens the store at `url` and asks for an object that is absent, with short tries, because a person waits.
pub async fn open_store(url: &str, options: &OpenOptions) -> Result<Arc<dyn Store>, StoreError> {
    let options = OpenOptions {
        patience: Patience::Short,
        create: false,
        ..options.clone()
    };
    let store = batchweave_store::open(url, &options).await?;
    batchweave_store::probe_read(store.as_ref(), rand_name()).await?;
    Ok(store)
}

/// Races conditional creates, as a producer does when it starts, and deletes their objects; also after Ctrl-C.
/// Returns the number of objects that these credentials could not delete.
pub async fn check_creates(store: &dyn Store, largest: u64) -> Result<usize, StoreError> {
    let random = rand_name();
    let outcome = tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => None,
        outcome = batchweave_store::probe(store, random, largest) => Some(outcome),
    };
    let left = clean(store, &format!("probe/{random:016x}/")).await;
    match outcome {
        Some(outcome) => outcome.map(|()| left),
        None => std::process::exit(130),
    }
}

/// Deletes the objects of the check below `folder`; returns the number of those that remain.
async fn clean(store: &dyn Store, folder: &str) -> usize {
    let mut keys = Vec::new();
    // A store that refuses a listing has deleted the objects right after each race, or never will.
    if list_all(store, folder, |object| keys.push(object.key))
        .await
        .is_err()
    {
        return 0;
    }
    let mut left = 0;
    for key in keys {
        left += usize::from(store.delete(&key).await.is_err());
    }
    if let Some(inspect) = store.inspect() {
        let _ = inspect.tidy(folder).await;
    }
    left
}

/// Returns a random number for the names of temporary objects.
fn rand_name() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use batchweave_store::memory::MemoryStore;

    use super::*;

    #[test]
    fn faults_are_one_line_each_and_name_their_place_once() {
        let mut findings = Findings::default();
        assert!(findings.is_ok() && findings.problems(Path::new("p.toml")).is_none());
        findings.opened("store", "readable");
        findings.opened("tokenizer", "gpt2");
        assert_eq!(
            findings.report(Path::new("p.toml")),
            "p.toml: ok\n  store      readable\n  tokenizer  gpt2"
        );
        findings.fault("source.paths", "source.paths: x matches no file");
        findings.fault(
            "store.url",
            "it differs:\n  slices: 1\n  order: 2\nset them back",
        );
        findings.fault(
            "store.url",
            "it differs:\n  slices: 1\n  order: 2\nset them back",
        );
        assert_eq!(
            findings.problems(Path::new("p.toml")).unwrap(),
            "p.toml has 2 problems:\n  p.toml: source.paths: x matches no file\n  \
             p.toml: store.url: it differs: slices: 1; order: 2; set them back"
        );
    }

    #[tokio::test]
    async fn a_check_of_creates_leaves_nothing_behind() {
        let store = MemoryStore::new();
        assert_eq!(check_creates(store.as_ref(), 1 << 20).await.unwrap(), 0);
        let mut count = 0;
        list_all(store.as_ref(), "", |_| count += 1).await.unwrap();
        assert_eq!(count, 0);
    }
}
