//! The documents of the REST interface. Pure.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde::Deserialize;

use crate::cloud::{Listed, Page, Refusal, time};

#[derive(Deserialize)]
struct Enumeration {
    #[serde(rename = "Blobs", default)]
    blobs: Blobs,
    #[serde(rename = "NextMarker", default)]
    next: String,
}

#[derive(Default, Deserialize)]
struct Blobs {
    #[serde(rename = "Blob", default)]
    objects: Vec<Blob>,
    #[serde(rename = "BlobPrefix", default)]
    folders: Vec<Folder>,
}

#[derive(Deserialize)]
struct Folder {
    #[serde(rename = "Name")]
    name: Name,
}

#[derive(Deserialize)]
struct Blob {
    #[serde(rename = "Name")]
    name: Name,
    #[serde(rename = "Properties")]
    properties: Properties,
}

/// A name; percent-encoded where XML can't express it.
#[derive(Deserialize)]
struct Name {
    #[serde(rename = "@Encoded", default)]
    encoded: bool,
    #[serde(rename = "$text", default)]
    text: String,
}

impl Name {
    fn plain(self) -> Result<String, String> {
        if !self.encoded {
            return Ok(self.text);
        }
        match percent_decode_str(&self.text).decode_utf8() {
            Ok(decoded) => Ok(decoded.into_owned()),
            Err(_) => Err(format!("the name {} is not UTF-8", self.text)),
        }
    }
}

#[derive(Deserialize)]
struct Properties {
    #[serde(rename = "Content-Length")]
    length: Option<u64>,
    #[serde(rename = "Etag")]
    etag: Option<String>,
    #[serde(rename = "Last-Modified")]
    modified: Option<String>,
    #[serde(rename = "ResourceType")]
    resource: Option<String>,
}

pub(super) fn page(body: &[u8]) -> Result<Page, String> {
    let read: Enumeration = quick_xml::de::from_reader(body).map_err(|why| why.to_string())?;
    // Folders of an account with a hierarchical namespace have names and no bytes.
    let is_object = |blob: &Blob| blob.properties.resource.as_deref() != Some("directory");
    let objects = read.blobs.objects.into_iter().filter(is_object);
    let folders = read.blobs.folders.into_iter();
    Ok(Page {
        objects: objects.map(listed).collect::<Result<_, _>>()?,
        folders: folders
            .map(|folder| folder.name.plain())
            .collect::<Result<_, _>>()?,
        next: Some(read.next).filter(|marker| !marker.is_empty()),
    })
}

fn listed(blob: Blob) -> Result<Listed, String> {
    let name = blob.name.plain()?;
    let Some(size) = blob.properties.length else {
        return Err(format!("{name} has no length"));
    };
    Ok(Listed {
        name,
        size,
        etag: blob.properties.etag,
        modified: blob.properties.modified.as_deref().and_then(time),
    })
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Failed {
    code: String,
    message: String,
}

/// Reads an error document; its message ends with lines of an id and a time.
pub(super) fn refusal(body: &[u8]) -> Refusal {
    let failed: Failed = quick_xml::de::from_reader(body).unwrap_or_default();
    let message = failed.message.split("RequestId:").next();
    Refusal {
        message: message.unwrap_or_default().trim().to_owned(),
        code: failed.code,
        request_id: None,
    }
}

/// The properties of an account's blob service.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Service {
    delete_retention_policy: Policy,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Policy {
    enabled: bool,
    days: Option<u64>,
}

impl Service {
    /// Returns the time for which deleted objects are kept.
    pub(super) fn soft_delete(&self) -> Option<Duration> {
        let policy = &self.delete_retention_policy;
        let days = policy.days.filter(|_| policy.enabled)?;
        Some(Duration::from_hours(24 * days))
    }
}

pub(super) fn service(body: &[u8]) -> Result<Service, String> {
    quick_xml::de::from_reader(body).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_objects_folders_and_the_next_marker() {
        let body = br#"<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="c"><Prefix>a/</Prefix>
            <Blobs><Blob><Name>a/k</Name><Properties><Last-Modified>Sun, 06 Nov 1994 08:49:37 GMT</Last-Modified>
            <Etag>0x8D</Etag><Content-Length>7</Content-Length></Properties></Blob>
            <BlobPrefix><Name>a/b/</Name></BlobPrefix>
            <Blob><Name>a/d</Name><Properties><ResourceType>directory</ResourceType><Content-Length>0</Content-Length>
            </Properties></Blob>
            <Blob><Name Encoded="true">a/%01</Name><Properties><Content-Length>1</Content-Length></Properties></Blob>
            </Blobs><NextMarker>m</NextMarker></EnumerationResults>"#;
        let page = page(body).unwrap();
        assert_eq!(page.next.as_deref(), Some("m"));
        assert_eq!(page.folders, ["a/b/"]);
        let told: Vec<_> = page.objects.iter().map(|o| (&*o.name, o.size)).collect();
        assert_eq!(told, [("a/k", 7), ("a/\u{1}", 1)]);
        assert!(page.objects[0].modified.is_some());
        let none = b"<EnumerationResults><Blobs /><NextMarker /></EnumerationResults>";
        let none = super::page(none).unwrap();
        assert!(none.objects.is_empty() && none.next.is_none());
        assert!(super::page(b"{}").is_err());
        let unnamed =
            b"<EnumerationResults><Blobs><Blob><Name Encoded=\"true\">%ff</Name><Properties>\
            <Content-Length>1</Content-Length></Properties></Blob></Blobs></EnumerationResults>";
        let Err(why) = super::page(unnamed) else {
            panic!("a name that is not UTF-8");
        };
        assert!(why.contains("%ff"), "{why}");
    }

    #[test]
    fn refusals_have_a_code_and_the_first_lines_of_a_message() {
        let read = refusal(
            b"<Error><Code>AuthorizationPermissionMismatch</Code><Message>This request is not authorized.\n\
              RequestId:7\nTime:2026</Message></Error>",
        );
        assert_eq!(read.code, "AuthorizationPermissionMismatch");
        assert_eq!(read.message, "This request is not authorized.");
        assert_eq!(refusal(b"<html>no").code, "");
    }

    #[test]
    fn deleted_objects_are_kept_for_days() {
        let read = |text: &str| service(text.as_bytes()).unwrap().soft_delete();
        let on = "<StorageServiceProperties><DeleteRetentionPolicy><Enabled>true</Enabled><Days>7</Days>\
                  </DeleteRetentionPolicy></StorageServiceProperties>";
        assert_eq!(read(on), Some(Duration::from_hours(168)));
        assert_eq!(read(&on.replace("true", "false")), None);
        assert_eq!(read("<StorageServiceProperties/>"), None);
    }
}
