//! Each fault's effect on the object, and its error.

use futures::TryStreamExt;

use super::*;
use crate::Create;
use crate::memory::MemoryStore;

fn body() -> Bytes {
    Bytes::from(vec![7u8; 200_000])
}

#[tokio::test]
async fn writes_happen_or_not_regardless_of_the_reported_result() {
    for (fault, happened, effect) in [
        (Fault::Before, false, Effect::DidNot),
        (Fault::LostRequest, false, Effect::Unknown),
        (Fault::Throttled, false, Effect::Unknown),
        (Fault::Conflict, false, Effect::Unknown),
        (Fault::LostAnswer, true, Effect::Unknown),
    ] {
        let inner = MemoryStore::new();
        let store = FaultStore::new(inner.clone(), 1, []);
        store.inject(Op::Create, "log/", fault);
        assert_eq!(
            store.create("other", body()).await.unwrap(),
            Create::Created,
            "wrong key struck"
        );
        let error = store.create("log/1", body()).await.unwrap_err();
        assert_eq!(error.effect, effect, "{fault:?}");
        assert!(error.to_string().contains("seed 1"), "{error}");
        assert_eq!(
            inner.get("log/1", u64::MAX).await.is_ok(),
            happened,
            "{fault:?}"
        );
        assert_eq!(store.struck(), 1);
    }
}

#[tokio::test]
async fn reads_break_or_lie() {
    let inner = MemoryStore::new();
    let store = FaultStore::new(inner.clone(), 1, []);
    let _ = store.upload("k", body()).await.unwrap();
    store.inject(Op::GetRange, "", Fault::Truncated);
    let chunks: Vec<_> = store
        .get_range("k", 0..150_000)
        .await
        .unwrap()
        .collect()
        .await;
    assert!(chunks.last().unwrap().is_err());
    let got: usize = chunks.iter().flatten().map(Bytes::len).sum();
    assert_eq!(got, 75_000);
    store.inject(Op::GetRange, "", Fault::FlippedByte);
    let chunks: Vec<Bytes> = store
        .get_range("k", 0..150_000)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    assert_eq!(chunks.concat().iter().filter(|byte| **byte != 7).count(), 1);
    store.inject(Op::Get, "", Fault::FlippedByte);
    assert_ne!(store.get("k", u64::MAX).await.unwrap(), body());
    assert_eq!(store.get("k", u64::MAX).await.unwrap(), body());
}

#[tokio::test(start_paused = true)]
async fn one_seed_gives_one_history() {
    let mut histories = Vec::new();
    for seed in [5, 5, 6] {
        let store = FaultStore::everywhere(MemoryStore::new(), seed, Rates::rough());
        let mut history = String::new();
        for at in 0..300 {
            match store.create(&format!("k{at}"), Bytes::new()).await {
                Ok(_) => history.push('.'),
                Err(error) => history.push_str(&error.detail),
            }
        }
        assert!(store.struck() > 30, "{} of 300", store.struck());
        store.set_enabled(false);
        store.head("k0").await.ok();
        histories.push(history);
    }
    assert_eq!(histories[0], histories[1]);
    assert_ne!(histories[0], histories[2]);
}
