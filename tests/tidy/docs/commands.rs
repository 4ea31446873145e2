//! Every `batchweave ...` in the documentation is a verb that exists, with options that it has. The
//! sources of the command line are read as text: this test needs no built program.

use std::collections::BTreeMap;
use std::fs;

use super::{lines, pages};
use crate::{assert_none, root};

/// Options of a program or verb, and whether each takes a value.
type Options = BTreeMap<String, bool>;

/// Text that looks like a command line: the bytes before a digest.
const NO_COMMANDS: [&str; 1] = ["batchweave tgb digest 1\\n"];

struct Programs {
    global: Options,
    verbs: BTreeMap<String, Options>,
    daemons: BTreeMap<&'static str, Options>,
}

fn source(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

impl Programs {
    fn read() -> Self {
        let args = source("crates/cli/src/args.rs");
        let with_options = verbs(&args).into_iter().map(|verb| {
            let file = match verb.as_str() {
                "dev-s3" => "crates/dev-s3/src/command.rs".to_owned(),
                "demo" => "crates/lab/src/demo/mod.rs".to_owned(),
                "bench" => "crates/lab/src/bench/growth/mod.rs".to_owned(),
                "run" | "quickstart" => format!("crates/cli/src/{verb}/mod.rs"),
                "where" => "crates/cli/src/locate.rs".to_owned(),
                "plan" => "crates/lab/src/plan/mod.rs".to_owned(),
                "generate" => "crates/lab/src/generate.rs".to_owned(),
                "status" | "ui" => format!("crates/views/src/{verb}.rs"),
                "verify" => "crates/verify/src/lib.rs".to_owned(),
                plain => format!("crates/cli/src/{}.rs", plain.replace('-', "_")),
            };
            let mut options = options(&source(&file));
            if verb == "mixture" {
                let drive = source("crates/cli/src/mixture/drive/settings.rs");
                options.extend(self::options(&drive));
            }
            if verb == "bench" {
                for more in [
                    "reclaim/mod",
                    "fetch/mod",
                    "producing/mod",
                    "producing/ingest",
                    "producing/produce",
                ] {
                    let file = format!("crates/lab/src/bench/{more}.rs");
                    options.extend(self::options(&source(&file)));
                }
            }
            (verb, options)
        });
        let verbs: BTreeMap<_, _> = with_options.collect();
        assert!(verbs.len() > 5, "the verbs were not found");
        let daemon = |name: &'static str| (name, options(&source("crates/daemon/src/program.rs")));
        Self {
            global: options(&source("crates/console/src/global.rs")),
            verbs,
            daemons: ["batchweave-producer", "batchweave-consumer"]
                .map(daemon)
                .into(),
        }
    }

    /// The fault of a command line, if any; `words` begins with the program's name.
    fn fault(&self, words: &[&str]) -> Option<String> {
        let program = words.first()?.rsplit('/').next()?;
        if let Some(options) = self.daemons.get(program) {
            return check(&words[1..], &[options], &mut Vec::new());
        }
        let mut plain = Vec::new();
        // Verb and options may stand in any order: find the verb first.
        let all: Vec<&Options> = std::iter::once(&self.global)
            .chain(self.verbs.values())
            .collect();
        if let Some(fault) = check(&words[1..], &all, &mut plain) {
            return Some(fault);
        }
        let verb = plain.first()?;
        match self.verbs.get(*verb) {
            None if *verb == "VERB" => None,
            None => Some(format!("there is no verb {verb}")),
            Some(options) => check(&words[1..], &[&self.global, options], &mut Vec::new()),
        }
    }
}

/// Checks options against the known ones; collects the other words.
fn check<'w>(words: &[&'w str], known: &[&Options], plain: &mut Vec<&'w str>) -> Option<String> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let word = word.trim_matches(['[', ']']);
        if !word.starts_with("--") {
            plain.push(word);
            continue;
        }
        let (name, value) = word
            .split_once('=')
            .map_or((word, None), |(n, v)| (n, Some(v)));
        let takes = known.iter().find_map(|options| options.get(name));
        match takes {
            None if ["--help", "--version"].contains(&name) => {}
            None => return Some(format!("there is no option {name}")),
            Some(true) if value.is_none() => {
                words.next();
            }
            Some(_) => {}
        }
    }
    None
}

/// The verbs in the enum of that name: `DevS3(` is `dev-s3`.
fn verbs(args: &str) -> Vec<String> {
    args.lines()
        .skip_while(|line| !line.ends_with("enum Verb {"))
        .skip(1)
        .take_while(|line| *line != "}")
        .filter_map(|line| line.trim().split_once('('))
        .filter(|(name, _)| name.chars().all(char::is_alphanumeric))
        .map(|(name, _)| kebab(name))
        .collect()
}

fn kebab(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('-');
        }
        out.push(if c == '_' {
            '-'
        } else {
            c.to_ascii_lowercase()
        });
    }
    out
}

/// The options of a source: each field behind an `#[arg(...)]` with `long`.
fn options(source: &str) -> Options {
    let mut found = Options::new();
    let pieces = source.split("#[arg(").skip(1);
    for (attribute, rest) in pieces.filter_map(|piece| piece.split_once(")]")) {
        let long = attribute
            .split(',')
            .find_map(|a| a.trim().strip_prefix("long"));
        let field = rest
            .lines()
            .map(|line| {
                line.trim()
                    .trim_start_matches("pub(crate) ")
                    .trim_start_matches("pub(super) ")
                    .trim_start_matches("pub ")
            })
            .find(|line| !line.is_empty() && !line.starts_with(['#', '/']));
        let (Some(long), Some((name, kind))) = (long, field.and_then(|f| f.split_once(": ")))
        else {
            continue;
        };
        let given = long.split('"').nth(1).map(str::to_owned);
        let name = given.unwrap_or_else(|| kebab(name));
        found.insert(format!("--{name}"), kind != "bool,");
    }
    found
}

/// The command lines in a page: in blocks, and between backticks in text.
fn commands(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for line in lines(text) {
        let Some(language) = line.block else {
            goes_on = false;
            let code = line.text.split('`').skip(1).step_by(2);
            found.extend(code.map(|code| (line.number, code.to_owned())));
            continue;
        };
        let code = line.text.trim();
        // Transcripts mix commands and output: there a command has a prompt.
        let plain = (language != "console").then_some(code);
        let shown = code.strip_prefix("$ ").or(plain);
        match (found.last_mut(), shown) {
            (Some((_, last)), _) if goes_on => last.extend([" ", code]),
            (_, Some(command)) => found.push((line.number, command.to_owned())),
            (_, None) => continue,
        }
        goes_on = code.ends_with('\\');
    }
    found
}

/// The parts of a shell line that call one of our programs.
fn ours(command: &str) -> Vec<Vec<&str>> {
    let ends =
        |word: &&str| ["|", "&&", "||", ";", "&", "#", ">", ">>", "2>&1", "<"].contains(word);
    let words: Vec<&str> = command
        .split_whitespace()
        .filter(|word| *word != "\\")
        .collect();
    words
        .split(ends)
        .map(|part| {
            let assigned = part
                .iter()
                .take_while(|w| w.contains('=') && !w.starts_with('-'))
                .count();
            part[assigned..]
                .iter()
                .copied()
                .skip_while(|w| *w == "sudo")
                .collect::<Vec<_>>()
        })
        .filter(|part| {
            let program = part.first().and_then(|word| word.rsplit('/').next());
            program.is_some_and(|p| {
                ["batchweave", "batchweave-producer", "batchweave-consumer"].contains(&p)
            })
        })
        .collect()
}

#[test]
fn commands_in_the_documentation_exist() {
    let programs = Programs::read();
    let mut findings = Vec::new();
    let mut count = 0;
    let configs = [
        "config/producer.toml",
        "config/consumer.toml",
        "config/run.toml",
    ]
    .map(|name| (name.to_owned(), source(name)));
    for (name, text) in pages().into_iter().map(|p| (p.name, p.text)).chain(configs) {
        for (number, command) in commands(&text) {
            let known = NO_COMMANDS.contains(&command.as_str());
            for words in ours(&command).into_iter().filter(|_| !known) {
                count += 1;
                if let Some(why) = programs.fault(&words) {
                    findings.push(format!("{name}:{number}: {}: {why}", words.join(" ")));
                }
            }
        }
    }
    assert!(
        count > 10,
        "only {count} commands were found: the search is broken"
    );
    assert_none("commands that the programs do not know", &findings);
}

#[test]
fn wrong_commands_are_found() {
    let programs = Programs::read();
    for good in [
        "batchweave --store s3://b/s status --json",
        "sudo target/release/batchweave show 7 --slices | head --lines 3",
        "RUST_LOG=debug batchweave-producer --config x --check",
        "batchweave dev-s3 [--dir D] --faults=error=0.1",
        "batchweave --help",
    ] {
        for words in ours(good) {
            assert_eq!(programs.fault(&words), None, "{good}");
        }
        assert_eq!(ours(good).len(), 1, "{good}");
    }
    for bad in [
        "batchweave teleport",
        "batchweave status --slices",
        "batchweave --shop x status",
        "batchweave-consumer --store x",
    ] {
        assert!(programs.fault(&ours(bad)[0]).is_some(), "{bad}");
    }
    assert!(ours("install target/release/batchweave /usr/bin").is_empty());
}

#[test]
fn transcripts_show_commands_by_a_prompt() {
    let text = "```console\n$ batchweave log \\\n    --limit 3\nbatchweave says hello\n```\nthe `batchweave show 1` verb\n\n    $ batchweave status\n";
    let found: Vec<_> = commands(text)
        .into_iter()
        .map(|(_, command)| command)
        .collect();
    assert_eq!(
        found,
        [
            "batchweave log \\ --limit 3",
            "batchweave show 1",
            "batchweave status"
        ]
    );
}
