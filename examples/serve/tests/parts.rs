//! Parts of the server alone: base64, the queue, a worker that panics.

use serve::answers::to_base64;
use serve::queue::{Job, Queue, Refused};
use serve::worker::work;
use std::sync::Mutex;

#[test]
fn base64_is_that_of_rfc_4648() {
    let cases = [
        ("", ""),
        ("f", "Zg=="),
        ("fo", "Zm8="),
        ("foo", "Zm9v"),
        ("foob", "Zm9vYg=="),
        ("fooba", "Zm9vYmE="),
        ("foobar", "Zm9vYmFy"),
    ];
    for (bytes, want) in cases {
        assert_eq!(to_base64(bytes.as_bytes()), want);
    }
    assert_eq!(to_base64(&[0xfb, 0xff, 0xfe]), "+//+");
}

/// A request of some texts, abandoned or not.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Test(usize, bool);

impl Job for Test {
    fn texts(&self) -> usize {
        self.0
    }

    fn is_abandoned(&self) -> bool {
        self.1
    }
}

#[test]
fn a_queue_makes_batches_and_drops_the_abandoned() {
    let queue = Queue::new(4);
    let [one, two, nine, gone] = [Test(1, false), Test(2, false), Test(9, false), Test(1, true)];
    for job in [two, gone, one, nine] {
        assert_eq!(queue.push(job), Ok(()));
    }
    assert_eq!(queue.push(two), Ok(()), "the abandoned one made room");
    assert_eq!((queue.push(one), queue.waiting()), (Err(Refused::Full), 4));
    assert_eq!(queue.take(4), Some(vec![two, one]));
    assert_eq!(queue.take(4), Some(vec![nine]), "larger than a batch, so alone");
    assert_eq!(queue.push(gone), Ok(()));
    queue.close();
    assert_eq!(queue.push(one), Err(Refused::Closed));
    assert_eq!(queue.take(4), Some(vec![two]));
    assert_eq!(queue.take(4), None);
}

#[test]
fn a_batch_that_panics_is_lost_and_the_next_is_computed() {
    let queue = Queue::new(4);
    for texts in [1, 9, 2] {
        queue.push(Test(texts, false)).unwrap();
    }
    queue.close();
    let done = Mutex::new(Vec::new());
    work(&queue, 1, |jobs| {
        assert!(jobs[0].texts() < 9, "a panic of this test");
        done.lock().unwrap().extend(jobs);
    });
    assert_eq!(done.into_inner().unwrap(), [Test(1, false), Test(2, false)]);
}
