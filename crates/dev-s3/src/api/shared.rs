//! Macros for fields that several operations have in requests and answers under the same names, in
//! types that have nothing else in common.

/// Returns the checksums in a request.
macro_rules! sent_checksums {
    ($input:ident) => {
        $crate::checksum::Checksums {
            crc32: $input.checksum_crc32,
            crc32c: $input.checksum_crc32c,
            crc64nvme: $input.checksum_crc64nvme,
            sha1: $input.checksum_sha1,
            sha256: $input.checksum_sha256,
        }
    };
}

/// Returns the conditions of a write.
macro_rules! write_condition {
    ($input:ident) => {
        $crate::storage::Condition {
            if_match: $input.if_match,
            if_none_match: $input.if_none_match,
        }
    };
}

/// Returns the headers that are stored unchanged.
macro_rules! kept_headers {
    ($input:ident) => {
        $crate::storage::Headers {
            modified_ms: $crate::storage::now_ms(),
            content_type: $input.content_type,
            content_encoding: $input.content_encoding,
            content_disposition: $input.content_disposition,
            content_language: $input.content_language,
            cache_control: $input.cache_control,
            metadata: $input.metadata.into_iter().flatten().collect(),
            ..$crate::storage::Headers::default()
        }
    };
}

/// Builds an answer with checksums and further fields.
macro_rules! with_checksums {
    ($output:ident, $sums:expr, { $($field:ident: $value:expr),* $(,)? }) => {{
        let sums: $crate::checksum::Checksums = $sums;
        $output {
            checksum_crc32: sums.crc32,
            checksum_crc32c: sums.crc32c,
            checksum_crc64nvme: sums.crc64nvme,
            checksum_sha1: sums.sha1,
            checksum_sha256: sums.sha256,
            $($field: $value,)*
            ..$output::default()
        }
    }};
}

/// Builds an answer that describes an object, with further fields.
macro_rules! describing {
    ($output:ident, $headers:ident, $sums:expr, { $($field:ident: $value:expr),* $(,)? }) => {
        with_checksums!($output, $sums, {
            accept_ranges: Some("bytes".to_owned()),
            cache_control: $headers.cache_control.clone(),
            content_disposition: $headers.content_disposition.clone(),
            content_encoding: $headers.content_encoding.clone(),
            content_language: $headers.content_language.clone(),
            content_type: $headers.content_type.clone(),
            e_tag: Some($headers.etag()),
            last_modified: Some($headers.modified()),
            metadata: metadata($headers),
            $($field: $value,)*
        })
    };
}
