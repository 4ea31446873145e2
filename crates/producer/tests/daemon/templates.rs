//! Chat templates are rendered in separate processes: one that exhausts a resource costs one conversation.

use std::path::{Path, PathBuf};

use batchweave_daemon::Exit;
use batchweave_producer::config::{OnBadDocument, PackingMode, ProducerConfig};
use batchweave_producer::{Outcome, RunError};

use crate::support::World;

const PROGRAM: &str = env!("CARGO_BIN_EXE_batchweave-producer");
const TURNS: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|endoftext|>{% endfor %}";
/// A text that doubles sixty times.
const DOUBLES: &str = "{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}\
    {% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}";
/// A list nested so deeply that freeing it needs a deep stack.
const DEEPENS: &str = "{% set ns = namespace(s=[]) %}\
    {% for j in range(30) %}{% for i in range(30000) %}{% set ns.s = [ns.s] %}{% endfor %}{% endfor %}";

fn good(from: usize, to: usize) -> String {
    let line = |n| {
        let user = format!(r#"{{"role":"user","content":"question {n}?"}}"#);
        let answer = format!(r#"{{"role":"assistant","content":"answer {n}."}}"#);
        format!("{{\"messages\":[{user},{answer}]}}\n")
    };
    (from..to).map(line).collect()
}

const POISON: &str = "{\"messages\":[{\"role\":\"user\",\"content\":\"poison\"}]}\n";

/// Returns a configuration for conversations by `template`, in processes of `program`.
fn config(world: &World, template: &str, lines: &str, program: Option<&Path>) -> ProducerConfig {
    let folder = world.folder.path();
    std::fs::write(folder.join("t.jinja"), template).unwrap();
    std::fs::write(folder.join("a.jsonl"), lines).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let mut config = World::config(&[path("a.jsonl")], "a");
    config.packing.mode = PackingMode::Chat;
    config.chat.template = path("t.jinja");
    config.chat.renderer = program.map(Path::to_owned);
    config
}

/// Returns the content of the stream, with the poison in its place and without it.
async fn payloads_with(template: &str, program: &Path) -> [Vec<Vec<Vec<u8>>>; 2] {
    let mut payloads = Vec::new();
    for poison in [POISON, ""] {
        let world = World::new();
        let lines = good(0, 40) + poison + &good(40, 80);
        let mut config = config(&world, template, &lines, Some(program));
        if !poison.is_empty() {
            let why = world.run(config.clone()).await.unwrap_err();
            assert!(
                matches!(why, RunError::Document(_) | RunError::File(_)),
                "{why}"
            );
            assert_eq!(why.exit(), Exit::BadInput);
            let wanted = ["a.jsonl:41: ", "MiB of memory or 16 MiB of stack"];
            for word in wanted {
                assert!(why.to_string().contains(word), "{word} in {why}");
            }
        }
        config.source.on_bad_document = OnBadDocument::Skip;
        let outcome = world.run(config).await.unwrap();
        assert!(matches!(outcome, Outcome::Finished { .. }), "{outcome:?}");
        payloads.push(world.payloads().await);
    }
    payloads.try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_template_that_wants_all_memory_or_stack_costs_its_conversation() {
    for poison in [DOUBLES, DEEPENS] {
        let template =
            format!("{{% if messages[0].content == 'poison' %}}{poison}{{% endif %}}{TURNS}");
        let [with, without] = payloads_with(&template, Path::new(PROGRAM)).await;
        assert!(!without.is_empty());
        assert!(with == without, "all but the bad conversation");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_makes_no_difference_where_templates_are_rendered() {
    let mut payloads = Vec::new();
    for program in [None, Some(Path::new(PROGRAM))] {
        let world = World::new();
        let config = config(&world, TURNS, &good(0, 200), program);
        world.run(config).await.unwrap();
        payloads.push(world.payloads().await);
    }
    assert!(!payloads[0].is_empty());
    assert!(payloads[0] == payloads[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_template_too_deep_for_its_compiler_is_an_error_of_the_configuration() {
    let deep = format!("{{{{ {}1 }}}}", "not ".repeat(200_000));
    for (template, wanted) in [
        (
            deep.as_str(),
            "t.jinja is not a valid template: it is nested too deeply",
        ),
        ("{% if %}", "t.jinja is not a valid template: "),
    ] {
        let world = World::new();
        let config = config(&world, template, &good(0, 3), Some(Path::new(PROGRAM)));
        let why = world.run(config).await.unwrap_err();
        assert!(why.to_string().contains(wanted), "{why}");
    }
    let world = World::new();
    let config = config(&world, TURNS, &good(0, 3), Some(Path::new("/nowhere")));
    let why = world.run(config).await.unwrap_err().to_string();
    assert!(
        why.contains("the process that renders conversations can't be used"),
        "{why}"
    );
}

/// The first process is killed from outside at a random instant; its conversation is not a bad document.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_is_replaced() {
    let world = World::new();
    let program: PathBuf = world.folder.path().join("program");
    let mark = world.folder.path().join("started");
    let text = format!(
        "#!/bin/sh\nif mkdir '{}' 2>/dev/null; then (sleep 0.1; kill -9 $$) & fi\nexec '{PROGRAM}' \"$@\"\n",
        mark.display()
    );
    std::fs::write(&program, text).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&program, mode).unwrap();
    // Each conversation takes a while, so that some remain after the kill.
    let slow = format!("{{% for i in range(30000) %}}{{% set x = i * i %}}{{% endfor %}}{TURNS}");
    let config = config(&world, &slow, &good(0, 60), Some(&program));
    world.run(config).await.unwrap();
    assert!(mark.exists());
    let other = World::new();
    let plain = self::config(&other, TURNS, &good(0, 60), None);
    other.run(plain).await.unwrap();
    assert!(world.payloads().await == other.payloads().await);
}
