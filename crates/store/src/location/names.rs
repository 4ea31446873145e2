//! Words of the stores: the names of their permissions, and remedies.

use super::Location;
use crate::error::ErrorKind;

/// The uses of objects that stores have permissions for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    Create,
    Read,
    List,
    Delete,
    /// Reads the rules and properties of the bucket.
    Properties,
}

impl Location<'_> {
    /// Returns the store's own name of a permission; `None` where the file system decides.
    pub fn permission(self, permission: Permission) -> Option<&'static str> {
        use Permission::{Create, Delete, List, Properties, Read};
        Some(match (self, permission) {
            (Self::S3 { .. }, Create) => "s3:PutObject",
            (Self::S3 { .. }, Read) => "s3:GetObject",
            (Self::S3 { .. }, List) => "s3:ListBucket",
            (Self::S3 { .. }, Delete) => "s3:DeleteObject",
            (Self::S3 { .. }, Properties) => "s3:GetLifecycleConfiguration",
            (Self::Gcs { .. }, Create) => "storage.objects.create",
            (Self::Gcs { .. }, Read) => "storage.objects.get",
            (Self::Gcs { .. }, List) => "storage.objects.list",
            (Self::Gcs { .. }, Delete) => "storage.objects.delete",
            (Self::Gcs { .. }, Properties) => "storage.buckets.get",
            (Self::Azure { .. }, Create) => {
                "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/write"
            }
            (Self::Azure { .. }, Read | List) => {
                "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read"
            }
            (Self::Azure { .. }, Delete) => {
                "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/delete"
            }
            (Self::Azure { .. }, Properties) => {
                "Microsoft.Storage/storageAccounts/blobServices/read"
            }
            (Self::Folder(_) | Self::Memory(_), _) => return None,
        })
    }

    /// Returns the remedy of an error in the words of the store's console; `None` where the general one is as good.
    pub(crate) fn remedy(self, kind: ErrorKind) -> Option<&'static str> {
        Some(match (self, kind) {
            (Self::Gcs { .. } | Self::Azure { .. }, ErrorKind::Contract) => {
                "`batchweave doctor` shows what the store does not keep"
            }
            (Self::Gcs { .. }, ErrorKind::Denied) => {
                "check the credentials and their permissions (the role Storage Object User has all that a stream needs)"
            }
            (Self::Azure { .. }, ErrorKind::NoBucket) => "create the container, or correct the URL",
            (Self::Azure { .. }, ErrorKind::Denied) => {
                "check the credentials and their permissions (the role Storage Blob Data Contributor has all that a \
                 stream needs)"
            }
            (Self::Azure { .. }, ErrorKind::WrongKeys) => {
                "check the account's key, signature or token, and this machine's clock"
            }
            _ => return None,
        })
    }
}
