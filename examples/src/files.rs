//! What an example reads and writes because a common option says so. Each does nothing without its
//! option, and tells the user what it did.

use crate::Common;
use teeny_core::{DeviceRef, Result, Tensor};
use teeny_nn::state::{Checkpoint, Stateful};
use teeny_nn::train::{Log, Losses, Plot};
use teeny_nn::{Schedule, Store};

/// The losses of a run: kept for `--plot`, and written to the file of `--log` with the learning
/// rates of their steps.
pub struct Record {
    losses: Losses,
    lr: Schedule,
    log: Option<Log>,
}

impl Record {
    /// The loss of the next step, a tensor of one element. It is read later, with others.
    ///
    /// # Errors
    /// If a loss read now is NaN or infinite, the device fails, or the log cannot be written.
    pub fn push(&mut self, loss: &Tensor) -> Result<()> {
        let read = self.losses.push(loss)?;
        write(self.log.as_mut(), read, &self.lr)
    }

    /// Reads and writes what has not been so far.
    ///
    /// # Errors
    /// As [`Record::push`].
    pub fn flush(&mut self) -> Result<()> {
        let read = self.losses.read()?;
        write(self.log.as_mut(), read, &self.lr)
    }

    /// All losses that have been read.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// The losses, when the run is over.
    pub fn into_losses(self) -> Losses {
        self.losses
    }
}

fn write(log: Option<&mut Log>, losses: &[(u64, f64)], lr: &Schedule) -> Result<()> {
    let Some(log) = log else { return Ok(()) };
    losses
        .iter()
        .try_for_each(|&(step, loss)| log.write(&[step.into(), loss.into(), lr.at(step).into()]))
}

impl Common {
    /// `--load`: the weights in the file.
    ///
    /// # Errors
    /// If they are not those of `store`, or the file cannot be read.
    pub fn load(&self, store: &Store) -> Result<()> {
        let Some(path) = &self.load else { return Ok(()) };
        store.load(path)?;
        println!("loaded  {}", path.display());
        Ok(())
    }

    /// `--save`: the weights into the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, store: &Store) -> Result<()> {
        let Some(path) = &self.save else { return Ok(()) };
        store.save(path)?;
        println!("saved   {}", path.display());
        Ok(())
    }

    /// `--resume`: sets every part to its state in the checkpoint, and says true, if there is one.
    /// Parts are the model (first), the optimizer, the random numbers, the position, and what else
    /// changes in a run; see [`Checkpoint`].
    ///
    /// # Errors
    /// If the checkpoint cannot be read, or is not of this program with these options.
    pub fn restore(
        &self,
        device: &DeviceRef,
        parts: &mut [(&str, &mut dyn Stateful)],
    ) -> Result<bool> {
        let Some(path) = self.resume.as_ref().filter(|path| path.exists()) else {
            return Ok(false);
        };
        let checkpoint = Checkpoint::load(path, device)?;
        for (name, part) in parts {
            checkpoint.restore(name, *part)?;
        }
        println!("resumed {}", path.display());
        Ok(true)
    }

    /// `--resume`: the state of every part into the checkpoint.
    ///
    /// # Errors
    /// If it cannot be written; the former checkpoint is then untouched.
    pub fn keep(&self, parts: &[(&str, &dyn Stateful)]) -> Result<()> {
        let Some(path) = &self.resume else { return Ok(()) };
        let mut checkpoint = Checkpoint::new();
        for (name, part) in parts {
            checkpoint.put(name, *part)?;
        }
        checkpoint.save(path)
    }

    /// `--log`: the record of a run from step `first` on, with learning rate `lr`. With `--resume`
    /// the file is continued at that step: later lines, which a killed run logged after its
    /// checkpoint, are removed.
    ///
    /// # Errors
    /// If it cannot be written, or is one with other columns.
    pub fn record(&self, first: u64, lr: Schedule) -> Result<Record> {
        let columns = ["step", "loss", "lr"];
        let open = |path| {
            if self.resume.is_some() {
                Log::resume(path, &columns, first)
            } else {
                Log::create(path, &columns)
            }
        };
        Ok(Record {
            losses: Losses::new().from_step(first),
            lr,
            log: self.log.as_ref().map(open).transpose()?,
        })
    }

    /// `--plot`: the curves, each a name and its points by step.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn plot(&self, title: &str, label: &str, curves: &[(&str, &[(f64, f64)])]) -> Result<()> {
        let Some(path) = &self.plot else { return Ok(()) };
        let plot = curves
            .iter()
            .fold(Plot::new(title, "step", label), |plot, (name, points)| plot.curve(name, points));
        plot.save(path)?;
        println!("plotted {}", path.display());
        Ok(())
    }
}
