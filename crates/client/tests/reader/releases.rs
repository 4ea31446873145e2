//! Releases while the socket is full.

use std::time::Instant;

use super::*;

/// More releases than fit the socket: none is lost, whenever the daemon reads them.
#[test]
fn releases_that_find_no_room_are_sent_later() {
    const STEPS: u64 = 3000;
    let (_dir, path) = folder();
    let (mut reader, _daemon, mut session) = connected(&path);
    for step in 0..STEPS {
        session.step(step);
        drop(read(&mut reader));
    }
    let mut released = Vec::new();
    let take = |session: &mut fake::Session, released: &mut Vec<u64>| {
        while !session.is_silent() {
            if let Some(ClientMessage::Release(release)) = session.recv() {
                released.extend(release.frames);
            }
        }
    };
    take(&mut session, &mut released);
    let all = STEPS as usize * 2;
    assert!(released.len() < all, "the socket never was full");
    let deadline = Instant::now() + PATIENCE;
    while released.len() < all && Instant::now() < deadline {
        // Nothing arrives; pending releases are sent.
        assert!(reader.next(Duration::from_millis(1)).is_err());
        take(&mut session, &mut released);
    }
    let expected: Vec<u64> = (0..STEPS * 2).collect();
    released.sort_unstable();
    assert_eq!(released, expected, "each once");
}
