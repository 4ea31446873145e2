//! An inbox as it is stored: a folder of this machine, or of an object store.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use batchweave_core::inbox::{COMMIT, JOB_BYTES_MAX, JobCommit, Listed, Object, Read, file_name};
use batchweave_log::inbox::{ETAG, etag_fingerprint, list_writer};
use batchweave_store::file::inside;
use batchweave_store::{ObjectMeta, Store, local_path};
use futures::stream::{StreamExt, TryStreamExt};

use super::local::{self, Folders};
use crate::sources::find::{pin_opened, pin_remote};
use crate::sources::open_store::{FINGERPRINTS_AT_ONCE, OpenStore};
use crate::sources::{InputFile, SourceError};

/// Where an inbox is.
#[derive(Debug, Clone)]
pub(super) enum Folder {
    Local(PathBuf),
    Remote { root: String, store: Arc<dyn Store> },
}

impl Folder {
    pub(super) async fn open(path: &str, open: &OpenStore) -> Result<Self, SourceError> {
        let Some(path) = local_path(path) else {
            let root = path.trim_end_matches('/').to_owned();
            let store = open(root.clone()).await.map_err(SourceError::Store)?;
            return Ok(Self::Remote { root, store });
        };
        // Without a slash at the end, as the names of pinned files have it.
        Ok(Self::Local(Path::new(path).components().collect()))
    }

    /// Returns the full name of `file` of `writer`; of its folder with a slash at the end if `file` is empty.
    pub(super) fn name(&self, writer: &str, file: &str) -> String {
        match self {
            Self::Local(path) => format!("{}/{writer}/{file}", path.display()),
            Self::Remote { root, .. } => format!("{root}/{writer}/{file}"),
        }
    }

    /// Returns the writer of the file with this full name, and the file's name in its folder.
    pub(super) fn writer_of<'n>(&self, name: &'n str) -> Option<(&'n str, &'n str)> {
        let rest = name.strip_prefix(&self.root())?.strip_prefix('/')?;
        rest.split_once('/').filter(|(_, file)| !file.contains('/'))
    }

    /// Returns the name of the inbox.
    pub(super) fn root(&self) -> String {
        match self {
            Self::Local(path) => path.display().to_string(),
            Self::Remote { root, .. } => root.clone(),
        }
    }

    /// Returns whether the folder itself holds the files of a writer, and so is not an inbox.
    pub(super) async fn is_of_writer(&self) -> Result<bool, SourceError> {
        let numbered = |name: &str| matches!(Object::named(name), Object::File(_));
        match self {
            Self::Remote { store, .. } => {
                let page = store.list_after("", "").await.map_err(SourceError::Store)?;
                Ok(page.objects.iter().any(|object| numbered(&object.key)))
            }
            Self::Local(path) => {
                let (at, first) = (self.root(), path.join(file_name(0)));
                blocking(at, move || first.try_exists()).await
            }
        }
    }

    /// Returns the folders in the inbox.
    pub(super) async fn writers(&self) -> Result<Folders, SourceError> {
        match self {
            Self::Remote { store, .. } => {
                let names = store.folders("").await.map_err(SourceError::Store)?;
                let links = Vec::new();
                Ok(Folders { names, links })
            }
            Self::Local(path) => {
                let path = path.clone();
                let at = path.display().to_string();
                blocking(at, move || local::folders(&path)).await
            }
        }
    }

    /// Returns the objects of `writer` from the newest file of `read` on.
    pub(super) async fn listed(
        &self,
        writer: &str,
        read: &Read,
    ) -> Result<Vec<Listed>, SourceError> {
        match self {
            Self::Remote { store, .. } => {
                let listed = list_writer(store.as_ref(), writer, read).await;
                listed.map_err(SourceError::Store)
            }
            Self::Local(path) => {
                let (path, name, read) = (path.clone(), writer.to_owned(), read.clone());
                let listed = move || local::listed(&path, &name, &read);
                blocking(self.name(writer, ""), listed).await
            }
        }
    }

    /// Pins `files` of `writer`, in their order.
    pub(super) async fn pin(
        &self,
        writer: &str,
        files: Vec<Listed>,
    ) -> Result<Vec<InputFile>, SourceError> {
        let pins = files.into_iter().map(|file| self.pin_one(writer, file));
        let pins: Vec<_> = pins.collect();
        let pins = futures::stream::iter(pins).buffered(FINGERPRINTS_AT_ONCE);
        pins.try_collect().await
    }

    async fn pin_one(&self, writer: &str, file: Listed) -> Result<InputFile, SourceError> {
        let name = self.name(writer, &file.name);
        match self {
            Self::Local(path) => {
                let (path, writer, at) = (path.clone(), writer.to_owned(), name.clone());
                let pin = move || {
                    let opened = local::open(&path, &writer, &file.name)?;
                    pin_opened(opened, PathBuf::from(at))
                };
                blocking(name, pin).await
            }
            Self::Remote { root, store } => {
                let mut object = ObjectMeta::new(format!("{writer}/{}", file.name), file.size);
                let etag = file
                    .fingerprint
                    .as_deref()
                    .and_then(|pin| pin.strip_prefix(ETAG));
                object.etag = etag.map(str::to_owned);
                pin_remote(store.clone(), root.clone(), object).await
            }
        }
    }

    /// Pins the files that the job in the folder of `writer` has committed.
    pub(super) async fn job(&self, writer: &str) -> Result<Vec<InputFile>, SourceError> {
        let name = self.name(writer, COMMIT);
        let bytes = match self {
            Self::Local(path) => {
                let (path, writer) = (path.clone(), writer.to_owned());
                let read = move || local::commit(&path, &writer);
                blocking(name.clone(), read).await?.into()
            }
            Self::Remote { store, .. } => {
                let bytes = store
                    .get(&format!("{writer}/{COMMIT}"), JOB_BYTES_MAX)
                    .await;
                bytes.map_err(SourceError::Store)?
            }
        };
        let refused = |why: String| SourceError::Inbox {
            folder: name.clone(),
            why,
        };
        let commit = JobCommit::from_bytes(&bytes).map_err(|fault| refused(fault.to_string()))?;
        let names: Vec<String> = commit.files.into_iter().map(|file| file.name).collect();
        let heads = names.iter().map(|file| self.head(writer, file));
        let heads: Vec<_> = heads.collect();
        let heads = futures::stream::iter(heads).buffered(FINGERPRINTS_AT_ONCE);
        let files = heads.try_collect().await.map_err(|why| match why {
            SourceError::Store(why) if why.is_not_found() => {
                refused(format!("it names a file that is missing ({why}); restore it, or run the job again under another name"))
            }
            SourceError::Unreadable { file, why } if why.kind() == io::ErrorKind::NotFound => {
                refused(format!("it names {file}, which is missing; restore it, or run the job again under another name"))
            }
            why => why,
        })?;
        self.pin(writer, files).await
    }

    async fn head(&self, writer: &str, file: &str) -> Result<Listed, SourceError> {
        let size = match self {
            Self::Local(path) => {
                let (path, of, name) = (path.clone(), writer.to_owned(), file.to_owned());
                let size = move || local::size(&path, &of, &name);
                let size = blocking(self.name(writer, file), size).await?;
                return Ok(local::of_size(file, size));
            }
            Self::Remote { store, .. } => store.head(&format!("{writer}/{file}")).await,
        };
        let meta = size.map_err(SourceError::Store)?;
        Ok(Listed {
            name: file.to_owned(),
            size: meta.size,
            fingerprint: meta.etag.as_deref().map(etag_fingerprint),
        })
    }
}

async fn blocking<T: Send + 'static>(
    file: String,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SourceError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(io::Error::other).flatten();
    done.map_err(|why| {
        if inside::is_refusal(&why) {
            let (folder, why) = (file, why.to_string());
            return SourceError::Inbox { folder, why };
        }
        SourceError::Unreadable { file, why }
    })
}
