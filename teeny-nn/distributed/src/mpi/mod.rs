//! Ranks that are processes of an MPI job.
//!
//! [`Mpi`] is the handle of a program; the thread in `worker` makes every call to MPI. So
//! operations run while the program computes, and a rank that does not answer stops the thread and
//! not the program. `peers` knows which ranks are alive.

mod peers;
mod reader;
mod worker;

use super::collective::{Collective, Pending, PendingState};
use super::communicator::{Communicator, Split, split};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use teeny_core::context::enter;
use teeny_core::options;
use teeny_core::{Error, Result};
use worker::{Command, Job};

options! {
    /// How long the ranks of [`Mpi`] wait for each other.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct MpiOptions {
        /// A rank that gives no sign of life for this long has failed; 60 s. Each process answers
        /// from its communication thread, also while it computes.
        timeout: Duration = Duration::from_secs(60), with_timeout;
        /// A rank that is alive and yet does not take part in an operation for this long has
        /// failed; 30 min.
        busy_timeout: Duration = Duration::from_secs(30 * 60), with_busy_timeout;
    }
}

/// The ranks that `mpirun` or `srun` started; one rank if neither did. Clones are handles of the
/// same rank.
///
/// When the last handle is dropped, the rank waits for the others to end, and MPI is finalized;
/// [`Mpi::finish`] also tells whether all ended well.
///
/// # Example
/// ```no_run
/// use teeny_distributed::{Communicator, Mpi};
/// # fn main() -> teeny_core::Result<()> {
/// let comm = Mpi::world()?;
/// println!("rank {} of {}", comm.rank(), comm.size());
/// comm.barrier()?;
/// comm.finish()
/// # }
/// ```
#[derive(Clone)]
pub struct Mpi {
    thread: Arc<Thread>,
    /// The numbers in the job, by rank.
    members: Arc<[usize]>,
    rank: usize,
    group: u64,
    /// The number of operations started.
    sequence: Arc<AtomicU64>,
}

/// The communication thread of this process.
struct Thread {
    /// None once the rank has finished.
    commands: Mutex<Option<Sender<Command>>>,
    timeout: Duration,
    /// The highest number of a communicator.
    groups: AtomicU64,
    /// How many callers wait for a result.
    waiting: Arc<AtomicUsize>,
    /// The host's name and the MPI library with its version.
    host: String,
    library: String,
}

impl std::fmt::Debug for Mpi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of {} by {}", self.rank, self.members.len(), self.thread.library)
    }
}

impl Mpi {
    /// The ranks of this job. Ranks that are bound to one processor each, or have fewer processors
    /// than they are, are told so on the standard error output, once on each machine.
    ///
    /// # Errors
    /// If MPI was initialised in this process before: it can be only once.
    #[track_caller]
    pub fn world() -> Result<Mpi> {
        Mpi::with_options(MpiOptions::default())
    }

    /// [`Mpi::world`] with `options`.
    ///
    /// # Errors
    /// As [`Mpi::world`]; if the timeout is 0.
    #[track_caller]
    pub fn with_options(options: MpiOptions) -> Result<Mpi> {
        let _op = enter("Mpi::world");
        if options.timeout.is_zero() || options.busy_timeout.is_zero() {
            return Err(Error::value("ranks cannot answer within 0 s").help("60 s is usual"));
        }
        let (commands, receiver) = channel();
        let waiting: Arc<AtomicUsize> = Arc::default();
        let counter = waiting.clone();
        let (ready, started) = channel();
        std::thread::Builder::new()
            .name("teeny mpi".into())
            .spawn(move || worker::serve(options, &ready, receiver, counter))
            .map_err(|e| {
                Error::io(format!("cannot start the communication thread: {e}")).with_source(e)
            })?;
        let ended = |_| Err(Error::internal("the communication thread ended while it started"));
        let start = match started.recv_timeout(options.timeout) {
            Err(RecvTimeoutError::Timeout) => {
                let seconds = options.timeout.as_secs_f64();
                let text = format!("the ranks have not met after {seconds:.1} s");
                return Err(Error::io(text).help(
                    "is a process stopped or dead, or its machine off the network? \
                     MpiOptions::timeout sets this time",
                ));
            }
            started => started.unwrap_or_else(ended)?,
        };
        super::processors::warn(start.rank, start.size);
        Ok(Mpi {
            thread: Arc::new(Thread {
                commands: Mutex::new(Some(commands)),
                timeout: options.timeout,
                groups: AtomicU64::new(0),
                waiting,
                host: start.host,
                library: start.library,
            }),
            members: (0..start.size).collect(),
            rank: start.rank,
            group: 0,
            sequence: Arc::default(),
        })
    }

    /// The name of the machine.
    pub fn host(&self) -> &str {
        &self.thread.host
    }

    /// The MPI library and its version.
    pub fn library(&self) -> &str {
        &self.thread.library
    }

    /// Ends this rank: waits until the others end too, however long they compute, and finalises
    /// MPI. Later operations are errors.
    ///
    /// # Errors
    /// If an operation has failed before, or another rank fails meanwhile.
    #[track_caller]
    pub fn finish(self) -> Result<()> {
        let _op = enter("Mpi::finish");
        self.thread.finish()
    }
}

impl Thread {
    fn commands(&self) -> MutexGuard<'_, Option<Sender<Command>>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self) -> Result<()> {
        let Some(commands) = self.commands().take() else { return Ok(()) };
        let (reply, result) = channel();
        let panics = std::thread::panicking();
        let lost = || Error::internal("the communication thread ended before its work");
        commands.send(Command::Finish { panics, reply }).map_err(|_| lost())?;
        // until all ranks have ended; the thread sees to it that they are alive
        result.recv().unwrap_or_else(|_| Err(lost()))?;
        if panics {
            return Ok(());
        }
        // until MPI is finalized, which waits for all ranks once more
        result.recv_timeout(self.timeout).unwrap_or_else(|_| {
            let seconds = self.timeout.as_secs_f64();
            Err(Error::io(format!("MPI could not be finalized for {seconds:.1} s"))
                .help("has a process stopped or died after its last operation?"))
        })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // a failure was the result of an operation already
        let _ = self.finish();
    }
}

impl Communicator for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn start(&self, collective: Collective) -> Pending {
        let (reply, result) = channel();
        let commands = self.thread.commands(); // so that numbers are sent in order
        let job = Job {
            collective,
            group: self.group,
            rank: self.rank,
            members: self.members.clone(),
            sequence: self.sequence.fetch_add(1, Ordering::Relaxed) + 1,
            reply,
        };
        match commands.as_ref().map(|commands| commands.send(Command::Run(Box::new(job)))) {
            Some(Ok(())) => Pending(PendingState::Running(result, self.thread.waiting.clone())),
            _ => Pending::done(Err(Error::value("this rank has finished")
                .help("call finish, or drop the last handle, after the last operation"))),
        }
    }

    fn split(&self, group: usize) -> Result<Arc<dyn Communicator>> {
        let used = self.thread.groups.load(Ordering::Relaxed);
        let Split { members, rank, id } = split(self, group, used)?;
        self.thread.groups.fetch_max(id, Ordering::Relaxed);
        Ok(Arc::new(Mpi {
            thread: self.thread.clone(),
            members: members.into_iter().map(|rank| self.members[rank]).collect(),
            rank,
            group: id,
            sequence: Arc::default(),
        }))
    }

    fn abort(&self, error: &Error) {
        if let Some(commands) = &*self.thread.commands() {
            // a thread that has ended has no one to tell
            let _ = commands.send(Command::Abort(error.message().to_string()));
        }
    }
}
