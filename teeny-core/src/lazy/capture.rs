//! Capture: a function that is recorded twice and replayed from then on.

use super::describe::Listed;
use super::device::Lazy;
use super::list::List;
use super::recording::{Leaf, Recording, difference, leaves, place};
use super::symbol::{Integers, Output, Work};
use super::value::{LazyStorage, Slot, Value, value};
use crate::context::enter;
use crate::device::{DeviceRef, ToDevice, same};
use crate::error::{Error, Result};
use crate::op::Op;
use crate::random;
use crate::tensor::Tensor;
use std::borrow::Cow;
use std::fmt;
use std::mem;
use std::ops::RangeInclusive;
use std::sync::{Arc, PoisonError};

type Function<'f> = Box<dyn FnMut(&[Tensor], usize) -> Result<Vec<Tensor>> + 'f>;

/// A function of tensors whose operations are recorded and then replayed, on a device that records
/// ([`Lazy`], also inside of wrappers such as `Autograd`).
///
/// The first two calls of [`Capture::run`] call the function and record what it does. From the third
/// on it is not called any more: the operations run as planned, on the new inputs. Only random
/// numbers are drawn anew, in recorded order, so that they are those of a call.
///
/// A replay repeats everything else, so what differs from the first call to the second is an error
/// that names it: a number (pass it as a tensor of shape `()`), a shape, a tensor that is not an
/// input, a read inside, a result that is still held but not returned. Tracked tensors come out
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
    /// The calls so far that were recorded, with the value of the symbol.
    recordings: Vec<(usize, Recording)>,
    replay: Option<Replay>,
    /// Recordings that contradicted the ones before.
    retries: usize,
}

/// What runs from the third call on.
struct Replay {
    base: Recording,
    /// The symbol's value there, and how the integers of the work change with it.
    at: usize,
    slopes: Option<Integers>,
}

impl<'f> Capture<'f> {
    /// A capture of `function`, which computes its results from the tensors it is given.
    ///
    /// # Errors
    /// If `device` does not record: if there is no [`Lazy`] in it.
    #[track_caller]
    pub fn new(
        device: &(impl ToDevice + ?Sized),
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
        device: &(impl ToDevice + ?Sized),
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
        let mut recorder = device;
        while recorder.downcast_ref::<Lazy>().is_none() {
            let Some(inner) = recorder.inner() else {
                return Err(Error::device(format!(
                    "the device {} does not record operations",
                    recorder.info().name
                ))
                .help("make it Lazy::new(device), or Autograd::new(Lazy::new(device))"));
            };
            recorder = inner.clone();
        }
        let (recordings, replay, retries) = (Vec::new(), None, 0);
        Ok(Capture { device: recorder, function, symbol, recordings, replay, retries })
    }

    /// Whether calls are replayed: the function is not called any more.
    pub fn is_replaying(&self) -> bool {
        self.replay.is_some()
    }

    /// The results of the function on `inputs`. An input whose only handle is passed may be written
    /// in place.
    ///
    /// # Errors
    /// Those of the function and of the device; if a call does other work than the one before, or an
    /// input has another shape, dtype or device than recorded. The inputs keep their elements.
    #[track_caller]
    pub fn run(&mut self, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
        if self.symbol.is_some() {
            let _op = enter("Capture::run");
            return Err(Error::value("the captured function depends on an integer")
                .help("capture.run_at(inputs, integer)? has it"));
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
            .help("capture the function with a range that has it")),
            None => Err(Error::value("the captured function depends on no integer")
                .help("capture.run(inputs)?, or Capture::with_symbol")),
        }
    }

    /// A replay, or a call that is recorded. Operations of the function have their own names and
    /// lines, all else those of `op`.
    #[track_caller]
    fn call(&mut self, op: &'static str, inputs: Vec<Tensor>, at: usize) -> Result<Vec<Tensor>> {
        if let Some(replay) = &self.replay {
            let _op = enter(op);
            return replay.run(&self.device, inputs, at);
        }
        let (outputs, recording) = record(op, &self.device, &mut self.function, inputs, at)?;
        let _op = enter(op);
        self.learn(at, recording)?;
        Ok(outputs)
    }

    /// Compares a recording with those before, and replays from the next call on if they agree.
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

fn lazy(device: &DeviceRef) -> Result<&Lazy> {
    device
        .downcast_ref::<Lazy>()
        .ok_or_else(|| Error::internal("a capture on a device that does not record"))
}

/// The values that tensors of the recording device view.
fn values(tensors: &[Tensor]) -> Result<Vec<Arc<Value>>> {
    tensors.iter().map(|x| Ok(value(x)?.clone())).collect()
}

/// Calls the function and runs what it records: its results, and the recording.
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
    lazy.finish(&values(&below)?);
    lazy.begin_capture()?;
    drop(before);
    let end = End(lazy);
    let result = function(&inputs, at);
    let list = end.list();
    let _op = enter(op);
    // Not the inputs: an operation may write in place to one that nobody else holds.
    let made: Vec<Arc<Value>> = list
        .nodes
        .iter()
        .flat_map(|node| node.outputs.clone())
        .map(|slot| list.slots[slot as usize].clone())
        .collect();
    let recorded = result.and_then(|results| recording(lazy, device, list, results, inputs, below));
    if let Err(error) = &recorded {
        // What the function left behind has no elements.
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
) -> Result<(Vec<Tensor>, Recording)> {
    // Tracked results let go of their graphs.
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
    for (node, occasion) in list.nodes.iter().zip(&list.occasions) {
        if node.outputs.clone().any(|slot| held[slot as usize] && !returned(slot)) {
            return Err(Error::value(format!(
                "a tensor that the captured function made by {} is held when it returns, but it is \
                 not returned: a replay would not renew it",
                place(occasion)
            ))
            .help("return it from the function, or let go of it"));
        }
    }
    let values = values(&below)?;
    let leaves = leaves(&list, &values);
    lazy.finish(&leaves.iter().filter_map(|(_, leaf)| leaf.constant()).collect::<Vec<_>>());
    let plan = lazy.plan(&list, held);
    let List { nodes, occasions, slots, params, .. } = &list;
    let listed = Listed { nodes, occasions, slots, params, device: &lazy.inner };
    lazy.drawing.lock().unwrap_or_else(PoisonError::into_inner).draw(listed, &plan);
    let shapes = below.iter().map(|x| (*x.shape(), x.dtype())).collect();
    drop((inputs, below, values));
    let List { occasions, slots, params, .. } = list;
    let nodes = plan.nodes.clone();
    let count = slots.len();
    let mut slots = plan.slots(slots.into_iter());
    lazy.replay(&plan.items, &nodes, &occasions, &params, &mut slots)?;
    let lifted = kept.iter().map(|(y, outer)| y.to(outer)).collect::<Result<Vec<_>>>()?;
    let mut items = plan.items.clone();
    // Results outlive the items that compute them.
    for item in &mut items {
        item.last.retain(|slot| !outputs.iter().any(|output| output.slot == *slot));
    }
    let work = Work { items, nodes, inputs: shapes, outputs };
    Ok((lifted, Recording { work, occasions, params, leaves, slots: count }))
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

/// `x` as a row-major tensor from the start of its storage, so that all calls read it alike.
fn whole(x: Tensor) -> Result<Tensor> {
    if x.layout().is_contiguous() && x.layout().offset() == 0 {
        return Ok(x);
    }
    Op::Contiguous { x: &x }.tensor(x.device())
}

/// `x` on `device`.
fn on(x: Tensor, device: &DeviceRef) -> Result<Tensor> {
    if same(x.device(), device) { Ok(x) } else { x.to(device) }
}

impl Replay {
    fn run(&self, device: &DeviceRef, inputs: Vec<Tensor>, at: usize) -> Result<Vec<Tensor>> {
        let lazy = lazy(device)?;
        let work = self.slopes.as_ref().map(|slopes| slopes.work(&self.base.work, self.at, at));
        let work = match &work {
            Some(Some(work)) => work,
            Some(None) => {
                return Err(Error::internal("a size of a captured function is out of range"));
            }
            None => &self.base.work,
        };
        if inputs.len() != work.inputs.len() {
            return Err(Error::value(format!(
                "the captured function has {} inputs, not {}",
                work.inputs.len(),
                inputs.len()
            ))
            .help("pass the inputs of the calls that were recorded"));
        }
        let mut below = Vec::with_capacity(inputs.len());
        for (i, (x, &(shape, dtype))) in inputs.into_iter().zip(&work.inputs).enumerate() {
            if *x.shape() != shape || x.dtype() != dtype {
                return Err(Error::shape(format!(
                    "input {i} of the captured function is {} {}, it was recorded as {dtype} {shape}",
                    x.dtype(),
                    x.shape()
                ))
                .help("capture the function again for other shapes, or use Capture::with_symbol"));
            }
            below.push(on(whole(x)?, device)?);
        }
        let values = values(&below)?;
        lazy.finish(&values);
        drop(below); // an input that nobody else holds may be written in place
        let Recording { params, leaves, slots, .. } = &self.base;
        let mut occasions = Cow::Borrowed(self.base.occasions.as_slice());
        if occasions.iter().any(|occasion| occasion.key.is_some()) {
            let keys = occasions.to_mut().iter_mut().filter_map(|occasion| occasion.key.as_mut());
            keys.for_each(|key| *key = random::next_key());
        }
        let mut slots: Vec<Slot> = (0..*slots).map(|_| Slot::Empty).collect();
        for (slot, leaf) in leaves {
            slots[*slot as usize] = Slot::Value(match leaf {
                Leaf::Input(same) => {
                    let value = &values[same[0]];
                    if let Some(other) = same.iter().find(|&&i| !Arc::ptr_eq(&values[i], value)) {
                        return Err(Error::value(format!(
                            "inputs {} and {other} of the captured function were one tensor when it \
                             was recorded",
                            same[0]
                        ))
                        .help("pass one tensor again, or capture with different ones"));
                    }
                    value.clone()
                }
                Leaf::Constant(value) | Leaf::Uploaded(value) => value.clone(),
            });
        }
        drop(values);
        for slot in &mut slots {
            if let Slot::Value(value) = mem::replace(slot, Slot::Empty) {
                *slot = Slot::Temporary(value.take());
            }
        }
        lazy.replay(&work.items, &work.nodes, &occasions, params, &mut slots)?;
        work.outputs
            .iter()
            .map(|Output { slot, layout, dtype, device: outer }| {
                let storage = match &slots[*slot as usize] {
                    Slot::Value(value) => value.storage()?,
                    Slot::Temporary(result) => result.clone()?,
                    Slot::Empty => return Err(Error::internal("a result was not computed")),
                };
                let storage = Arc::new(LazyStorage::ready(storage));
                on(Tensor::from_parts(storage, *layout, *dtype, device.clone())?, outer)
            })
            .collect()
    }
}
