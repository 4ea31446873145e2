//! The files of a model beside the data: its tokenizer, and its template for conversations.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::QuickstartError;

const TOKENIZER: &str = "tokenizer.json";
const CONFIG: &str = "tokenizer_config.json";
const TEMPLATE: &str = "chat_template.jinja";
/// Files in JSON that lie beside a tokenizer and hold no documents.
const BESIDE: [&str; 9] = [
    TOKENIZER,
    CONFIG,
    "config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "preprocessor_config.json",
    "model.safetensors.index.json",
];

/// A tokenizer of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) tokenizer: PathBuf,
    /// The template for conversations beside it.
    pub(super) template: Option<PathBuf>,
    /// Other tokenizers that were found.
    pub(super) others: usize,
}

impl Model {
    /// Returns the tokenizer `given`, or else the first that lies in the folder of the data, in a folder of it, or beside it.
    pub(super) fn find(given: Option<&Path>, data: &Path) -> Result<Option<Self>, QuickstartError> {
        if let Some(path) = given {
            if !path.is_file() {
                return Err(QuickstartError::NoTokenizer(path.to_owned()));
            }
            return Ok(Some(Self::at(path.to_owned(), 0)));
        }
        let mut found = near(data);
        let others = found.len().saturating_sub(1);
        Ok(found.drain(..).next().map(|path| Self::at(path, others)))
    }

    fn at(tokenizer: PathBuf, others: usize) -> Self {
        let own = tokenizer.with_file_name(TEMPLATE);
        let config = tokenizer.with_file_name(CONFIG);
        let template = if own.is_file() {
            Some(own)
        } else {
            Some(config).filter(|path| has_template(path))
        };
        Self {
            tokenizer,
            template,
            others,
        }
    }

    /// Returns the paths of the model's files, which the survey leaves out.
    pub(super) fn files(&self) -> impl Iterator<Item = PathBuf> {
        BESIDE
            .iter()
            .map(|name| self.tokenizer.with_file_name(name))
    }
}

/// Returns the tokenizers near the data: in its folder, in the folders there, and in the folder above.
fn near(data: &Path) -> Vec<PathBuf> {
    let folder = if data.is_dir() {
        data
    } else {
        data.parent().unwrap_or(data)
    };
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let mut below: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir() && !is_hidden(path))
        .collect();
    below.sort();
    let above = [folder.join(".."), folder.to_owned()];
    let places = [above[1].clone()]
        .into_iter()
        .chain(below)
        .chain([above[0].clone()]);
    let files = places.map(|place| place.join(TOKENIZER));
    let mut found: Vec<PathBuf> = files.filter(|path| path.is_file()).collect();
    for path in &mut found {
        if let Ok(short) = path.strip_prefix("./") {
            *path = short.to_owned();
        }
    }
    found
}

fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(['.', '_'])
}

fn has_template(config: &Path) -> bool {
    let read = std::fs::read(config).ok();
    let json: Option<Value> = read.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    json.is_some_and(|json| !json["chat_template"].is_null())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tokenizer_is_found_beside_the_data_or_one_folder_away() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data");
        std::fs::create_dir_all(data.join("model")).unwrap();
        assert_eq!(Model::find(None, &data).unwrap(), None);
        std::fs::write(root.path().join(TOKENIZER), "{}").unwrap();
        let above = Model::find(None, &data).unwrap().unwrap();
        assert!(above.tokenizer.ends_with("data/../tokenizer.json"));
        assert_eq!((above.template, above.others), (None, 0));
        std::fs::write(data.join("model").join(TOKENIZER), "{}").unwrap();
        let config = data.join("model").join(CONFIG);
        std::fs::write(&config, "{\"chat_template\": \"x\"}").unwrap();
        let below = Model::find(None, &data).unwrap().unwrap();
        assert!(below.tokenizer.ends_with("data/model/tokenizer.json"));
        assert_eq!((below.template, below.others), (Some(config), 1));
    }

    #[test]
    fn a_named_tokenizer_that_is_missing_is_an_error() {
        let why = Model::find(Some(Path::new("no/t.json")), Path::new(".")).unwrap_err();
        assert!(why.to_string().contains("no/t.json"), "{why}");
    }
}
