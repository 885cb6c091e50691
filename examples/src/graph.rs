//! `--graph`: the picture of one training step.

use crate::Common;
use std::path::Path;
use std::sync::Arc;
use teeny_autograd::{Grad, graph};
use teeny_core::{Error, Lazy, Result, Tensor};
use teeny_nn::Store;
use teeny_viz::save_graph;

/// Draws one step of a training run, if `--graph` asks for it.
///
/// With `--lazy` it is the largest list of the second step as it runs: forward pass, backward pass
/// and, unless something is read before them, the updates, with a frame around operations that are
/// one kernel. Without, it is the recorded operations behind the first loss with the gradients of
/// the leaves.
pub(crate) struct Drawing {
    step: u64,
    is_done: bool,
}

impl Drawing {
    pub(crate) fn new() -> Drawing {
        Drawing { step: 0, is_done: false }
    }

    /// Ends a step with this loss, before anything else is recorded.
    ///
    /// # Errors
    /// If the picture cannot be made or written.
    pub(crate) fn end_step(&mut self, common: &Common, store: &Store, loss: &Tensor) -> Result<()> {
        let Some(path) = common.graph.as_deref().filter(|_| !self.is_done) else { return Ok(()) };
        let Some(lazy) = lists(common) else {
            self.is_done = true;
            return draw_history(path, loss);
        };
        self.step += 1;
        match self.step {
            1 => {
                // The first list also makes the weights: it runs before the drawing begins.
                store.device().synchronize()?;
                draw(lazy, "", parameters(store))
            }
            2 => {
                draw(lazy, "new ", parameters(store))?;
                draw(lazy, "", vec![("loss".into(), loss.clone())])
            }
            _ => self.finish(common),
        }
    }

    /// Writes the picture of the second step, once it has run.
    ///
    /// # Errors
    /// As [`Drawing::end_step`].
    pub(crate) fn finish(&mut self, common: &Common) -> Result<()> {
        let (Some(path), Some(lazy)) = (&common.graph, lists(common)) else { return Ok(()) };
        if self.is_done || self.step < 2 {
            return Ok(());
        }
        if let Some(picture) = lazy.take_drawing()? {
            self.is_done = true;
            save_graph(&picture, path)?;
            println!("drawn   {}", path.display());
        }
        Ok(())
    }

    /// Ends the run, after all that was recorded has run.
    ///
    /// # Errors
    /// As [`Drawing::end_step`]; if the run was too short.
    pub(crate) fn end_run(&mut self, common: &Common) -> Result<()> {
        self.finish(common)?;
        if common.graph.is_some() && !self.is_done {
            let error = Error::value("--graph: the step to be drawn did not run");
            return Err(error.help("it is the first step, with --lazy the second one"));
        }
        Ok(())
    }
}

/// Has the lists that run drawn with these tensors by name.
fn draw(lazy: &Lazy, prefix: &str, tensors: Vec<(String, Tensor)>) -> Result<()> {
    let names: Vec<String> = tensors.iter().map(|(name, _)| format!("{prefix}{name}")).collect();
    let named: Vec<(&str, &Tensor)> =
        names.iter().zip(&tensors).map(|(name, (_, x))| (name.as_str(), x)).collect();
    lazy.draw_lists(&named)
}

/// The device whose lists are steps: not one that runs each operation when it is recorded.
fn lists(common: &Common) -> Option<&Arc<Lazy>> {
    common.lazy_device().filter(|_| common.lazy.is_some_and(|options| !options.immediate))
}

fn parameters(store: &Store) -> Vec<(String, Tensor)> {
    store.all().iter().map(|param| (param.name().to_string(), param.value())).collect()
}

/// The operations behind `loss` with the gradients of the leaves.
fn draw_history(path: &Path, loss: &Tensor) -> Result<()> {
    if !loss.is_tracked() {
        let error = Error::value("--graph: the program keeps no history of its loss");
        return Err(error.help("--lazy draws the recorded operations of a whole step instead"));
    }
    save_graph(&graph(loss, &[("loss", loss)], Some(&loss.backward()?))?, path)?;
    println!("drawn   {}", path.display());
    Ok(())
}
