//! [`Queue`]: requests that wait for a model, a bounded number of them.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};

/// A request that waits.
pub trait Job {
    /// The number of its texts.
    fn texts(&self) -> usize;

    /// Whether its client has closed the connection.
    fn is_abandoned(&self) -> bool;
}

/// The reason for refusing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The queue is full.
    Full,
    /// The server shuts down.
    Closed,
}

/// Requests in the order in which they came.
pub struct Queue<J> {
    limit: usize,
    state: Mutex<QueueState<J>>,
    changed: Condvar,
}

struct QueueState<J> {
    jobs: VecDeque<J>,
    closed: bool,
}

impl<J: Job> Queue<J> {
    /// An empty queue for `limit` requests.
    pub fn new(limit: usize) -> Queue<J> {
        let state = QueueState { jobs: VecDeque::new(), closed: false };
        Queue { limit, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<J>> {
        // no code that may panic runs while it is locked
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Adds `job` at the end.
    ///
    /// # Errors
    /// If the queue is full or closed.
    pub fn push(&self, job: J) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.closed {
            return Err(Refused::Closed);
        }
        if state.jobs.len() >= self.limit {
            state.jobs.retain(|job| !job.is_abandoned());
        }
        if state.jobs.len() >= self.limit {
            return Err(Refused::Full);
        }
        state.jobs.push_back(job);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for a request, and removes it with those after it that together have at most `texts`
    /// texts. Abandoned requests are dropped. None, if the queue is closed and empty.
    pub fn take(&self, texts: usize) -> Option<Vec<J>> {
        let mut state = self.lock();
        loop {
            let (mut batch, mut count) = (Vec::new(), 0usize);
            while let Some(job) = state.jobs.pop_front() {
                if job.is_abandoned() {
                    continue;
                }
                count = count.saturating_add(job.texts());
                if !batch.is_empty() && count > texts {
                    state.jobs.push_front(job);
                    break;
                }
                batch.push(job);
            }
            if !batch.is_empty() {
                return Some(batch);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// The number of requests that wait.
    pub fn waiting(&self) -> usize {
        self.lock().jobs.len()
    }

    /// Takes no more requests. Those that wait are still computed.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}
