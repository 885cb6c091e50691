//! `--distributed`: the processes that train together, started by `mpirun` or `srun`.
//!
//! Without the feature `mpi`, and without the option, there is one rank.

use crate::options::Parsed;
use std::fmt::Display;
#[cfg(feature = "mpi")]
use std::sync::Arc;
#[cfg(feature = "mpi")]
use teeny_autograd::Gradients;
use teeny_core::{Error, Result};
#[cfg(feature = "mpi")]
use teeny_distributed::{
    Communicator, Mpi, MpiOptions, SingleRank, TensorParallel, threads_per_rank,
};
use teeny_formats::State;
use teeny_nn::state::Stateful;
#[cfg(feature = "mpi")]
use teeny_nn::{Param, optim::clip_grad_norm};

/// The options of a program that can run on several ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distributed {
    /// Whether to join the other ranks.
    pub distributed: bool,
    /// The number of ranks that share a model, for a program that can divide it.
    pub tensor_parallel: Option<usize>,
    /// Seconds without a sign of life after which a rank has failed.
    pub timeout: Option<f64>,
}

impl Distributed {
    /// `--distributed`.
    ///
    /// # Errors
    /// If the program was built without MPI.
    pub fn enable(&mut self) -> Parsed<()> {
        self.distributed = true;
        let text = "this program was built without MPI\n  help: \
            mpirun -n 2 cargo run --release --features mpi --bin .. -- --distributed";
        if cfg!(feature = "mpi") { Ok(()) } else { Err(text.into()) }
    }
}

/// The first expression in a program with MPI, the second one in others.
macro_rules! with_mpi {
    ($with:expr, $without:expr) => {{
        #[cfg(feature = "mpi")]
        {
            $with
        }
        #[cfg(not(feature = "mpi"))]
        {
            $without
        }
    }};
}

/// The ranks that run a program together.
#[derive(Clone, Debug)]
pub struct Ranks {
    /// All ranks.
    #[cfg(feature = "mpi")]
    comm: Arc<dyn Communicator>,
    /// Those that have the same part of the model and other parts of the data.
    #[cfg(feature = "mpi")]
    data: Arc<dyn Communicator>,
    /// Those that share a model.
    #[cfg(feature = "mpi")]
    model: Option<TensorParallel>,
    #[cfg(feature = "mpi")]
    mpi: Option<Mpi>,
}

impl Ranks {
    /// One rank.
    pub fn alone() -> Ranks {
        Ranks {
            #[cfg(feature = "mpi")]
            comm: Arc::new(SingleRank),
            #[cfg(feature = "mpi")]
            data: Arc::new(SingleRank),
            #[cfg(feature = "mpi")]
            model: None,
            #[cfg(feature = "mpi")]
            mpi: None,
        }
    }

    /// The ranks that `options` ask for.
    ///
    /// # Errors
    /// If MPI cannot be initialised, or the ranks cannot share models as `options` say.
    pub fn join(options: &Distributed) -> Result<Ranks> {
        #[cfg(feature = "mpi")]
        if options.distributed {
            let mut with = MpiOptions::new();
            if let Some(seconds) = options.timeout {
                let timeout = std::time::Duration::try_from_secs_f64(seconds);
                with = with.with_timeout(timeout.map_err(|e| Error::value(e.to_string()))?);
            }
            let mpi = Mpi::with_options(with)?;
            let comm: Arc<dyn Communicator> = Arc::new(mpi.clone());
            comm.require_same("the command line", &command_line(std::env::args().skip(1)))?;
            let (data, model) = match options.tensor_parallel {
                None => (comm.clone(), None),
                Some(n) => {
                    if !comm.size().is_multiple_of(n) {
                        let text = format!("{} ranks cannot share models by {n}", comm.size());
                        return Err(Error::value(text)
                            .help("--tensor-parallel must divide the number of ranks"));
                    }
                    // neighbours share a model: they send the most, and are often on one machine
                    let model = comm.split(comm.rank() / n)?;
                    (comm.split(comm.rank() % n)?, Some(TensorParallel::new(model)?))
                }
            };
            return Ok(Ranks { comm, data, model, mpi: Some(mpi) });
        }
        if options.tensor_parallel.is_some() {
            return Err(Error::value("--tensor-parallel divides a model among ranks")
                .help("start with mpirun and --distributed"));
        }
        Ok(Ranks::alone())
    }

    /// The number of this rank, from 0.
    pub fn rank(&self) -> usize {
        with_mpi!(self.comm.rank(), 0)
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        with_mpi!(self.comm.size(), 1)
    }

    /// Which part of each batch this rank has: its number, and the number of parts.
    pub fn part(&self) -> (usize, usize) {
        with_mpi!((self.data.rank(), self.data.size()), (0, 1))
    }

    /// Whether several ranks share a model.
    pub fn is_split(&self) -> bool {
        with_mpi!(self.model.is_some(), false)
    }

    /// The ranks with other parts of the data.
    #[cfg(feature = "mpi")]
    pub fn data(&self) -> &Arc<dyn Communicator> {
        &self.data
    }

    /// The ranks that share this one's model.
    #[cfg(feature = "mpi")]
    pub fn model(&self) -> Option<&TensorParallel> {
        self.model.as_ref()
    }

    /// [`TensorParallel::clip_grad_norm`].
    ///
    /// # Errors
    /// As it; if no ranks share a model.
    #[cfg(feature = "mpi")]
    pub(crate) fn clip_grad_norm(
        &self,
        gradients: &mut Gradients,
        params: &[Param],
        max_norm: f64,
    ) -> Result<f64> {
        match &self.model {
            Some(model) => model.clip_grad_norm(gradients, params, max_norm),
            None => clip_grad_norm(gradients, params, max_norm),
        }
    }

    /// The state of `part` of the whole model, for a file. On several ranks all take part.
    ///
    /// # Errors
    /// If the state or a rank fails.
    pub(crate) fn state(&self, part: &dyn Stateful) -> Result<State> {
        #[cfg(feature = "mpi")]
        if let Some(model) = &self.model {
            return model.gather(part);
        }
        part.state()
    }

    /// Sets `part` to its part of the state of a whole model.
    ///
    /// # Errors
    /// If `state` does not fit `part`.
    pub(crate) fn set_state(&self, part: &mut dyn Stateful, state: &State) -> Result<()> {
        #[cfg(feature = "mpi")]
        if let Some(model) = &self.model {
            return part.set_state(&model.scatter(state)?);
        }
        part.set_state(state)
    }

    /// The number of threads of this rank: its share of the machine; `None` for one rank, which
    /// uses all.
    ///
    /// # Errors
    /// If a rank fails.
    pub(crate) fn threads(&self) -> Result<Option<usize>> {
        #[cfg(feature = "mpi")]
        if self.size() > 1 {
            return threads_per_rank(&*self.comm).map(Some);
        }
        Ok(None)
    }

    /// The sum of each number over all parts of the data.
    ///
    /// # Errors
    /// If a rank fails.
    pub fn sum(&self, numbers: &[f64]) -> Result<Vec<f64>> {
        with_mpi!(self.data.sum_numbers(numbers), Ok(numbers.to_vec()))
    }

    /// Returns an error unless `value` is the same on all ranks.
    ///
    /// # Errors
    /// The error names `what`, the rank that differs and both values.
    pub fn require_same(&self, what: &str, value: &dyn Display) -> Result<()> {
        with_mpi!(self.comm.require_same(what, value), {
            let _ = (what, value);
            Ok(())
        })
    }

    /// The text of every rank, by rank.
    ///
    /// # Errors
    /// If a rank fails.
    pub(crate) fn gather(&self, text: String) -> Result<Vec<String>> {
        let all = with_mpi!(self.comm.gather_bytes(text.into_bytes())?, [text.into_bytes()]);
        Ok(all.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect())
    }

    /// Tells the other ranks why this one cannot go on.
    pub(crate) fn abort(&self, error: &Error) {
        with_mpi!(self.comm.abort(error), {
            let _ = error;
        })
    }

    /// Waits for the other ranks to end.
    ///
    /// # Errors
    /// If one of them fails.
    pub(crate) fn finish(&self) -> Result<()> {
        #[cfg(feature = "mpi")]
        if let Some(mpi) = &self.mpi {
            return mpi.clone().finish();
        }
        Ok(())
    }
}

/// The options that all ranks must have in common: all except the options of a machine, which are
/// the number of threads and the path of the data.
#[cfg(feature = "mpi")]
fn command_line(mut args: impl Iterator<Item = String>) -> String {
    let mut common = Vec::new();
    while let Some(arg) = args.next() {
        if arg == "--threads" || arg == "--data" {
            args.next();
        } else if !arg.starts_with("--threads=") && !arg.starts_with("--data=") {
            common.push(arg);
        }
    }
    common.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "mpi")]
    #[test]
    fn threads_and_the_place_of_data_may_differ() {
        let line = |text: &str| command_line(text.split(' ').map(String::from));
        assert_eq!(line("--distributed --threads 3 --lr 0.1"), "--distributed --lr 0.1");
        assert_eq!(line("--data x --seed=2 --threads=4"), "--seed=2");
        assert_ne!(line("--lr 0.1"), line("--lr 0.2"));
    }

    #[test]
    fn one_rank_is_the_default_and_ranks_need_mpi() {
        let mut options = Distributed::default();
        let ranks = Ranks::join(&options).unwrap();
        assert_eq!((ranks.rank(), ranks.size(), ranks.threads().unwrap()), (0, 1, None));
        assert_eq!(ranks.sum(&[0.5, 2.0]).unwrap(), [0.5, 2.0]);
        ranks.require_same("a number", &3).unwrap();
        assert_eq!(options.enable().is_ok(), cfg!(feature = "mpi"));
        if let Err(error) = options.enable() {
            assert!(error.to_string().contains("built without MPI"), "{error}");
        }
    }
}
