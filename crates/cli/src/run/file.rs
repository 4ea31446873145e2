//! The file of `batchweave run`: the tables of both daemons' files, each once. The daemons read it
//! themselves, each without the other's tables and with the keys that `run` sets on its command line.

use std::path::Path;
use std::time::Duration;

use batchweave_console::GlobalArgs;
use batchweave_console::programs::Name;
use batchweave_daemon::config::{Config, Period, Problem, StoreConfig, other_names};
use batchweave_store::{PathStyle, root_url};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::disk::Disk;
use super::lead::Lead;

/// A table whose keys only its daemon knows.
type Table = Map<String, Value>;

/// The job that the consumer opens when the file names none.
const JOB: &str = "train";
/// The producer's name when the file has none.
const PRODUCER: &str = "tokens-0";

/// Tables of the producer alone.
const PRODUCER_TABLES: [&str; 15] = [
    "stream",
    "producer",
    "source",
    "sources",
    "inbox",
    "mixture",
    "split",
    "stages",
    "tokenizer",
    "transform",
    "packing",
    "chat",
    "upload",
    "commit",
    "ahead",
];
/// Tables of the consumer alone.
const CONSUMER_TABLES: [&str; 6] = ["job", "arena", "socket", "prefetch", "follow", "reclaim"];

/// The content of the file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RunFile {
    store: Table,
    stream: Table,
    producer: Table,
    source: Table,
    sources: Vec<Table>,
    inbox: Table,
    mixture: Table,
    split: Table,
    stages: Vec<Table>,
    tokenizer: Table,
    transform: Table,
    packing: Table,
    chat: Table,
    upload: Table,
    commit: Table,
    ahead: Table,
    job: Table,
    arena: Table,
    socket: Table,
    prefetch: Table,
    follow: Table,
    reclaim: Table,
    shutdown: Table,
    admin: Table,
    log: Table,
}

/// One of the two daemons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Producer,
    Consumer,
}

impl Config for RunFile {
    fn hint(key: &str, _: Option<&str>) -> Option<String> {
        other_names::of_producer(key).or_else(|| other_names::of_consumer(key))
    }

    fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if text(&self.store, "url").is_none_or(str::is_empty) {
            problems.push(StoreConfig::without_url());
        }
        if text(&self.admin, "listen") == Some("off") {
            let message = "must be an address: `batchweave run` reads the daemons' numbers there";
            problems.push(Problem::new("admin.listen", message));
        }
        problems
    }
}

impl Role {
    /// Returns the program that plays this role.
    pub(super) const fn program(self) -> Name {
        match self {
            Self::Producer => Name::Producer,
            Self::Consumer => Name::Consumer,
        }
    }

    /// Returns the name that messages and log files have.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Consumer => "consumer",
        }
    }

    /// Returns the tables of the file that this daemon does not read.
    const fn ignored(self) -> &'static [&'static str] {
        match self {
            Self::Producer => &CONSUMER_TABLES,
            Self::Consumer => &PRODUCER_TABLES,
        }
    }
}

impl RunFile {
    /// Returns the daemons' own deadline for stopping where the file has one.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let deadline: Option<Period> = text(&self.shutdown, "deadline")?.parse().ok();
        deadline.map(|period| period.0)
    }

    /// Returns the options of the stream's store; those of the command line come first.
    pub(super) fn global(&self, given: &GlobalArgs) -> GlobalArgs {
        let key = |name| text(&self.store, name).filter(|value| !value.is_empty());
        let or = |given: &Option<String>, name| given.clone().or(key(name).map(str::to_owned));
        GlobalArgs {
            store: or(&given.store, "url").map(|url| root_url(&url).into_owned()),
            path_style: self.path_style(),
            endpoint: or(&given.endpoint, "endpoint"),
            region: or(&given.region, "region"),
            ..given.clone()
        }
    }

    /// Returns the path style of the store; the daemons report a wrong value.
    fn path_style(&self) -> PathStyle {
        let value = self.store.get("path_style");
        let style = value.map(|value| serde_json::from_value(value.clone()));
        style.and_then(Result::ok).unwrap_or_default()
    }

    /// Returns the names of the jobs that the consumer serves.
    pub(super) fn jobs(&self) -> Vec<String> {
        let names: Vec<String> = self
            .job
            .get("names")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        if names.is_empty() {
            return vec![text(&self.job, "name").unwrap_or(JOB).to_owned()];
        }
        names
    }

    /// Returns the producer's name.
    pub(super) fn producer(&self) -> &str {
        text(&self.producer, "name").unwrap_or(PRODUCER)
    }

    /// Returns the socket's path where the file names one.
    pub(super) fn socket(&self) -> Option<&Path> {
        text(&self.socket, "path").map(Path::new)
    }

    /// Returns the address of the consumer's status page where the file names one.
    pub(super) fn listen(&self) -> Option<&str> {
        text(&self.admin, "listen")
    }

    /// Returns whether batches hold samples and no tokens.
    pub(super) fn opaque(&self) -> bool {
        text(&self.packing, "mode") == Some("opaque")
    }

    /// Returns the bound on the producer's lead, with a store at `url`.
    pub(super) fn lead(&self, url: &str) -> Lead {
        Lead::new(&self.ahead, &self.job, url)
    }

    /// Returns the store at `url` of a producer that a full disk ends.
    pub(super) fn disk(&self, url: &str) -> Option<Disk> {
        Disk::new(url, &self.packing, &self.reclaim)
    }

    /// Returns the options of a daemon's command line that make its configuration of this file.
    pub(super) fn options(
        &self,
        role: Role,
        given: &GlobalArgs,
        socket: &Path,
        lead: &Lead,
    ) -> Vec<String> {
        let mut set = Vec::new();
        let shared = [
            ("store.url", &given.store),
            ("store.endpoint", &given.endpoint),
            ("store.region", &given.region),
        ];
        for (key, value) in shared {
            set.extend(value.as_ref().map(|value| assignment(key, value)));
        }
        match role {
            Role::Producer => {
                self.add_producer(&mut set);
                set.extend(lead.assignments());
            }
            Role::Consumer => self.add_consumer(&mut set, socket),
        }
        let settings = set.into_iter().flat_map(|one| ["--set".to_owned(), one]);
        let ignored = role
            .ignored()
            .iter()
            .flat_map(|table| ["--ignore".to_owned(), (*table).to_owned()]);
        ignored.chain(settings).collect()
    }

    /// Adds the settings of a producer that the file leaves out.
    fn add_producer(&self, set: &mut Vec<String>) {
        let name = self.producer();
        if !self.producer.contains_key("name") {
            set.push(assignment("producer.name", name));
        }
        if !self.stream.contains_key("producers") {
            set.push(format!("stream.producers=[{}]", Value::from(name)));
        }
    }

    /// Adds the settings of a consumer that the file leaves out.
    fn add_consumer(&self, set: &mut Vec<String>, socket: &Path) {
        if !["name", "names"]
            .iter()
            .any(|key| self.job.contains_key(*key))
        {
            set.push(assignment("job.name", JOB));
        }
        if !self.job.contains_key("open") {
            set.push("job.open=true".to_owned());
        }
        if self.socket().is_none() {
            set.push(assignment("socket.path", &socket.display().to_string()));
        }
    }
}

/// Returns the argument of `--set`; a JSON string is a TOML string too.
pub(super) fn assignment(key: &str, value: &str) -> String {
    format!("{key}={}", Value::from(value))
}

fn text<'t>(table: &'t Table, key: &str) -> Option<&'t str> {
    table.get(key).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use batchweave_daemon::config::parse;

    use super::*;

    const SHIPPED: &str = include_str!("../../../../config/run.toml");

    fn tables(text: &str) -> BTreeSet<&str> {
        let lines = text.lines().filter_map(|line| line.strip_prefix('['));
        let tables = lines.filter_map(|line| line.strip_suffix(']'));
        let outermost = tables.map(|table| table.split('.').next().unwrap_or(table));
        let mut tables: BTreeSet<&str> = outermost.collect();
        // The shipped file has an array of tables as a comment only, beside the table for one source.
        for list in ["sources", "stages"] {
            if text.contains(&format!("\n# [[{list}]]")) {
                tables.insert(list);
            }
        }
        tables
    }

    fn options(text: &str, role: Role) -> String {
        let file: RunFile = parse("run.toml", text).unwrap();
        let lead = Lead::Given(None);
        file.options(role, &GlobalArgs::default(), Path::new("/x/y.sock"), &lead)
            .join(" ")
    }

    /// A new table of a daemon's file must be known here, and its daemon.
    #[test]
    fn every_table_of_the_daemons_files_is_known_and_its_daemon() {
        let producer = tables(include_str!("../../../../config/producer.toml"));
        let consumer = tables(include_str!("../../../../config/consumer.toml"));
        let known = serde_json::to_value(RunFile::default()).unwrap();
        let known: BTreeSet<&str> = known
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(known, &producer | &consumer);
        assert_eq!(&producer - &consumer, BTreeSet::from(PRODUCER_TABLES));
        assert_eq!(&consumer - &producer, BTreeSet::from(CONSUMER_TABLES));
        assert!(tables(SHIPPED).is_subset(&known));
        let shipped: RunFile = parse("config/run.toml", SHIPPED).unwrap();
        assert_eq!(shipped.jobs(), [JOB]);
        assert_eq!(shipped.producer(), PRODUCER);
    }

    #[test]
    fn keys_of_the_file_override_keys_of_run() {
        let base = "store.url = \"file:///x\"\n";
        let producer = options(base, Role::Producer);
        assert!(
            producer.ends_with(
                "--ignore reclaim --set producer.name=\"tokens-0\" --set stream.producers=[\"tokens-0\"]"
            ),
            "{producer}"
        );
        let consumer = options(base, Role::Consumer);
        assert!(
            consumer.ends_with(
                "--ignore ahead --set job.name=\"train\" --set job.open=true --set socket.path=\"/x/y.sock\""
            ),
            "{consumer}"
        );
        let several = options(
            &format!("{base}job.names = [\"a\", \"b\"]\n"),
            Role::Consumer,
        );
        assert!(!several.contains("job.name"), "{several}");
        let named = "producer.name = \"a\"\nstream.producers = []\n\
                     job = { name = \"b\", open = false }\nsocket.path = \"/z\"\n";
        for role in [Role::Producer, Role::Consumer] {
            let options = options(&format!("{base}{named}"), role);
            assert!(!options.contains("--set"), "{options}");
        }
    }

    #[test]
    fn mistakes_are_located_and_the_nearest_table_is_named() {
        let why = |text: &str| parse::<RunFile>("f.toml", text).unwrap_err().to_string();
        let all = why("[sorce]\npaths = []\n[admin]\nlisten = \"off\"\n");
        for part in [
            "f.toml:1:2: sorce: unknown key; did you mean `source`?",
            "store.url: must be given",
            "f.toml:4:1: admin.listen: must be an address",
        ] {
            assert!(all.contains(part), "{part} in {all}");
        }
        assert!(why("[store\n").contains("syntax"));
    }
}
