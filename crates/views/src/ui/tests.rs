//! The sentence for each state, scripted daemons, and what is read and kept.

use std::io::{Read, Write};
use std::net::TcpListener;

use batchweave_core::fixtures;
use batchweave_core::stream::StreamOrder;
use batchweave_store::counting::Counted;
use batchweave_store::memory::MemoryStore;
use batchweave_store::{Op, Store};
use batchweave_testkit::{TestJob, TestProducer};

use super::daemons::{DaemonView, read_all};
use super::sentence::{Level, state};
use super::*;
use crate::status::{JobView, Outlook, ProducerView, StreamView};

const HELD: &str =
    "held back by job llm, whose attempt 0 is at step 40; the stream may be 60 steps ahead";

fn status(program: &str, name: &str, state: &str, doing: &str) -> String {
    format!(
        r#"{{"program":"{program}","version":"1","stream":"s3://b/stream/","host":"h","name":"{name}","job":"llm",
            "ready":true,"state":"{state}","doing":"{doing}","up_seconds":9,"plots":[],"tables":[],
            "facts":[{{"name":"progress","text":"42 %, 8 s left"}}]}}"#
    )
}

fn daemon_of(address: &str, json: &str) -> DaemonView {
    let view = DaemonView {
        address: address.to_owned(),
        fault: None,
        status: Some(serde_json::from_str(json).unwrap()),
    };
    view.check_stream("s3://b/stream")
}

fn absent(address: &str) -> DaemonView {
    DaemonView {
        address: address.to_owned(),
        fault: Some("does not answer: refused".to_owned()),
        status: None,
    }
}

#[test]
fn addresses_are_checked() {
    for good in ["10.0.0.7:9465", "node-17.train.svc:9465", "[::1]:9465"] {
        assert_eq!(parse_address(good).as_deref(), Ok(good));
    }
    for bad in [
        "",
        ":",
        "node17",
        "node17:",
        ":9465",
        "node17:0",
        "node17:65536",
        "::1:9465",
        "http://node17:9465",
        "node17:9465/",
        "user@node17:9465",
        "a b:1",
        "a\r\nX: y:1",
    ] {
        let why = parse_address(bad).unwrap_err();
        assert!(why.contains("expected HOST:PORT"), "{bad}: {why}");
    }
    assert!(listen("0.0.0.0:0").is_ok());
    assert!(
        listen("localhost:80")
            .unwrap_err()
            .contains("127.0.0.1:9466")
    );
}

fn job(step: u64, outlook: Outlook) -> JobView {
    JobView::example("llm@4", Some(step), Some(outlook))
}

#[test]
fn the_state_is_one_sentence() {
    let held = daemon_of("p:1", &status("batchweave-producer", "p0", "held", HELD));
    let ready = daemon_of("c:1", &status("batchweave-consumer", "", "ready", "1 rank"));
    let down = daemon_of(
        "c:2",
        &status("batchweave-consumer", "", "not ready", "the store fails"),
    );
    let other = status("batchweave-producer", "p0", "held", HELD).replace("b/stream", "b/other");
    let other = daemon_of("p:2", &other);
    let none: Vec<DaemonView> = Vec::new();
    let one = |view: &DaemonView| vec![view.clone()];
    let by = "held back by job llm, whose attempt 0 is at step 40";
    let keeps = || vec![job(40, Outlook::KeepsUp)];
    let waits = || {
        vec![
            job(100, Outlook::Waits),
            JobView::example("slow@5", Some(40), None),
        ]
    };
    let cases = [
        (keeps(), none.clone(), Level::Good, "training is fed".to_owned()),
        (keeps(), one(&held), Level::Warn, format!("training is fed; producers are {by}")),
        (waits(), none.clone(), Level::Warn, "job llm waits for producers".to_owned()),
        (
            waits(),
            one(&held),
            Level::Warn,
            format!("job llm waits for producers; producers are {by}"),
        ),
        (
            vec![job(40, Outlook::StandsStill)],
            none.clone(),
            Level::Warn,
            "job llm stands still at step 40".to_owned(),
        ),
        (
            vec![job(40, Outlook::RunsDry)],
            none.clone(),
            Level::Warn,
            "job llm runs dry in 12 s: it reads faster than producers commit".to_owned(),
        ),
        (
            vec![job(100, Outlook::HasAll)],
            none.clone(),
            Level::Good,
            "training has received the whole stream, 100 steps".to_owned(),
        ),
        (
            vec![JobView::example("llm@4", None, None)],
            one(&ready),
            Level::Quiet,
            "no job has started yet".to_owned(),
        ),
        (vec![], one(&ready), Level::Quiet, "no job is open".to_owned()),
        (
            vec![job(40, Outlook::Waits).closed()],
            none.clone(),
            Level::Quiet,
            "no job is open".to_owned(),
        ),
        (
            keeps(),
            vec![ready.clone(), absent("n:1")],
            Level::Bad,
            "training is fed; n:1 does not answer: refused".to_owned(),
        ),
        (
            keeps(),
            vec![absent("n:1"), other, down],
            Level::Bad,
            "training is fed; the consumer on h is not ready; 2 named daemons do not answer as such"
                .to_owned(),
        ),
    ];
    for (jobs, daemons, level, text) in cases {
        let seen = state(&StreamView::example(jobs), None, &daemons);
        assert_eq!((seen.level, seen.text), (level, text));
    }
    let failing = state(&StreamView::example(keeps()), Some("no connection"), &none);
    assert_eq!(failing.level, Level::Bad);
    assert_eq!(failing.text, "the store cannot be read: no connection");
    let ended = StreamView {
        end: Some(1200),
        ..StreamView::example(vec![])
    };
    assert_eq!(
        state(&ended, None, &none).text,
        "the stream has ended, with 1,200 steps"
    );
}

/// A server that sends `head`, then `body` this number of times, and keeps the connection open if `stays`.
fn server(head: &'static str, body: &'static str, times: usize, stays: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(head.as_bytes());
            for _ in 0..times {
                if stream.write_all(body.as_bytes()).is_err() {
                    break;
                }
            }
            if stays {
                kept.push(stream);
            }
        }
    });
    address
}

#[tokio::test]
async fn anything_else_at_an_address_is_a_row_with_the_reason() {
    const OK: &str = "HTTP/1.1 200 OK\r\n\r\n";
    let good = status("batchweave-consumer", "", "ready", "1 rank").leak();
    let addresses = [
        server(OK, good, 1, false),
        server(
            OK,
            "<!doctype html><title>another program</title>",
            1,
            false,
        ),
        server("HTTP/1.1 404 Not Found\r\n\r\n", "", 1, false),
        server(
            OK,
            "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            1 << 20,
            false,
        ),
        server("SSH-2.0-OpenSSH\r\n", "", 1, false),
        server(OK, "{\"program\":\"batchweave-consumer\"}", 1, false),
        server(OK, "{", 1, true),
        "127.0.0.1:1".to_owned(),
        "no-such-host.invalid:9465".to_owned(),
    ];
    let seen = read_all(&addresses).await;
    let faults: Vec<&str> = seen
        .iter()
        .map(|d| d.fault.as_deref().unwrap_or(""))
        .collect();
    assert!(
        seen[0].status.is_some() && faults[0].is_empty(),
        "{faults:?}"
    );
    let expected = [
        "answers, but not as a daemon of BatchWeave (",
        "answers, but not as a daemon of BatchWeave (it has no /status.json)",
        "does not answer: an answer of more than 512.0 KiB",
        "does not answer: an answer that is not HTTP",
        "answers, but not as a daemon of BatchWeave (missing field `version`",
        "does not answer: no whole answer within 5 s",
        "does not answer: ",
        "does not answer: ",
    ];
    for (fault, expected) in faults[1..].iter().zip(expected) {
        assert!(fault.starts_with(expected), "{fault} is not {expected}");
        assert!(!fault.contains('\n') && fault.len() < 200, "{fault}");
    }
}

/// Returns the body of `/stream.json`.
fn body(page: &Page) -> serde_json::Value {
    serde_json::to_value(page.lock().body(page.every)).unwrap()
}

fn page(view: StreamView) -> Page {
    Page::new(view, Duration::from_secs(5))
}

#[test]
fn a_closed_job_stays_on_the_page_and_failures_leave_a_gap() {
    let page = page(StreamView::example(vec![job(40, Outlook::KeepsUp)]));
    page.lock().note(StreamView::example(vec![]));
    page.lock()
        .fail(&CliError::Failed("no connection".to_owned()));
    let shown = body(&page);
    assert_eq!(shown["jobs"][0]["open"], false);
    assert_eq!(shown["jobs"][0]["job"], "llm@4");
    assert_eq!(
        shown["plots"][1]["points"],
        serde_json::json!([60.0, null, null])
    );
    assert_eq!(
        shown["state"]["text"],
        "the store cannot be read: no connection; retrying"
    );
    page.lock().note(StreamView::example(vec![]));
    assert_eq!(body(&page)["jobs"].as_array().unwrap().len(), 1, "once");
    assert_eq!(body(&page)["state"]["text"], "no job is open");
}

#[tokio::test(start_paused = true)]
async fn a_producer_has_its_daemons_words_or_the_speed_of_the_last_reads() {
    let view = |passes: f64| StreamView {
        producers: ["p0", "p1"]
            .map(|name| ProducerView::example(name, Some(passes)))
            .to_vec(),
        ..StreamView::example(vec![])
    };
    let page = page(view(2.25));
    assert_eq!(body(&page)["producers"][0]["left"], serde_json::Value::Null);
    tokio::time::advance(Duration::from_secs(10)).await;
    page.lock().note(view(2.5));
    page.lock().daemons = vec![daemon_of(
        "p:1",
        &status("batchweave-producer", "p0", "held", HELD),
    )];
    let rows = &body(&page)["producers"];
    assert_eq!(rows[0]["left"], "42 %, 8 s left");
    assert_eq!(
        (&rows[0]["daemon_state"], &rows[0]["doing"]),
        (&"held".into(), &HELD.into())
    );
    assert_eq!(rows[1]["left"], "20 s to the end of the pass");
    assert_eq!(rows[1]["doing"], serde_json::Value::Null);
}

/// A stream behind a counter of requests.
async fn counted() -> (Counted, Arc<dyn Store>) {
    let counted = Counted::new(MemoryStore::new());
    let store: Arc<dyn Store> = Arc::new(counted.clone());
    let config = fixtures::stream([7; 16], StreamOrder::Arrival, Vec::new());
    let _ = batchweave_log::create(&store, &config).await.unwrap();
    (counted, store)
}

#[tokio::test(start_paused = true)]
async fn nothing_is_read_while_no_page_is_open() {
    let (counted, store) = counted().await;
    let mut stream = Watched::open(store).await.unwrap();
    let page = Arc::new(page(stream.view().await.unwrap()));
    let reader = page.clone();
    tokio::spawn(async move { reader.follow_stream(stream).await });
    let requests = || counted.counts().requests();
    let in_98_s = async || {
        let before = requests();
        tokio::time::sleep(Duration::from_secs(98)).await;
        requests() - before
    };
    let looked = in_98_s().await;
    assert_eq!(
        page.lock().rate.len(),
        21,
        "one at the start, 20 at intervals"
    );
    assert!((40..60).contains(&looked), "requests in 20 reads: {looked}");
    in_98_s().await;
    tokio::time::sleep(Duration::from_mins(15)).await;
    assert_eq!(in_98_s().await, 0, "nobody looks");
    for _ in 0..50 {
        let _ = page.answer();
    }
    assert!((38..60).contains(&in_98_s().await), "somebody looks again");
    assert!(page.lock().rate.len() <= 21, "the plots begin anew");
}

/// docs/cli.md has these numbers. The store in memory has no times of objects, so that of the newest record is
/// requested each time.
#[tokio::test]
async fn a_read_costs_a_few_requests() {
    let (counted, store) = counted().await;
    let mut stream = Watched::open(store.clone()).await.unwrap();
    let mut cost = async || {
        let before = counted.counts();
        stream.view().await.unwrap();
        let now = counted.counts().since(&before);
        [Op::Get, Op::Head, Op::List].map(|op| now.of(op).requests)
    };
    let _ = cost().await;
    assert_eq!(cost().await, [1, 0, 1], "of any stream");
    let mut log = batchweave_testkit::open_log(&store, 1).await;
    let job = TestJob::open(&mut log, "llm", |_| ()).await;
    job.progress(0).await;
    let _ = cost().await;
    assert_eq!(cost().await, [1, 2, 5], "with a job");
    let log = batchweave_testkit::open_log(&store, 2).await;
    let mut producer = TestProducer::open(log, "p0", "host:1").await;
    let _ = cost().await;
    producer.finish().await;
    assert_eq!(cost().await, [3, 2, 5], "and a new record");
}
