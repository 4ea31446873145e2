//! The shipped configuration files are valid TOML. Each daemon's own tests compare the values with
//! its defaults.

use std::fs;

use crate::{assert_none, root};

#[test]
fn config_files_parse() {
    let mut findings = Vec::new();
    let mut count = 0;
    for entry in fs::read_dir(root().join("config")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            count += 1;
            if let Err(error) = fs::read_to_string(&path).unwrap().parse::<toml::Table>() {
                findings.push(format!("{}: {error}", path.display()));
            }
        }
    }
    assert!(count > 0, "config/ holds no .toml files");
    assert_none("configuration files that do not parse", &findings);
}
