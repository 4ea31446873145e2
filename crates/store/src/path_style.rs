//! The place of the bucket's name in requests to S3: in the path, or in the host.

use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};

/// Whether requests name the bucket in their path (`host/bucket/key`) or in their host (`bucket.host/key`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "FlagOrText")]
pub enum PathStyle {
    /// As BATCHWEAVE_PATH_STYLE says; without it, in the path at a configured endpoint, in the host at AWS.
    #[default]
    Auto,
    /// In the path at every endpoint.
    Path,
    /// In the host at every endpoint, which some stores require.
    Host,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected true, false or \"auto\"")]
enum FlagOrText {
    Flag(bool),
    Text(String),
}

impl TryFrom<FlagOrText> for PathStyle {
    type Error = String;

    fn try_from(written: FlagOrText) -> Result<Self, String> {
        match written {
            FlagOrText::Flag(true) => Ok(Self::Path),
            FlagOrText::Flag(false) => Ok(Self::Host),
            FlagOrText::Text(text) => text.parse(),
        }
    }
}

impl FromStr for PathStyle {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            // An empty variable is like one that is not set.
            "auto" | "" => Ok(Self::Auto),
            "true" => Ok(Self::Path),
            "false" => Ok(Self::Host),
            _ => Err(format!(
                "invalid path style {text:?}: expected true (host/bucket/key), false (bucket.host/key) or \"auto\""
            )),
        }
    }
}

impl Serialize for PathStyle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Path => serializer.serialize_bool(true),
            Self::Host => serializer.serialize_bool(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_words() {
        for (text, style) in [
            ("auto", PathStyle::Auto),
            ("", PathStyle::Auto),
            ("true", PathStyle::Path),
            ("false", PathStyle::Host),
        ] {
            assert_eq!(text.parse(), Ok(style));
        }
        for (json, style) in [
            ("true", PathStyle::Path),
            ("false", PathStyle::Host),
            ("\"auto\"", PathStyle::Auto),
        ] {
            assert_eq!(serde_json::from_str::<PathStyle>(json).unwrap(), style);
            assert_eq!(serde_json::to_string(&style).unwrap(), json);
        }
        let number = serde_json::from_str::<PathStyle>("1").unwrap_err();
        assert!(number.to_string().contains("expected true"), "{number}");
        let why = "virtual".parse::<PathStyle>().unwrap_err();
        assert!(
            why.contains("expected true") && why.contains("virtual"),
            "{why}"
        );
    }
}
