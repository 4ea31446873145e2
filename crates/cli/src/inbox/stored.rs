//! Reads an inbox from its store: its writers, files and jobs.

use std::path::Path;
use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_core::inbox::{COMMIT, JOB_BYTES_MAX, JobCommit, Listed, Object, Read, is_writer};
use batchweave_log::inbox::list_writer;
use batchweave_store::{Location, Store, local_path};
use serde::Serialize;

use super::footer::{self, Footer};

/// An inbox in its store.
pub(super) struct StoredInbox {
    root: String,
    /// `None` for a folder that does not exist yet.
    store: Option<Arc<dyn Store>>,
}

/// A writer as its folder shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct StoredWriter {
    pub(super) name: String,
    /// Number of stored files.
    pub(super) files: u64,
    /// The size of these files together; `None` for a job, whose commit has no sizes.
    pub(super) bytes: Option<u64>,
    /// Rows up to the newest stored file, those of deleted ones before it included.
    pub(super) rows_durable: u64,
    /// The writer has ended, or its job is committed.
    pub(super) ended: bool,
    /// The folder holds the files of a job.
    pub(super) job: bool,
}

impl StoredInbox {
    /// Opens the inbox at a URL or path.
    pub(super) async fn open(location: &str, context: &Context) -> Result<Self, CliError> {
        let url = if location.contains("://") {
            location.trim_end_matches('/').to_owned()
        } else if location.contains(":/") {
            let text = format!(
                "{location}: neither a path nor a URL; write s3://bucket/prefix or file:///dir"
            );
            return Err(CliError::Usage(text));
        } else {
            // A path that does not exist yet is an inbox without writers.
            let path = Path::new(location);
            let path = path
                .canonicalize()
                .or_else(|_| std::path::absolute(path))
                .map_err(|why| CliError::Usage(format!("{location}: {why}")))?;
            Location::Folder(&path).to_string()
        };
        let store = match batchweave_store::open(&url, &context.store_options()).await {
            Err(why) if why.is_no_folder() => None,
            store => Some(store?),
        };
        Ok(Self { root: url, store })
    }

    pub(super) fn root(&self) -> &str {
        &self.root
    }

    fn store(&self) -> Result<&dyn Store, CliError> {
        let absent = || CliError::Absent(format!("{} does not exist", self.root));
        self.store.as_deref().ok_or_else(absent)
    }

    /// Returns whether a pinned file's folder of writers, as a producer names it, is this inbox.
    pub(super) fn has_root(&self, root: &str) -> bool {
        // A producer may use another path to the same folder.
        let real = |path: &str| {
            let path = Path::new(path);
            path.canonicalize().unwrap_or_else(|_| path.to_owned())
        };
        let own = self.root().trim_end_matches('/');
        match (local_path(own), local_path(root)) {
            (Some(path), Some(root)) => real(path) == real(root),
            _ => own == root.trim_end_matches('/'),
        }
    }

    /// Returns the names of the writers: of all, or of those that are `wanted`.
    pub(super) async fn writers(&self, wanted: &[String]) -> Result<Vec<String>, CliError> {
        let Some(store) = &self.store else {
            return Ok(Vec::new());
        };
        let mut all = store.folders("").await?;
        all.retain(|name| is_writer(name));
        all.retain(|name| wanted.is_empty() || wanted.contains(name));
        Ok(all)
    }

    /// Lists the folder of `writer` from the newest file of `read` on.
    pub(super) async fn listed(&self, writer: &str, read: &Read) -> Result<Vec<Listed>, CliError> {
        Ok(list_writer(self.store()?, writer, read).await?)
    }

    /// Returns the state of `writer`.
    pub(super) async fn writer(&self, writer: &str) -> Result<StoredWriter, CliError> {
        let mut found = StoredWriter {
            name: writer.to_owned(),
            files: 0,
            bytes: Some(0),
            rows_durable: 0,
            ended: false,
            job: false,
        };
        let mut newest = None;
        for object in self.listed(writer, &Read::Nothing).await? {
            match Object::named(&object.name) {
                Object::File(_) => {
                    found.files += 1;
                    found.bytes = found.bytes.map(|bytes| bytes + object.size);
                    newest = Some(object);
                }
                Object::End => found.ended = true,
                Object::Commit => found.job = true,
                Object::Other => {}
            }
        }
        if let Some(newest) = newest {
            found.rows_durable = self.footer(writer, &newest).await?.end();
        }
        if found.job {
            let commit = self.job(writer).await?;
            found.ended = true;
            found.files = commit.files.len() as u64;
            found.bytes = None;
            found.rows_durable = commit.files.iter().map(|file| file.rows).sum();
        }
        Ok(found)
    }

    pub(super) async fn job(&self, writer: &str) -> Result<JobCommit, CliError> {
        let key = format!("{writer}/{COMMIT}");
        let bytes = self.store()?.get(&key, JOB_BYTES_MAX).await?;
        JobCommit::from_bytes(&bytes)
            .map_err(|why| CliError::Unsound(format!("{}/{key}: {why}", self.root())))
    }

    /// Reads the footer of a file.
    pub(super) async fn footer(&self, writer: &str, file: &Listed) -> Result<Footer, CliError> {
        let key = format!("{writer}/{}", file.name);
        footer::read(self.store()?, &key, file.size).await
    }
}
