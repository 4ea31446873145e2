//! `batchweave bench fetch`: the figures that do not depend on the machine.

use std::process::Command;

use batchweave_tests::program;
use serde_json::Value;

#[test]
fn fetching_is_measured_and_reads_no_byte_twice() {
    let out = Command::new(program("batchweave"))
        .args(["--json", "bench", "fetch", "--slice-bytes", "64KiB,1MiB"])
        .args(["--slices", "1,8", "--bytes", "16MiB", "--rounds", "1"])
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{log}");
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let number = |name: &str| report[name].as_f64().unwrap();
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 4);
    for case in cases {
        let positive = |name: &str| case[name].as_f64().is_some_and(|cpu| cpu > 0.0);
        let both = positive("server_cpu_s_per_gib") && positive("raw_server_cpu_s_per_gib");
        assert!(both, "the server's share is reported: {case}");
    }
    assert!(number("ratio_to_raw_tcp") > 0.0 && number("cpu_s_per_gib") > 0.0);
    let amplification = number("read_amplification");
    assert!((0.99..1.02).contains(&amplification), "{report}");
    let requests = number("requests_per_step");
    assert!(requests > 0.0 && requests <= 1.05, "{report}");
}

#[test]
fn slices_that_are_not_whole_rows_are_refused() {
    let out = Command::new(program("batchweave"))
        .args(["bench", "fetch", "--slice-bytes", "5KiB"])
        .output()
        .unwrap();
    assert!(!out.status.success());
    let log = String::from_utf8_lossy(&out.stderr);
    assert!(log.contains("whole multiple of 4KiB"), "{log}");
}
