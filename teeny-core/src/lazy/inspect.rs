//! Pictures and schedules of the operations that [`Lazy`] recorded and runs.

use super::describe::Listed;
use super::device::Lazy;
use super::list::List;
use super::plan::ExecutionPlan;
use super::report::{Log, schedule};
use super::show::{Drawing, Named, picture};
use super::value::value;
use crate::context::enter;
use crate::error::{Error, Result};
use crate::picture::Picture;
use crate::tensor::Tensor;
use std::sync::{Arc, PoisonError};

impl Lazy {
    /// A picture of the recorded operations that have not run: a box for each operation with shape,
    /// dtype, bytes and the user's line, and a frame around operations that will run as one kernel.
    /// Nothing runs. `tensors` are shown by name; they are on this device or on a wrapper of it.
    /// Inputs of at most eight elements are shown with them.
    ///
    /// # Errors
    /// If a tensor is on another device, or the device below fails to read an input.
    ///
    /// # Example
    /// ```
    /// use teeny_core::{DType, Lazy, Reference, Result, Tensor};
    /// # fn main() -> Result<()> {
    /// let lazy = Lazy::new(Reference::new());
    /// let x = Tensor::new([1.0f32, 2.0], &lazy)?; // (2)
    /// let y = x.mul(2.0)?.exp()?; // (2)
    /// let picture = lazy.graph(&[("x", &x), ("y", &y)])?;
    /// assert_eq!(picture.nodes().len(), 3);
    /// assert_eq!(picture.groups(), ["0: exp(2 * x0)"]);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn graph(&self, tensors: &[(&str, &Tensor)]) -> Result<Picture> {
        let _op = enter("lazy.graph");
        let names = self.named(tensors)?;
        self.planned(|list, plan| picture(list, plan, &names))
    }

    /// The schedule of the recorded operations that have not run: a line with the counts, a line
    /// for each item with its program, shapes, bytes, operations and the user's lines, and the
    /// listing of each fused kernel. Nothing runs. `TEENY_DEBUG=3` prints the same, with times, for
    /// each list.
    pub fn schedule(&self) -> String {
        self.planned(schedule)
    }

    /// Sends the output of `TEENY_DEBUG=level` for this device to `sink` instead. The first call
    /// counts. Level 0 is silence, 1 a line for each list that runs, 2 also its schedule with the
    /// time of each item, after which the device below is waited for, 3 also the listing of new
    /// kernels.
    pub fn log_to(&self, level: u8, sink: impl Fn(&str) + Send + Sync + 'static) {
        // A second log is ignored.
        let _ = self.log.set(Log { level, sink: Box::new(sink) });
    }

    /// Draws each list that runs from now on and keeps the picture of the largest, for
    /// [`Lazy::take_drawing`]; `tensors` that occur in it are shown by name. A second call adds
    /// names. Unlike [`Lazy::graph`] this shows a training step as it runs: without the tensors
    /// that are dropped between the last operation of the step and the first of the next.
    ///
    /// # Errors
    /// If a tensor is on another device.
    #[track_caller]
    pub fn draw_lists(&self, tensors: &[(&str, &Tensor)]) -> Result<()> {
        let _op = enter("lazy.draw_lists");
        let names = self.named(tensors)?;
        let mut drawing = self.drawing.lock().unwrap_or_else(PoisonError::into_inner);
        drawing.asked.get_or_insert_default().extend(names);
        Ok(())
    }

    /// Ends [`Lazy::draw_lists`]; the picture of the largest list that ran since, if any did.
    ///
    /// # Errors
    /// If the device below failed to read an input.
    pub fn take_drawing(&self) -> Result<Option<Picture>> {
        let mut drawing = self.drawing.lock().unwrap_or_else(PoisonError::into_inner);
        let Drawing { largest, .. } = std::mem::take(&mut *drawing);
        largest.map(|(_, picture)| picture).transpose()
    }

    fn named(&self, tensors: &[(&str, &Tensor)]) -> Result<Vec<Named>> {
        let named = |&(name, x): &(&str, &Tensor)| {
            let x = self.below(x)?;
            let value = value(&x)?.clone();
            Ok(Named { name: name.to_string(), value, layout: *x.layout() })
        };
        tensors.iter().map(named).collect()
    }

    /// The tensor of this device that `x` stands for.
    fn below(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        loop {
            if x.device().downcast_ref::<Lazy>().is_some_and(|lazy| std::ptr::eq(lazy, self)) {
                return Ok(x);
            }
            let device = x.device().clone();
            if device.inner().is_none() || device.downcast_ref::<Lazy>().is_some() {
                let name = device.info().name;
                return Err(Error::device(format!("a tensor of {name} is not on this device")));
            }
            x = device.unwrap(&x)?;
        }
    }

    /// Calls `look` with the recorded operations and the plan they would run by.
    fn planned<T>(&self, look: impl FnOnce(Listed<'_>, &ExecutionPlan) -> T) -> T {
        let (nodes, contexts, slots, params, held) = self.recorded(|list, held| {
            let List { nodes, contexts, slots, params, .. } = list;
            (nodes.clone(), contexts.clone(), slots.clone(), params.clone(), held)
        });
        let reassociate = self.options.reassociate;
        let plan = ExecutionPlan::new(nodes.clone(), &slots, held, reassociate, &mut Arc::new);
        let list = Listed {
            nodes: &nodes,
            contexts: &contexts,
            slots: &slots,
            params: &params,
            device: &self.inner,
        };
        look(list, &plan)
    }
}
