//! The thread that makes every call to MPI.
//!
//! It runs operations one after another, and answers the other ranks between them. After a failure
//! it stops for good: buffers that MPI may still read or write stay borrowed, because the thread
//! never leaves the function that owns them.

use super::MpiOptions;
use super::peers::{Peers, small};
use super::reader::Reader;
use crate::collective::{Collective, Group, Reply, run};
use crate::message::{Expected, Header, Outgoing, Transport};
use mpi::Threading;
use mpi::environment;
use mpi::request::{LocalScope, Request, scope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use teeny_core::{Error, Result, Tensor};

/// The tags of messages.
const HEAD: i32 = 1;
const BODY: i32 = 2;
/// MPI counts bytes as i32: larger data is sent in parts.
const MAX_MESSAGE: usize = 1 << 30;
/// How often an idle thread looks for messages of other ranks.
const IDLE: Duration = Duration::from_millis(10);

/// How long a rank that has failed answers the others.
const LAST_WORDS: Duration = Duration::from_millis(20);

/// A request of a handle.
pub(super) enum Command {
    Run(Box<Job>),
    /// This rank has failed; the text says why.
    Abort(String),
    Finish {
        panics: bool,
        reply: Sender<Result<()>>,
    },
}

/// An operation of this rank.
pub(super) struct Job {
    pub collective: Collective,
    pub group: u64,
    pub rank: usize,
    pub members: Arc<[usize]>,
    pub sequence: u64,
    pub reply: Sender<Result<Reply>>,
}

/// This process as MPI knows it.
pub(super) struct Start {
    pub rank: usize,
    pub size: usize,
    pub host: String,
    pub library: String,
}

/// The thread: initialises MPI, runs commands until the last, finalises MPI.
pub(super) fn serve(
    options: MpiOptions,
    ready: &Sender<Result<Start>>,
    commands: Receiver<Command>,
    waiting: Arc<AtomicUsize>,
) {
    let Some((universe, _)) = environment::initialize_with_threading(Threading::Funneled) else {
        let error = Error::value("MPI was initialised before in this process")
            .help("it can be only once: clone the first handle");
        let _ = ready.send(Err(error));
        return;
    };
    let world = universe.world();
    let peers = Peers::new(world.duplicate(), options);
    let start = Start {
        rank: world.rank() as usize,
        size: world.size() as usize,
        host: environment::processor_name().unwrap_or_default(),
        library: environment::library_version()
            .map(|text| text.split(['\0', '\n', ',']).next().unwrap_or("").to_string())
            .unwrap_or_default(),
    };
    let rank = start.rank;
    let reader = match Reader::new() {
        Ok(reader) => reader,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let (operation, scratch) = (String::new(), Vec::new());
    let reply = None;
    let mut worker =
        Worker { world, rank, peers, commands, reader, waiting, reply, operation, scratch };
    if ready.send(Ok(start)).is_err() {
        return;
    }
    let reply = worker.work();
    drop(worker);
    drop(universe); // finalises MPI
    let _ = reply.send(Ok(()));
}

struct Worker {
    world: SimpleCommunicator,
    rank: usize,
    peers: Peers,
    commands: Receiver<Command>,
    reader: Reader,
    /// How many callers wait for a result, while the others compute.
    waiting: Arc<AtomicUsize>,
    /// Who waits for the operation that runs.
    reply: Option<Sender<Result<Reply>>>,
    /// Its name.
    operation: String,
    /// Memory for received data.
    scratch: Vec<u8>,
}

impl Worker {
    /// Runs commands until every rank has finished; returns the channel of the caller.
    fn work(&mut self) -> Sender<Result<()>> {
        loop {
            match self.commands.recv_timeout(IDLE) {
                Ok(Command::Run(job)) => self.run(*job),
                Ok(Command::Abort(text)) => {
                    self.fail(Error::io(format!("rank {} failed: {text}", self.rank)))
                }
                Ok(Command::Finish { panics: true, reply }) => {
                    let _ = reply.send(Ok(())); // the caller may be gone during a panic
                    self.fail(Error::io(format!("rank {} panicked", self.rank)))
                }
                Ok(Command::Finish { panics: false, reply }) => match self.peers.end() {
                    Ok(()) => {
                        let _ = reply.send(Ok(())); // the caller waits for one more
                        return reply;
                    }
                    Err(error) => {
                        let _ = reply.send(Err(error.clone()));
                        self.fail(error)
                    }
                },
                Err(RecvTimeoutError::Timeout) => self.peers.poll(),
                // the last handle sends `Finish` before
                Err(RecvTimeoutError::Disconnected) => park(),
            }
        }
    }

    fn run(&mut self, job: Job) {
        let Job { collective, group, rank, members, sequence, reply } = job;
        let group = Group { id: group, rank, members: &members, sequence };
        self.reply = Some(reply);
        match run(self, &group, collective) {
            Ok(result) => {
                if let Some(reply) = self.reply.take() {
                    let _ = reply.send(Ok(result)); // the caller may have given up
                }
            }
            Err(error) => self.fail(error),
        }
    }

    /// Tells the caller and the other ranks about the failure; from then on every operation is an
    /// error. Does not return, as MPI may still use buffers of the operation.
    fn fail(&mut self, error: Error) -> ! {
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(Err(error.clone()));
        }
        let message = error.message();
        let own = format!("rank {} failed", self.rank);
        let text = match message.starts_with(&own) {
            true => message.to_string(),
            false => format!("{own}: {message}"),
        };
        self.peers.notify_failure(&text);
        // the program may end soon, and MPI must not be called while it does
        let since = Instant::now();
        while since.elapsed() < LAST_WORDS || self.peers.is_sending() && since.elapsed() < IDLE * 50
        {
            self.peers.poll();
            std::thread::sleep(Duration::from_millis(1));
        }
        loop {
            match self.commands.recv() {
                Ok(Command::Run(job)) => _ = job.reply.send(Err(error.clone())),
                Ok(Command::Abort(_)) => {}
                Ok(Command::Finish { reply, .. }) => _ = reply.send(Err(error.clone())),
                Err(_) => park(),
            }
        }
    }

    /// Calls `done` until it returns none; it returns the rank that is waited for.
    fn wait(&mut self, mut done: impl FnMut(&mut Worker) -> Option<usize>) {
        let mut rounds = 0u32;
        let mut waited = (usize::MAX, Instant::now());
        while let Some(rank) = done(self) {
            self.peers.poll();
            if rank != waited.0 {
                waited = (rank, Instant::now());
            }
            if rounds.is_multiple_of(16) {
                let operation = std::mem::take(&mut self.operation);
                if let Err(error) = self.peers.require(rank, waited.1, &operation) {
                    self.fail(error);
                }
                self.operation = operation;
            }
            // a program that computes needs the processor; one that waits needs the result
            match (self.waiting.load(Ordering::Relaxed), rounds) {
                (1.., ..5000) => std::thread::yield_now(),
                (1.., _) => std::thread::sleep(Duration::from_micros(50)),
                (0, _) => std::thread::sleep(Duration::from_micros(150)),
            }
            rounds = rounds.saturating_add(1);
        }
    }
}

/// The program ends, or has forgotten this thread.
fn park() -> ! {
    loop {
        std::thread::park();
    }
}

type Sending<'a, 's> = Request<'a, [u8], &'s LocalScope<'a>>;

/// Starts the messages that carry `bytes`.
fn send<'a, 's>(
    world: &SimpleCommunicator,
    scope: &'s LocalScope<'a>,
    to: usize,
    bytes: &'a [u8],
    tag: i32,
) -> impl Iterator<Item = (usize, Sending<'a, 's>)> {
    let process = world.process_at_rank(to as i32);
    bytes
        .chunks(MAX_MESSAGE)
        .map(move |part| (to, process.immediate_send_with_tag(scope, part, tag)))
}

/// The first rank whose message is still on its way; those that have arrived are removed.
fn first_open(messages: &mut Vec<(usize, Sending<'_, '_>)>) -> Option<usize> {
    let tested = std::mem::take(messages).into_iter();
    messages.extend(tested.filter_map(|(rank, m)| Some((rank, m.test().err()?))));
    messages.first().map(|(rank, _)| *rank)
}

impl Transport for Worker {
    /// The head of a message comes first; it must be the expected one before its body is received.
    fn exchange(
        &mut self,
        outgoing: &[Outgoing<'_>],
        expected: &mut [Expected<'_>],
    ) -> Result<Vec<Vec<u8>>> {
        let heads: Vec<Vec<u8>> = outgoing.iter().map(|m| m.head.encode()).collect();
        if let Some(head) = outgoing.first().map(|m| &m.head).or(expected.first().map(|m| &m.head))
        {
            self.operation = head.to_string();
        }
        scope(|sending| {
            let mut sent = Vec::new();
            for (m, head) in outgoing.iter().zip(&heads) {
                sent.extend(send(&self.world, sending, m.to, head, HEAD));
                sent.extend(send(&self.world, sending, m.to, &m.head.note, BODY));
                sent.extend(send(&self.world, sending, m.to, m.data, BODY));
            }
            let mut notes = self.notes(expected);
            scope(|receiving| {
                let mut open = Vec::new();
                for (m, note) in expected.iter_mut().zip(&mut notes) {
                    let process = self.world.process_at_rank(m.from as i32);
                    for part in note.chunks_mut(MAX_MESSAGE).chain(m.into.chunks_mut(MAX_MESSAGE)) {
                        let part = process.immediate_receive_into_with_tag(receiving, part, BODY);
                        open.push((m.from, part));
                    }
                }
                self.wait(|_| first_open(&mut open).or_else(|| first_open(&mut sent)));
            });
            expected.iter().for_each(|m| self.peers.saw(m.from));
            Ok(notes)
        })
    }

    fn read(&mut self, x: &Tensor) -> Result<Vec<u8>> {
        self.reader.read(x, IDLE, || self.peers.poll())
    }

    fn scratch(&mut self) -> &mut Vec<u8> {
        &mut self.scratch
    }
}

impl Worker {
    /// Receives the heads of the expected messages; their notes, which are still zeros.
    fn notes(&mut self, expected: &[Expected<'_>]) -> Vec<Vec<u8>> {
        let mut found: Vec<Option<Vec<u8>>> = expected.iter().map(|_| None).collect();
        let mut missing = 0;
        self.wait(|worker| {
            for (note, m) in found.iter_mut().zip(expected).filter(|(note, _)| note.is_none()) {
                let process = worker.world.process_at_rank(m.from as i32);
                let Some((message, status)) = process.immediate_matched_probe_with_tag(HEAD) else {
                    continue;
                };
                let Some(head) = Header::decode(&small(message, &status)) else {
                    worker.fail(Error::format(format!(
                        "a message of rank {} is not one of this version of teeny",
                        m.from
                    )));
                };
                if let Err(error) = m.check(&head) {
                    worker.fail(error);
                }
                *note = Some(head.note);
            }
            missing += found[missing..].iter().take_while(|note| note.is_some()).count();
            expected.get(missing).map(|m| m.from)
        });
        found.into_iter().flatten().collect()
    }
}
