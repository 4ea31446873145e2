//! Listing the objects of a bucket, page by page.

use s3s::dto::{
    CommonPrefix, EncodingType, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input,
    ListObjectsV2Output, Object, ObjectStorageClass,
};
use s3s::{S3Request, S3Result, s3_error};

use super::Api;
use crate::checksum::hex;
use crate::storage::{Order, Page, Query};

/// The largest page of S3.
const MAX_KEYS: i32 = 1000;

/// Returns one hexadecimal digit, in capitals.
fn digit(value: u8) -> char {
    char::from_digit(u32::from(value), 16).map_or('0', |digit| digit.to_ascii_uppercase())
}

/// Writes names unchanged, or percent-encoded where the client asked for it.
#[derive(Clone, Copy)]
struct Names {
    encode: bool,
}

impl Names {
    fn new(encoding: Option<&EncodingType>) -> Self {
        Self {
            encode: encoding.is_some_and(|encoding| encoding.as_str() == EncodingType::URL),
        }
    }

    fn write(self, name: &str) -> String {
        if !self.encode {
            return name.to_owned();
        }
        let mut text = String::with_capacity(name.len());
        for byte in name.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' | b'~' => {
                    text.push(byte as char);
                }
                _ => text.extend(['%', digit(byte >> 4), digit(byte & 15)]),
            }
        }
        text
    }

    fn contents(self, page: &Page) -> Vec<Object> {
        page.objects
            .iter()
            .map(|(key, object)| Object {
                key: Some(self.write(key)),
                e_tag: Some(object.headers.etag()),
                size: Some(object.headers.size as i64),
                last_modified: Some(object.headers.modified()),
                storage_class: Some(ObjectStorageClass::from_static(
                    ObjectStorageClass::STANDARD,
                )),
                ..Object::default()
            })
            .collect()
    }

    fn common_prefixes(self, page: &Page) -> Vec<CommonPrefix> {
        page.prefixes
            .iter()
            .map(|prefix| CommonPrefix {
                prefix: Some(self.write(prefix)),
            })
            .collect()
    }
}

/// Encodes a continuation token, which is opaque to clients: the hexadecimal name of the last
/// entry.
fn entry_of_token(token: &str) -> S3Result<String> {
    let wrong = || {
        s3_error!(
            InvalidArgument,
            "The continuation token provided is incorrect"
        )
    };
    let digits = token.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    let bytes: Vec<u8> = digits.collect::<Option<_>>().ok_or_else(wrong)?;
    String::from_utf8(bytes).map_err(|_| wrong())
}

fn limit(max_keys: Option<i32>) -> S3Result<usize> {
    let max_keys = max_keys.unwrap_or(MAX_KEYS).min(MAX_KEYS);
    usize::try_from(max_keys)
        .map_err(|_| s3_error!(InvalidArgument, "max-keys must not be negative"))
}

impl Api {
    pub(super) fn answer_list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<ListObjectsV2Output> {
        let input = request.input;
        let bucket = self.storage.bucket(&input.bucket)?;
        let token = input
            .continuation_token
            .as_deref()
            .filter(|token| !token.is_empty());
        let entry = token.map(entry_of_token).transpose()?;
        if self.order != Order::Sorted && input.start_after.is_some() {
            return Err(s3_error!(
                InvalidRequest,
                "start-after has no meaning in an unordered listing"
            ));
        }
        let query = Query {
            prefix: input.prefix.as_deref().unwrap_or(""),
            delimiter: input.delimiter.as_deref().unwrap_or(""),
            after: entry.as_deref().or(input.start_after.as_deref()),
            limit: limit(input.max_keys)?,
        };
        let page = bucket.list(&query, self.order);
        let names = Names::new(input.encoding_type.as_ref());
        Ok(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: Some(names.write(query.prefix)),
            delimiter: input
                .delimiter
                .as_deref()
                .map(|delimiter| names.write(delimiter)),
            start_after: input.start_after.as_deref().map(|start| names.write(start)),
            max_keys: Some(query.limit as i32),
            key_count: Some((page.objects.len() + page.prefixes.len()) as i32),
            continuation_token: input.continuation_token,
            is_truncated: Some(page.next.is_some()),
            next_continuation_token: page.next.as_ref().map(|next| hex(next.as_bytes())),
            contents: Some(names.contents(&page)),
            common_prefixes: Some(names.common_prefixes(&page)),
            encoding_type: input.encoding_type,
            ..ListObjectsV2Output::default()
        })
    }

    pub(super) fn answer_list_objects(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<ListObjectsOutput> {
        let input = request.input;
        let bucket = self.storage.bucket(&input.bucket)?;
        let query = Query {
            prefix: input.prefix.as_deref().unwrap_or(""),
            delimiter: input.delimiter.as_deref().unwrap_or(""),
            after: input.marker.as_deref().filter(|marker| !marker.is_empty()),
            limit: limit(input.max_keys)?,
        };
        let page = bucket.list(&query, self.order);
        let names = Names::new(input.encoding_type.as_ref());
        Ok(ListObjectsOutput {
            name: Some(input.bucket),
            prefix: Some(names.write(query.prefix)),
            delimiter: input
                .delimiter
                .as_deref()
                .map(|delimiter| names.write(delimiter)),
            max_keys: Some(query.limit as i32),
            is_truncated: Some(page.next.is_some()),
            next_marker: page.next.as_deref().map(|next| names.write(next)),
            contents: Some(names.contents(&page)),
            common_prefixes: Some(names.common_prefixes(&page)),
            marker: input.marker,
            encoding_type: input.encoding_type,
            ..ListObjectsOutput::default()
        })
    }
}
