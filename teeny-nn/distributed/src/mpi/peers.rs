//! Which ranks are alive: small messages besides the messages of operations.
//!
//! A rank that waits for another one asks it for a sign of life, which its communication thread
//! gives while the program computes. A rank that fails or ends says so to all.

use super::MpiOptions;
use mpi::point_to_point::{Message, Status};
use mpi::request::{Request, StaticScope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use std::time::{Duration, Instant};
use teeny_core::{Error, Result};

/// The first byte of a message.
const PING: u8 = 0;
const PONG: u8 = 1;
/// A rank has called finish, or dropped its handles.
const END: u8 = 2;
/// A rank has failed; the text says why.
const FAILED: u8 = 3;
/// A rank knows that all have ended, and calls MPI for the last time.
const CLOSE: u8 = 4;

/// How long a message that was sent before its rank ended may still be on its way.
const GRACE: Duration = Duration::from_secs(1);

/// The bytes of a message that MPI sends with its envelope: receiving it does not wait.
pub(super) fn small(message: Message, status: &Status) -> Vec<u8> {
    let length = status.count(u8::equivalent_datatype());
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    message.matched_receive_into(&mut bytes[..]);
    bytes
}

/// The other ranks.
pub(super) struct Peers {
    /// For these messages only.
    comm: SimpleCommunicator,
    rank: usize,
    all: Vec<Peer>,
    options: MpiOptions,
    /// Messages that are being sent.
    posted: Vec<Request<'static, [u8], StaticScope>>,
}

#[derive(Clone)]
struct Peer {
    /// The last sign of life.
    seen: Instant,
    asked: Instant,
    /// When it said that it ends or has failed, and why.
    exit: Option<(Instant, Exit)>,
    is_closed: bool,
}

#[derive(Clone)]
enum Exit {
    Ended,
    Failed(String),
}

impl Peers {
    pub fn new(comm: SimpleCommunicator, options: MpiOptions) -> Peers {
        let now = Instant::now();
        let peer = Peer { seen: now, asked: now, exit: None, is_closed: false };
        Peers {
            rank: comm.rank() as usize,
            all: vec![peer; comm.size() as usize],
            comm,
            options,
            posted: Vec::new(),
        }
    }

    /// Reads and answers the messages that have arrived.
    pub fn poll(&mut self) {
        while let Some((message, status)) = self.comm.any_process().immediate_matched_probe() {
            self.receive(status.source_rank() as usize, &small(message, &status));
        }
        let posted = std::mem::take(&mut self.posted);
        self.posted.extend(posted.into_iter().filter_map(|sending| sending.test().err()));
    }

    fn receive(&mut self, from: usize, bytes: &[u8]) {
        let now = Instant::now();
        let Some(peer) = self.all.get_mut(from) else { return };
        peer.seen = now;
        let exit = match bytes.split_first() {
            Some((&PING, _)) => return self.send(from, &[PONG]),
            Some((&CLOSE, _)) => return peer.is_closed = true,
            Some((&END, _)) => Exit::Ended,
            Some((&FAILED, text)) => Exit::Failed(String::from_utf8_lossy(text).into_owned()),
            _ => return,
        };
        peer.exit.get_or_insert((now, exit));
    }

    fn send(&mut self, to: usize, bytes: &'static [u8]) {
        let to = self.comm.process_at_rank(to as i32);
        self.posted.push(to.immediate_send(StaticScope, bytes));
    }

    fn notify(&mut self, bytes: &'static [u8]) {
        let own = self.rank;
        (0..self.all.len()).filter(|&rank| rank != own).for_each(|rank| self.send(rank, bytes));
    }

    /// Tells the others that this rank has failed. The text, which is sent once in the life of a
    /// process, stays in memory.
    pub fn notify_failure(&mut self, text: &str) {
        let text: Vec<u8> = [FAILED].into_iter().chain(text.bytes().take(2000)).collect();
        self.notify(text.leak());
    }

    /// Whether a message is still being sent.
    pub fn is_sending(&self) -> bool {
        !self.posted.is_empty()
    }

    /// Tells the others that this rank ends, and waits until they have ended and know it of all.
    pub fn end(&mut self) -> Result<()> {
        self.notify(&[END]);
        self.wait_for_all(|peer| matches!(peer.exit, Some((_, Exit::Ended))))?;
        // one that stopped after it had ended would let the others wait in MPI_Finalize
        self.notify(&[CLOSE]);
        self.wait_for_all(|peer| peer.is_closed)
    }

    fn wait_for_all(&mut self, is_done: impl Fn(&Peer) -> bool) -> Result<()> {
        let since = Instant::now();
        loop {
            self.poll();
            let mut others = (0..self.all.len()).filter(|&rank| rank != self.rank);
            match others.find(|&rank| !is_done(&self.all[rank])) {
                Some(missing) => self.require_alive(missing, since)?,
                None if !self.is_sending() || since.elapsed() > self.options.timeout => {
                    return Ok(());
                }
                None => {}
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// Returns an error if `rank`, for which this one has waited since `since`, will not answer.
    pub fn require(&mut self, rank: usize, since: Instant, what: &str) -> Result<()> {
        if let Some((when, Exit::Ended)) = &self.all[rank].exit
            && when.max(&since).elapsed() > GRACE
        {
            return Err(Error::io(format!("rank {rank} has ended before {what}"))
                .help("all ranks call the same operations; did its program return early?"));
        }
        let busy = self.options.busy_timeout;
        if since.elapsed() > busy {
            let text = format!(
                "rank {rank} is alive, but did not take part in {what} for {:.1} s",
                busy.as_secs_f64()
            );
            return Err(Error::io(text).help("MpiOptions::busy_timeout sets this time"));
        }
        self.require_alive(rank, since)
    }

    fn require_alive(&mut self, rank: usize, since: Instant) -> Result<()> {
        // the failure of any rank is the end of the job
        for peer in &self.all {
            if let Some((when, Exit::Failed(text))) = &peer.exit
                && when.elapsed() > GRACE / 10
            {
                return Err(Error::io(text.clone()));
            }
        }
        let timeout = self.options.timeout;
        let now = Instant::now();
        let peer = &mut self.all[rank];
        let silent = now - peer.seen.max(since);
        if silent > timeout {
            let text =
                format!("rank {rank} gave no sign of life for {:.1} s", timeout.as_secs_f64());
            return Err(Error::io(text).help(
                "is its process stopped or dead, or its machine off the network? \
                 MpiOptions::timeout sets this time",
            ));
        }
        let interval = (timeout / 4).min(Duration::from_secs(5));
        if silent > interval && now - peer.asked > interval {
            peer.asked = now;
            self.send(rank, &[PING]);
        }
        Ok(())
    }

    /// `rank` has sent something.
    pub fn saw(&mut self, rank: usize) {
        self.all[rank].seen = Instant::now();
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        // a request that is dropped panics; its bytes are static
        self.posted.drain(..).for_each(std::mem::forget);
    }
}
