//! Capture: a function that is recorded twice and replayed from then on.

use super::describe::Listed;
use super::device::Lazy;
use super::list::List;
use super::reads::{self, Reads};
use super::recording::{Recording, difference, leaves, place};
use super::replay::{Replay, lazy, values, whole};
use super::symbol::{Integers, Output, Work};
use super::value::{Value, value};
use crate::context::enter;
use crate::device::{DeviceRef, ToDevice};
use crate::dtype::DType;
use crate::element::encode;
use crate::error::{Error, Result};
use crate::random::{self, Draws, Key};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::tensor::Tensor;
use std::fmt;
use std::mem;
use std::ops::RangeInclusive;
use std::sync::{Arc, PoisonError};

type Function<'f> = Box<dyn FnMut(&[Tensor], usize) -> Result<Vec<Tensor>> + 'f>;

/// A function of tensors whose operations are recorded and then replayed, on a device that records
/// ([`Lazy`], also inside of wrappers such as `Autograd`).
///
/// The first two calls of [`Capture::run`] call the function and record what it does. From the
/// third on it is not called: the operations run as planned, on the new inputs.
///
/// A replay draws the same random numbers as a call: it takes as many keys from the generator as a
/// call and leaves it in the same state. A key that the program chose, also by
/// [`random::with_seed`], is a constant (one that the generator gives too in a recorded call cannot
/// be told apart, and may be refused); a key that is used twice, as by a checkpoint, stays one key.
/// A library can declare what a function reads beside its inputs ([`Capture::depends_on`]; teeny-nn
/// does for training mode, parameters and loss scales); a change of it makes the function be
/// recorded again.
///
/// A replay repeats everything else, so a difference between the first two calls is an error that
/// names it: a number (pass it as a tensor of shape `()`), a shape, a tensor that is not an input,
/// a read inside, a result that is still held but not returned. A later change, such as of a
/// variable inside the function, is found by [`Capture::check_every`]. Tracked tensors come out
/// untracked: `backward` belongs inside the function.
///
/// # Example
/// ```
/// use teeny_core::{Capture, DType, Lazy, Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let lazy = Lazy::new(Reference::new());
/// let mut step = Capture::new(&lazy, |x| Ok(vec![x[0].mul(2.0)?.exp()?]))?;
/// for i in 0..5 {
///     let x = Tensor::full((3,), i as f32, DType::F32, &lazy)?; // (3)
///     let y: Vec<f32> = step.run(vec![x])?[0].to_vec()?;
///     assert!((y[0] - (2.0 * i as f32).exp()).abs() < 1e-3 * y[0]);
/// }
/// assert!(step.is_replaying());
/// # Ok(()) }
/// ```
pub struct Capture<'f> {
    device: DeviceRef,
    function: Function<'f>,
    /// The values that the symbol may have.
    symbol: Option<RangeInclusive<usize>>,
    /// The recorded calls, each with the value of the symbol.
    recordings: Vec<(usize, Recording)>,
    replay: Option<Replay>,
    /// Recordings that contradicted the ones before.
    retries: usize,
    /// See [`Capture::check_every`].
    check_every: usize,
    /// The replays since the function was recorded.
    replays: u64,
}

impl<'f> Capture<'f> {
    /// A capture of `function`, which computes its results from the tensors it is given.
    ///
    /// # Errors
    /// If `device` does not contain a [`Lazy`] and so does not record.
    #[track_caller]
    pub fn new(
        device: impl ToDevice,
        mut function: impl FnMut(&[Tensor]) -> Result<Vec<Tensor>> + 'f,
    ) -> Result<Capture<'f>> {
        let _op = enter("Capture::new");
        Capture::make(device.to_device(), None, Box::new(move |x, _| function(x)))
    }

    /// A capture of a function that also depends on an integer in `range`, such as a position in a
    /// sequence: sizes, strides and offsets may be `a + b * integer`. It is recorded at three
    /// different integers.
    ///
    /// # Errors
    /// As [`Capture::new`].
    #[track_caller]
    pub fn with_symbol(
        device: impl ToDevice,
        range: RangeInclusive<usize>,
        function: impl FnMut(&[Tensor], usize) -> Result<Vec<Tensor>> + 'f,
    ) -> Result<Capture<'f>> {
        let _op = enter("Capture::with_symbol");
        Capture::make(device.to_device(), Some(range), Box::new(function))
    }

    fn make(
        device: DeviceRef,
        symbol: Option<RangeInclusive<usize>>,
        function: Function<'f>,
    ) -> Result<Capture<'f>> {
        let recorder = recorder(&device)?;
        Ok(Capture {
            device: recorder,
            function,
            symbol,
            recordings: Vec::new(),
            replay: None,
            retries: 0,
            check_every: 0,
            replays: 0,
        })
    }

    /// True if calls are replayed, without calling the function.
    pub fn is_replaying(&self) -> bool {
        self.replay.is_some()
    }

    /// Compares one replay in `calls`, at irregular times, with a call: then the function is
    /// called, and if it does other work than was recorded, or reads other numbers or tensors, the
    /// call is an error that names the difference, and the function is recorded again. For tests of
    /// functions that depend on more than their inputs. 0, the default, compares none.
    pub fn check_every(&mut self, calls: usize) {
        self.check_every = calls;
    }

    /// Whether this thread records a captured function: what the function reads beside its inputs
    /// must then be told by [`Capture::depends_on`] or [`Capture::number`].
    pub fn is_recording() -> bool {
        reads::is_recording()
    }

    /// Tells the captured function that this thread records, if any, that it reads something
    /// versioned: a mode, a parameter. A later call with another `version()` records the function
    /// again. `id` is the address of what is read and a name, and `tensor` its value: nothing
    /// depends on the version of a tensor that is an input of the function.
    pub fn depends_on(
        id: (usize, &'static str),
        tensor: Option<&Tensor>,
        version: impl Fn() -> u64 + 'static,
    ) {
        reads::note(id, tensor, version);
    }

    /// A number that changes between calls, as a tensor of shape () for the captured function that
    /// this thread records: each replay reads `number()`. None if this thread records no function,
    /// or `device` does not record. `id` is the address of what holds the number.
    ///
    /// # Errors
    /// If `dtype` is not a float, or the device fails.
    #[track_caller]
    pub fn number(
        id: usize,
        dtype: DType,
        device: impl ToDevice,
        number: impl Fn() -> f64 + 'static,
    ) -> Result<Option<Tensor>> {
        if !reads::is_recording() {
            return Ok(None);
        }
        let _op = enter("Capture::number");
        let device = device.to_device();
        let Ok(recorder) = recorder(&device) else { return Ok(None) };
        let bytes = encode(&[Scalar::Float(number())], dtype)?;
        let storage = device.upload(&bytes, dtype)?;
        let x = Tensor::from_result(storage, Shape::SCALAR, dtype, device)?; // ()
        reads::note_number(id, &x.to(&recorder)?, number)?;
        Ok(Some(x))
    }

    /// The results of the function on `inputs`. An input whose only handle is passed may be written
    /// in place.
    ///
    /// # Errors
    /// As the function and the device; if a call does other work than the one before, or an input
    /// has another shape, dtype or device than recorded. The inputs keep their elements.
    #[track_caller]
    pub fn run(&mut self, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
        if self.symbol.is_some() {
            let _op = enter("Capture::run");
            return Err(Error::value("the captured function depends on an integer")
                .help("pass it: capture.run_at(inputs, integer)?"));
        }
        self.call("Capture::run", inputs, 0)
    }

    /// [`Capture::run`] at a value of the integer of [`Capture::with_symbol`].
    ///
    /// # Errors
    /// As [`Capture::run`]; if `symbol` is outside of the range; if a size is not `a + b * symbol`.
    #[track_caller]
    pub fn run_at(&mut self, inputs: Vec<Tensor>, symbol: usize) -> Result<Vec<Tensor>> {
        let op = "Capture::run_at";
        let _op = match &self.symbol {
            Some(range) if range.contains(&symbol) => return self.call(op, inputs, symbol),
            _ => enter(op),
        };
        match &self.symbol {
            Some(range) => Err(Error::value(format!(
                "the integer {symbol} is not in {} to {}",
                range.start(),
                range.end()
            ))
            .help("capture the function with a range that contains it")),
            None => Err(Error::value("the captured function depends on no integer")
                .help("capture.run(inputs)?, or Capture::with_symbol")),
        }
    }

    /// A replay, or a call that is recorded. Operations of the function have their own names and
    /// lines, everything else uses `op`'s.
    #[track_caller]
    fn call(&mut self, op: &'static str, inputs: Vec<Tensor>, at: usize) -> Result<Vec<Tensor>> {
        let last = self.replay.as_ref().map(|replay| &replay.base);
        if last.or(self.recordings.last().map(|(_, last)| last)).is_some_and(Recording::is_stale) {
            self.replay = None;
            self.recordings.clear();
        }
        if let Some(replay) = &self.replay {
            self.replays += 1;
            if !self.is_checked() {
                let _op = enter(op);
                return replay.run(&self.device, inputs, at);
            }
            let (outputs, recording) = record(op, &self.device, &mut self.function, inputs, at)?;
            let _op = enter(op);
            return match replay.agrees(recording, lazy(&self.device)?, at) {
                Ok(()) => Ok(outputs),
                Err(error) => {
                    self.replay = None;
                    Err(error)
                }
            };
        }
        let (outputs, recording) = record(op, &self.device, &mut self.function, inputs, at)?;
        let _op = enter(op);
        self.learn(at, recording)?;
        Ok(outputs)
    }

    /// Whether this replay is compared with a call.
    fn is_checked(&self) -> bool {
        let word = random::philox(Key { seed: self.replays, draw: 0 }, 0)[0] as usize;
        self.check_every > 0 && word.is_multiple_of(self.check_every)
    }

    /// Compares a recording with the earlier ones, and replays from the next call on if they agree.
    fn learn(&mut self, at: usize, mut recording: Recording) -> Result<()> {
        if self.symbol.is_some() && self.recordings.iter().any(|(other, _)| *other == at) {
            return Ok(()); // nothing new
        }
        let needed = if self.symbol.is_some() { 3 } else { 2 };
        if self.recordings.is_empty() && recording.has_equal_inputs() && self.retries == 0 {
            // Two inputs are one tensor, as biases of zeros are at first: a later call tells more.
            self.retries = 1;
            return Ok(());
        }
        if let Some((_, before)) = self.recordings.last() {
            before.same_data(&mut recording, lazy(&self.device)?)?;
        }
        self.recordings.push((at, recording));
        if self.recordings.len() < needed {
            return Ok(());
        }
        let found = match self.recordings.as_slice() {
            [(_, first), (at, second)] => {
                difference(first, second, &second.work).map(|()| (*at, second, None))
            }
            [(a, first), (b, second), (c, third)] => {
                let slopes = Integers::slopes(&first.work, &second.work, *a, *b);
                let predicted = slopes.and_then(|slopes| {
                    slopes.work(&first.work, *a, *c).map(|predicted| (slopes, predicted))
                });
                match predicted {
                    Some((slopes, predicted)) => {
                        difference(third, third, &predicted).map(|()| (*a, first, Some(slopes)))
                    }
                    None => difference(first, second, &second.work)
                        .and_then(|()| Err(Error::internal("equal recordings without integers"))),
                }
            }
            _ => return Err(Error::internal("too many recordings of a captured function")),
        };
        match found {
            Ok((at, base, slopes)) => {
                self.replay = Some(Replay { base: base.clone(), at, slopes });
                self.recordings.clear();
                Ok(())
            }
            Err(_) if self.symbol.is_some() && self.retries < 3 => {
                // Sizes of 1 are laid out in other ways: the later recordings may agree.
                self.retries += 1;
                self.recordings.remove(0);
                Ok(())
            }
            Err(error) => {
                self.recordings.clear();
                Err(error)
            }
        }
    }
}

impl fmt::Debug for Capture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replays = self.is_replaying();
        f.debug_struct("Capture").field("replays", &replays).finish_non_exhaustive()
    }
}

/// The device that records, in `device`.
fn recorder(device: &DeviceRef) -> Result<DeviceRef> {
    let mut recorder = device;
    while recorder.downcast_ref::<Lazy>().is_none() {
        recorder = recorder.inner().ok_or_else(|| {
            Error::device(format!("the device {} does not record operations", recorder.info().name))
                .help("make it Lazy::new(device), or Autograd::new(Lazy::new(device))")
        })?;
    }
    Ok(recorder.clone())
}

/// Calls the function and runs the recorded operations. Returns its results and the recording.
#[track_caller]
fn record(
    op: &'static str,
    device: &DeviceRef,
    function: &mut Function<'_>,
    inputs: Vec<Tensor>,
    at: usize,
) -> Result<(Vec<Tensor>, Recording)> {
    let lazy = lazy(device)?;
    let before = enter(op);
    let inputs = inputs.into_iter().map(whole).collect::<Result<Vec<_>>>()?;
    let below = inputs.iter().map(|x| x.to(device)).collect::<Result<Vec<_>>>()?;
    lazy.begin_capture()?;
    drop(before);
    let end = End(lazy);
    let ((result, draws), reads) = reads::record(|| random::record(|| function(&inputs, at)));
    let list = end.list();
    let _op = enter(op);
    // Not the inputs: an operation may write in place to one that has no other owner.
    let made: Vec<Arc<Value>> = list
        .nodes
        .iter()
        .flat_map(|node| node.outputs.clone())
        .map(|slot| list.slots[slot as usize].clone())
        .collect();
    let other = (draws, reads.without(&inputs));
    let recorded =
        result.and_then(|results| recording(lazy, device, list, results, inputs, below, other));
    if let Err(error) = &recorded {
        // The values that the function left behind have no elements.
        made.iter().filter(|value| value.is_pending()).for_each(|v| v.set(Err(error.clone())));
    }
    recorded
}

/// Runs the list of a function that returned `results`.
fn recording(
    lazy: &Lazy,
    device: &DeviceRef,
    mut list: List,
    results: Vec<Tensor>,
    inputs: Vec<Tensor>,
    below: Vec<Tensor>,
    (draws, reads): (Draws, Reads),
) -> Result<(Vec<Tensor>, Recording)> {
    // Tracked results drop their graphs.
    let kept = results
        .into_iter()
        .map(|y| Ok((y.to(device)?, y.device().clone())))
        .collect::<Result<Vec<_>>>()?;
    if list.len() > lazy.max_nodes() {
        return Err(Error::value(format!(
            "the captured function recorded {} operations, more than {}",
            list.len(),
            lazy.max_nodes()
        ))
        .help("raise LazyOptions::max_nodes, or capture a part of the function"));
    }
    let mut outputs = Vec::new();
    for (y, outer) in &kept {
        let slot = list.slot(value(y)?);
        let (layout, dtype) = (*y.layout(), y.dtype());
        outputs.push(Output { slot, layout, dtype, device: outer.clone() });
    }
    let held = list.held();
    let returned = |slot: u32| outputs.iter().any(|output| output.slot == slot);
    for (node, node_context) in list.nodes.iter().zip(&list.contexts) {
        if node.outputs.clone().any(|slot| held[slot as usize] && !returned(slot)) {
            return Err(Error::value(format!(
                "a tensor that the captured function made by {} is held when it returns, but it is \
                 not returned: a replay would not renew it",
                place(node_context)
            ))
            .help("return the tensor from the function, or drop it"));
        }
    }
    let values = values(&below)?;
    let leaves = leaves(&list, &values, &reads);
    lazy.finish(&leaves.iter().filter_map(|(_, leaf)| leaf.constant()).collect::<Vec<_>>());
    let plan = lazy.plan(&list, held);
    let List { nodes, contexts, slots, params, .. } = &list;
    let listed = Listed { nodes, contexts, slots, params, device: &lazy.inner };
    lazy.drawing.lock().unwrap_or_else(PoisonError::into_inner).draw(listed, &plan);
    let shapes = below.iter().map(|x| (*x.shape(), x.dtype())).collect();
    drop((inputs, below, values));
    let List { contexts, slots, params, .. } = list;
    let nodes = plan.nodes.clone();
    let count = slots.len();
    let mut slots = plan.slots(slots.into_iter());
    lazy.replay(&plan.items, &nodes, &contexts, &params, &mut slots)?;
    let lifted = kept.iter().map(|(y, outer)| y.to(outer)).collect::<Result<Vec<_>>>()?;
    let mut items = plan.items.clone();
    // Results outlive the items that compute them.
    for item in &mut items {
        item.last.retain(|slot| !outputs.iter().any(|output| output.slot == *slot));
    }
    let work = Work { items, nodes, inputs: shapes, outputs };
    Ok((lifted, Recording { work, contexts, params, leaves, slots: count, draws, reads }))
}

/// Ends a capture, also if the function panics.
struct End<'a>(&'a Lazy);

impl End<'_> {
    fn list(self) -> List {
        let list = self.0.end_capture();
        mem::forget(self);
        list
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        drop(self.0.end_capture());
    }
}
