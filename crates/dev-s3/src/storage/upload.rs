//! A multipart upload in progress. Its parts are in memory and lost when the server ends.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use s3s::{S3Result, s3_error};

use super::Headers;
use crate::checksum::{Checksums, etag_of_parts};

/// S3's smallest part, except the last.
const MIN_PART_BYTES: usize = 5 * 1024 * 1024;

/// An upload that was begun and neither completed nor aborted.
#[derive(Debug, Clone)]
pub(crate) struct Upload {
    pub key: String,
    /// The description of the object; `modified_ms` is the begin of the upload.
    pub headers: Headers,
    /// The algorithm of a checksum over the whole object, if requested.
    pub full_checksum: Option<String>,
    pub parts: BTreeMap<i32, Part>,
}

/// A part that has arrived.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub body: Bytes,
    pub etag: String,
    pub modified_ms: u64,
    pub checksums: Checksums,
}

impl Upload {
    /// Returns the size of all parts, without the one that `number` would replace.
    pub(crate) fn size_without(&self, number: i32) -> usize {
        self.parts
            .iter()
            .filter(|(at, _)| **at != number)
            .map(|(_, part)| part.body.len())
            .sum()
    }

    /// Assembles the chosen parts. Returns the object's description and bytes.
    pub(crate) fn assemble(&self, chosen: &[(i32, Option<String>)]) -> S3Result<(Headers, Bytes)> {
        if chosen.is_empty() || !chosen.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(s3_error!(
                InvalidPartOrder,
                "The list of parts is empty or not in ascending order."
            ));
        }
        let (mut body, mut etags) = (BytesMut::new(), Vec::new());
        for (at, (number, etag)) in chosen.iter().enumerate() {
            let part = self
                .parts
                .get(number)
                .filter(|part| etag.as_ref().is_none_or(|etag| *etag == part.etag))
                .ok_or_else(|| {
                    s3_error!(
                        InvalidPart,
                        "Part {number} was not uploaded, or has another ETag."
                    )
                })?;
            if at + 1 < chosen.len() && part.body.len() < MIN_PART_BYTES {
                let size = part.body.len();
                return Err(s3_error!(
                    EntityTooSmall,
                    "Part {number} has {size} bytes, less than {MIN_PART_BYTES}."
                ));
            }
            body.extend_from_slice(&part.body);
            etags.push(part.etag.as_str());
        }
        let body = body.freeze();
        let mut headers = self.headers.clone();
        headers.etag = etag_of_parts(etags.into_iter());
        headers.size = body.len() as u64;
        headers.modified_ms = super::object::now_ms();
        if let Some(algorithm) = &self.full_checksum {
            headers.checksums = Checksums::of(algorithm, &body);
        }
        Ok((headers, body))
    }
}
