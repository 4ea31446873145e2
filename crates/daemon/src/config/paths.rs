//! The paths of the keys of a configuration.

use serde_json::Value;

/// Adds the paths of all keys and tables of the configuration to `out`.
pub(super) fn paths(schema: &Value, prefix: &str, out: &mut Vec<String>) {
    let Value::Object(map) = schema else { return };
    for (key, value) in map {
        let path = if prefix.is_empty() {
            key.clone()
        } else {
            format!("{prefix}.{key}")
        };
        paths(value, &path, out);
        out.push(path);
    }
}
