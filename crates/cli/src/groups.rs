//! The help of `batchweave`: its verbs in groups, by task.

use std::fmt::Write as _;

use clap::Command;

/// Columns of the help.
const WIDTH: usize = 100;
/// The group of verbs that no group names.
const OTHER: &str = "Other";

/// The groups with their verbs, in the order of the help.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Begin", &["demo", "quickstart", "run", "init", "dev-s3"]),
    ("Look", &["status", "ui", "log", "show", "where", "inbox"]),
    ("Training runs", &["job", "losses", "quarantine"]),
    ("Check", &["doctor", "verify"]),
    (
        "Care for a stream",
        &[
            "mixture", "stage", "fork", "reclaim", "retire", "seal", "repair", "delete",
        ],
    ),
    ("Plan and measure", &["plan", "bench"]),
];

/// Returns the command with a help that shows its verbs in groups.
pub(crate) fn grouped(command: Command) -> Command {
    let verbs = text(&command);
    let names: Vec<String> = command
        .get_subcommands()
        .map(|verb| verb.get_name().to_owned())
        .collect();
    let hidden = |command: Command, name: &String| command.mut_subcommand(name, |v| v.hide(true));
    // Hidden from clap's own list, and known as before.
    let command = names
        .iter()
        .fold(command, hidden)
        .override_usage("batchweave [OPTIONS] <COMMAND>");
    command.help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{verbs}{{all-args}}{{after-help}}"
    ))
}

/// Returns the groups as text.
fn text(command: &Command) -> String {
    let visible: Vec<&Command> = command
        .get_subcommands()
        .filter(|v| !v.is_hide_set())
        .collect();
    let width = visible
        .iter()
        .map(|verb| verb.get_name().len())
        .max()
        .unwrap_or_default();
    let mut text = String::new();
    for (group, verbs) in by_group(&visible) {
        if verbs.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{group}:");
        for verb in verbs {
            let about = verb
                .get_about()
                .map(ToString::to_string)
                .unwrap_or_default();
            let about = wrapped(&about, width + 4);
            let _ = writeln!(text, "  {:width$}  {about}", verb.get_name());
        }
        text.push('\n');
    }
    text
}

/// Returns the groups with their commands; those of no group come last.
fn by_group<'a>(visible: &[&'a Command]) -> Vec<(&'static str, Vec<&'a Command>)> {
    let known = |name: &str| GROUPS.iter().any(|(_, verbs)| verbs.contains(&name));
    let find = |name: &str| visible.iter().find(|verb| verb.get_name() == name);
    let named = GROUPS.iter().map(|(group, verbs)| {
        let verbs: Vec<&Command> = verbs
            .iter()
            .filter_map(|name| find(name).copied())
            .collect();
        (*group, verbs)
    });
    let rest = visible
        .iter()
        .filter(|verb| !known(verb.get_name()))
        .copied();
    named.chain([(OTHER, rest.collect())]).collect()
}

/// Breaks a text into lines that begin at column `indent`.
fn wrapped(text: &str, indent: usize) -> String {
    let (mut lines, mut column) = (String::new(), indent);
    for word in text.split(' ') {
        let room = column + word.len() < WIDTH;
        if !lines.is_empty() && !room {
            let _ = write!(lines, "\n{:indent$}", "");
            column = indent;
        } else if !lines.is_empty() {
            lines.push(' ');
        }
        lines.push_str(word);
        column += word.len() + 1;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_in_the_help_once_and_hidden_ones_are_not() {
        let help = grouped(crate::command()).render_help().to_string();
        let count = |name: &str| {
            let line = format!("  {name} ");
            help.lines().filter(|l| l.starts_with(&line)).count()
        };
        for verb in crate::command().get_subcommands() {
            let expected = usize::from(!verb.is_hide_set());
            assert_eq!(
                count(verb.get_name()),
                expected,
                "{} in {help}",
                verb.get_name()
            );
        }
        assert!(help.contains("\nLook:\n  status"), "{help}");
        assert!(
            help.contains("Global options:") && help.contains("<COMMAND>"),
            "{help}"
        );
        assert!(help.lines().all(|line| line.len() <= WIDTH), "{help}");
    }

    #[test]
    fn a_long_text_continues_below_its_beginning() {
        let text = "word ".repeat(30);
        let lines = wrapped(text.trim(), 10);
        assert!(
            lines.lines().count() == 2 && lines.contains("\n          word"),
            "{lines}"
        );
    }
}
