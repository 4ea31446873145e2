//! The reasons why no form fits the files, each with the fields that were seen and what to write.

use batchweave_console::CliError;
use batchweave_console::output::count;
use batchweave_daemon::survey::{FileGroup, Unread};

use super::fields::{FieldSummary, Fields};

/// The reason why files are not chosen.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(super) enum Refusal {
    /// No document of the group can be read.
    #[error("{files} ({words}): {why}")]
    Unreadable {
        files: String,
        words: String,
        why: String,
    },
    /// No field holds texts, conversations or ids.
    #[error(
        "{files} ({words}): no field holds texts, conversations or token ids; the fields are {fields}; name one with --field NAME, or \
         see docs/producing.md for arrays"
    )]
    Fields {
        files: String,
        words: String,
        fields: String,
    },
    /// The field that the user names does not fit.
    #[error(
        "--field {name}: the documents of {files} have no such text, conversation or list of ids; the fields are {fields}"
    )]
    Field {
        name: String,
        files: String,
        fields: String,
    },
    /// Questions and answers are in two fields.
    #[error(
        "the fields {question} and {answer} look like questions and answers, which are trained as conversations: run `jq -c \
         '{{messages: [{{role: \"user\", content: .{question}}}, {{role: \"assistant\", content: .{answer}}}]}}' FILE > chat.jsonl` on \
         JSON lines and name chat.jsonl, or train on one field alone with --field {answer}"
    )]
    Answers { question: String, answer: String },
    /// All reasons of a folder.
    #[error("no file here fits: {}", .0.join("; "))]
    Nothing(Vec<String>),
    /// The folder is empty.
    #[error(
        "no data files here: name a folder or a file with JSONL, Parquet, Arrow, CSV, text or tar files"
    )]
    Empty,
}

impl Refusal {
    /// Returns the refusal of a group of which no document was read.
    pub(super) fn unreadable(group: &FileGroup) -> Self {
        let none = match group.format.as_str() {
            "npy" => {
                "arrays have no text: see \"Token ids\" and \"Images and arrays\" in docs/producing.md"
            }
            _ => "no document: the files are empty",
        };
        Self::Unreadable {
            files: files(group),
            words: group.words.clone(),
            why: group.fault.clone().unwrap_or_else(|| none.to_owned()),
        }
    }

    /// Returns the refusal of a group whose fields do not fit.
    pub(super) fn fields(group: &FileGroup, fields: &Fields, wanted: Option<&str>) -> Self {
        let seen = fields.described();
        match wanted {
            Some(name) => Self::Field {
                name: name.to_owned(),
                files: files(group),
                fields: seen,
            },
            None => Self::Fields {
                files: files(group),
                words: group.words.clone(),
                fields: seen,
            },
        }
    }

    /// Returns the refusal of questions and answers.
    pub(super) fn answers(question: &FieldSummary, answer: &FieldSummary) -> Self {
        Self::Answers {
            question: question.name.clone(),
            answer: answer.name.clone(),
        }
    }
}

/// Returns the refusal of a survey whose groups are refused for these reasons.
pub(super) fn nothing_fits(mut seen: Vec<Refusal>, unread: &[Unread]) -> Refusal {
    if seen.is_empty() && unread.is_empty() {
        return Refusal::Empty;
    }
    // The user's own word, and advice for the likeliest data, stand alone.
    let own = |why: &Refusal| matches!(why, Refusal::Field { .. } | Refusal::Answers { .. });
    if let Some(at) = seen.iter().position(own) {
        return seen.swap_remove(at);
    }
    let unread = unread.iter().map(|out| {
        let files = count(out.files, "file");
        format!("{files}, for example {}: {}", out.first, out.why)
    });
    let all = seen.iter().map(ToString::to_string).chain(unread);
    Refusal::Nothing(all.collect())
}

fn files(group: &FileGroup) -> String {
    match group.files {
        1 => group.first.clone(),
        all => format!("{} files, first {}", all, group.first),
    }
}

impl From<Refusal> for CliError {
    fn from(why: Refusal) -> Self {
        Self::Input(why.to_string())
    }
}
