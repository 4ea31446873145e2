//! `batchweave stage show`: the stages, and where each producer begins them.

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_core::ids::Seq;
use batchweave_core::manifest::Manifest;
use batchweave_daemon::Exit;

use super::render;
use super::show_report::{ProducerShown, ShowReport, StageShown};

pub(super) async fn run(context: &Context) -> Result<Exit, CliError> {
    let log = context.log().await?;
    let report = ShowReport {
        root: log.store().root().to_owned(),
        stages: stages(log.manifest()),
    };
    context.done(&report, render::show)
}

fn stages(m: &Manifest) -> Vec<StageShown> {
    let stream = m.stream();
    let form = stream
        .tokenizer
        .name
        .rsplit_once("; ")
        .map_or("", |(_, form)| form);
    let first = StageShown {
        id: 0,
        name: None,
        rows_per_slice: stream.rows_per_slice,
        seq_len: stream.seq_len,
        form: form.to_owned(),
        producers: producers(m, 0),
    };
    let later = m.stages().all.iter().map(|(id, stage)| StageShown {
        id: *id,
        name: Some(stage.name.clone()),
        rows_per_slice: stage.rows_per_slice,
        seq_len: stage.seq_len,
        form: stage.form.clone(),
        producers: producers(m, *id),
    });
    std::iter::once(first).chain(later).collect()
}

fn producers(m: &Manifest, id: u64) -> Vec<ProducerShown> {
    let unopened = m.stages().unopened.keys().map(|name| (name, 0, false));
    let opened = m
        .producers()
        .map(|(name, p)| (name, p.next_seq, p.finished));
    let mut shown = Vec::new();
    for (name, next, finished) in opened.chain(unopened) {
        let mut begins = m.stages_of(name);
        begins.entry(0).or_insert(0);
        let ends: Vec<Seq> = begins.keys().skip(1).copied().collect();
        for (n, (from, of)) in begins.iter().enumerate() {
            if *of == id && !(finished && *from >= next) {
                shown.push(ProducerShown {
                    producer: name.clone(),
                    from: *from,
                    until: ends.get(n).copied(),
                    begun: *from < next,
                });
            }
        }
    }
    shown
}
