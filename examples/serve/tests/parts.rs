//! Parts of the server alone: the queue.

use serve::queue::{Job, Queue, Refused};

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
