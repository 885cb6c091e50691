//! What an example reads and writes because a common option says so. Each does nothing without its option, and tells the user what it did.

use crate::Common;
use teeny_core::{DeviceRef, Result};
use teeny_nn::Store;
use teeny_nn::state::{Checkpoint, Stateful};
use teeny_nn::train::{Log, Plot};

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

    /// `--resume`: sets every part to its state in the checkpoint, and says true, if there is one. Parts are the model (first), the optimizer, the
    /// random numbers, the position, and what else changes in a run; see [`Checkpoint`].
    ///
    /// # Errors
    /// If the checkpoint cannot be read, or is not of this program with these options.
    pub fn restore(&self, device: &DeviceRef, parts: &mut [(&str, &mut dyn Stateful)]) -> Result<bool> {
        let Some(path) = self.resume.as_ref().filter(|path| path.exists()) else { return Ok(false) };
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

    /// `--log`: a file with a line per step in these columns; with `--resume` it is continued.
    ///
    /// # Errors
    /// If it cannot be written, or is one with other columns.
    pub fn log(&self, columns: &[&str]) -> Result<Option<Log>> {
        let open = |path| if self.resume.is_some() { Log::append(path, columns) } else { Log::create(path, columns) };
        self.log.as_ref().map(open).transpose()
    }

    /// `--plot`: the curves, each a name and its points by step.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn plot(&self, title: &str, label: &str, curves: &[(&str, &[(f64, f64)])]) -> Result<()> {
        let Some(path) = &self.plot else { return Ok(()) };
        let plot = curves.iter().fold(Plot::new(title, "step", label), |plot, (name, points)| plot.curve(name, points));
        plot.save(path)?;
        println!("plotted {}", path.display());
        Ok(())
    }
}
