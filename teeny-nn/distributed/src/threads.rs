//! Ranks that are threads of one process.

use super::collective::{Collective, Group, Pending, run};
use super::communicator::{Communicator, Split, split};
use super::message::{Expected, Header, Outgoing, Transport};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use teeny_core::{Error, Result, random};

/// A rank that is a thread of this process: to try a distributed program without MPI, and for
/// several devices in one process.
///
/// # Example
/// ```
/// use teeny_core::{Reference, Tensor};
/// use teeny_distributed::{Communicator, Reduce, Threads};
/// let sums = Threads::run(3, |comm| {
///     let x = Tensor::new([comm.rank() as f32], &Reference::new())?; // (1)
///     comm.all_reduce(&x, Reduce::Sum)?.to_vec::<f32>()
/// }).unwrap();
/// assert_eq!(sums, [[3.0], [3.0], [3.0]]);
/// ```
#[derive(Clone)]
pub struct Threads {
    channels: Arc<Mutex<Channels>>,
    /// Global rank of each member.
    members: Arc<[usize]>,
    rank: usize,
    group: u64,
    sequence: Arc<Mutex<u64>>,
}

/// The channels of one rank to and from every other.
struct Channels {
    to: Vec<Sender<Packet>>,
    from: Vec<Receiver<Packet>>,
    timeout: Duration,
    failed: Option<Error>,
    groups: u64,
    scratch: Vec<u8>,
}

enum Packet {
    Message(Header, Vec<u8>),
    Failed(String),
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "thread {} of {}", self.rank, self.members.len())
    }
}

impl Threads {
    /// The communicators of `size` ranks, which wait for each other for 60 s at most.
    pub fn ranks(size: usize) -> Vec<Threads> {
        let mut from: Vec<Vec<Receiver<Packet>>> = (0..size).map(|_| Vec::new()).collect();
        let mut to: Vec<Vec<Sender<Packet>>> = (0..size).map(|_| Vec::new()).collect();
        for sender in &mut to {
            for receiver in &mut from {
                let (send, receive) = channel();
                sender.push(send);
                receiver.push(receive);
            }
        }
        let members: Arc<[usize]> = (0..size).collect();
        to.into_iter()
            .zip(from)
            .enumerate()
            .map(|(rank, (to, from))| {
                let timeout = Duration::from_secs(60);
                let channels =
                    Channels { to, from, timeout, failed: None, groups: 0, scratch: Vec::new() };
                Threads {
                    channels: Arc::new(Mutex::new(channels)),
                    members: members.clone(),
                    rank,
                    group: 0,
                    sequence: Arc::default(),
                }
            })
            .collect()
    }

    /// Runs `body` as each of `size` ranks; the results by rank. Each has its own generator of
    /// random numbers, as processes have, all with the state of the caller's.
    ///
    /// # Errors
    /// The error of the first rank that has one. If a rank panics, so does this call.
    pub fn run<T: Send>(size: usize, body: impl Fn(Threads) -> Result<T> + Sync) -> Result<Vec<T>> {
        let (body, random) = (&body, random::state());
        std::thread::scope(|scope| {
            let ranks: Vec<_> = Threads::ranks(size)
                .into_iter()
                .map(|comm| {
                    scope.spawn(move || {
                        let result = random::with_state(random, || body(comm.clone()));
                        if let Err(error) = &result {
                            comm.abort(error);
                        }
                        result
                    })
                })
                .collect();
            let join = |rank: std::thread::ScopedJoinHandle<'_, Result<T>>| {
                rank.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            let results: Vec<Result<T>> = ranks.into_iter().map(join).collect();
            results.into_iter().collect()
        })
    }

    /// Sets how long this rank waits for another one.
    pub fn timeout(self, timeout: Duration) -> Threads {
        self.channels().timeout = timeout;
        self
    }

    fn channels(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Communicator for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn start(&self, collective: Collective) -> Pending {
        let mut channels = self.channels();
        if let Some(error) = &channels.failed {
            return Pending::done(Err(error.clone()));
        }
        let mut sequence = self.sequence.lock().unwrap_or_else(PoisonError::into_inner);
        *sequence += 1;
        let group =
            Group { id: self.group, rank: self.rank, members: &self.members, sequence: *sequence };
        let result = run(&mut *channels, &group, collective);
        if let Err(error) = &result {
            channels.failed = Some(error.clone());
            channels.notify(&format!("rank {} failed: {}", self.rank, error.message()));
        }
        Pending::done(result)
    }

    fn split(&self, group: usize) -> Result<Arc<dyn Communicator>> {
        let used = self.channels().groups;
        let Split { members, rank, id } = split(self, group, used)?;
        let members: Arc<[usize]> = members.into_iter().map(|rank| self.members[rank]).collect();
        let mut channels = self.channels();
        channels.groups = channels.groups.max(id);
        drop(channels);
        Ok(Arc::new(Threads {
            channels: self.channels.clone(),
            members,
            rank,
            group: id,
            sequence: Arc::default(),
        }))
    }

    fn abort(&self, error: &Error) {
        self.channels().notify(&format!("rank {} failed: {}", self.rank, error.message()));
    }
}

impl Channels {
    fn notify(&self, text: &str) {
        // a rank that has ended needs no message
        self.to.iter().for_each(|to| _ = to.send(Packet::Failed(text.to_string())));
    }
}

impl Transport for Channels {
    fn exchange(
        &mut self,
        outgoing: &[Outgoing<'_>],
        expected: &mut [Expected<'_>],
    ) -> Result<Vec<Vec<u8>>> {
        for Outgoing { to, head, data } in outgoing {
            // a rank that has ended is an error where its answer is missing
            let _ = self.to[*to].send(Packet::Message(head.clone(), data.to_vec()));
        }
        expected
            .iter_mut()
            .map(|wanted| {
                let from = wanted.from;
                match self.from[from].recv_timeout(self.timeout) {
                    Ok(Packet::Message(head, data)) => {
                        wanted.check(&head)?;
                        wanted.into.copy_from_slice(&data); // as long, by the check
                        Ok(head.note)
                    }
                    Ok(Packet::Failed(text)) => Err(Error::io(text)),
                    Err(RecvTimeoutError::Disconnected) => {
                        Err(Error::io(format!("rank {from} has ended")))
                    }
                    Err(RecvTimeoutError::Timeout) => Err(Error::io(format!(
                        "rank {from} did not answer for {:.1} s",
                        self.timeout.as_secs_f64()
                    ))),
                }
            })
            .collect()
    }

    fn scratch(&mut self) -> &mut Vec<u8> {
        &mut self.scratch
    }
}
