//! The source whose files have no name in an input list.

use crate::cursor::Cursor;

/// Returns the name of the source whose files have none in the list of a cursor: the first one, where the producer began
/// with `[source]` and others joined.
pub fn unnamed_source(cursor: &Cursor) -> Option<&str> {
    let first = cursor.0.pointer("/settings/sources/0")?;
    first.get("files").filter(|files| **files == true)?;
    first.get("name")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_a_name_belong_to_the_marked_source() {
        let cursor = |sources: serde_json::Value| {
            Cursor(serde_json::json!({"settings": {"sources": sources}}))
        };
        let marked = cursor(serde_json::json!([{"name": "web", "files": true}, {"name": "code"}]));
        assert_eq!(unnamed_source(&marked), Some("web"));
        for none in [
            cursor(serde_json::json!([{"name": "web"}, {"name": "code", "files": true}])),
            cursor(serde_json::json!([])),
            Cursor(serde_json::json!({"settings": {}})),
            Cursor::default(),
        ] {
            assert_eq!(unnamed_source(&none), None, "{none:?}");
        }
    }
}
