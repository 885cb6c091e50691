//! Recording a kernel: forward on the inner device, backward by its symbolic derivative, saving
//! only what that reads.

use crate::cuts::{Cut, Cuts, Mask};
use crate::device::Autograd;
use crate::node::{Backward, Handle, Node, Value, Values};
use crate::record::{Operands, edges, here};
use crate::storage::{Tracked, tracked, unwrap};
use crate::symbolic::{Derivative, Slot, Source};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use teeny_core::{Error, Kernel, Outputs, Result, Scalar, Shape, StorageRef, Tensor, context};

/// More derivatives than this are not kept: a program that builds a new kernel at every step must
/// not fill memory.
const MAX_CACHED: usize = 4096;

/// A kernel (compared by content), a bit for each operand that needs a gradient, and whether
/// results are stored.
type Key = (Arc<Kernel>, u8, bool);

/// The derivatives made so far: of type `D`, shared by all who hold the cache.
pub(crate) struct Cache<D>(Arc<RwLock<HashMap<Key, Arc<D>>>>);

/// A derivative that this thread has asked for lately, of the cache at an address.
struct Recent {
    cache: usize,
    kernel: Arc<Kernel>,
    needs: u8,
    stored: bool,
    derivative: Arc<Derivative>,
}

/// How many derivatives a thread has at hand: those of a step of a small network.
const RECENT: usize = 64;

thread_local! {
    static RECENTLY: RefCell<[Option<Recent>; RECENT]> = const { RefCell::new([const { None }; RECENT]) };
}

impl Cache<Derivative> {
    /// [`Cache::get`] past its lock and the hash of the kernel's content, if this thread has asked
    /// for the same kernel lately.
    pub fn at_hand(
        &self,
        kernel: &Arc<Kernel>,
        needs: u8,
        stored: bool,
        derive: impl FnOnce() -> Result<Derivative>,
    ) -> Result<Arc<Derivative>> {
        let (cache, place) = (
            Arc::as_ptr(&self.0).addr(),
            (Arc::as_ptr(kernel).addr() >> 4 ^ usize::from(needs)) % RECENT,
        );
        let known = RECENTLY.with_borrow(|recent| match &recent[place] {
            Some(r)
                if Arc::ptr_eq(&r.kernel, kernel)
                    && r.cache == cache
                    && r.needs == needs
                    && r.stored == stored =>
            {
                Some(r.derivative.clone())
            }
            Some(_) | None => None,
        });
        if let Some(derivative) = known {
            return Ok(derivative);
        }
        let derivative = self.get(kernel, needs, stored, derive)?;
        let recent =
            Recent { cache, kernel: kernel.clone(), needs, stored, derivative: derivative.clone() };
        let before = RECENTLY.with_borrow_mut(|all| all[place].replace(recent));
        drop(before);
        Ok(derivative)
    }
}

impl<D> Clone for Cache<D> {
    fn clone(&self) -> Cache<D> {
        Cache(self.0.clone())
    }
}

impl<D> Default for Cache<D> {
    fn default() -> Cache<D> {
        Cache(Arc::default())
    }
}

impl<D> Cache<D> {
    /// The derivative of `kernel`, made by `derive` at the first call.
    pub fn get(
        &self,
        kernel: &Arc<Kernel>,
        needs: u8,
        stored: bool,
        derive: impl FnOnce() -> Result<D>,
    ) -> Result<Arc<D>> {
        let key = (kernel.clone(), needs, stored);
        let found =
            self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(&key).cloned();
        if let Some(derivative) = found {
            return Ok(derivative);
        }
        let derivative = Arc::new(derive()?);
        let mut map = self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if map.len() >= MAX_CACHED {
            map.clear();
        }
        map.insert(key, derivative.clone());
        Ok(derivative)
    }

    /// How many derivatives are kept.
    pub fn len(&self) -> usize {
        self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner()).len()
    }
}

/// The operands that need gradients, as bits.
pub(crate) fn needs(inputs: &[&Tensor]) -> Result<u8> {
    let mut bits = 0;
    for (i, x) in inputs.iter().enumerate() {
        bits |= u8::from(tracked(x)?.handle.is_some()) << i;
    }
    Ok(bits)
}

/// The leaves behind the operands in `which` (as bits).
fn leaves(inputs: &[&Tensor], which: u8) -> Result<Mask> {
    let mut chosen = inputs.iter().enumerate().filter(|(i, _)| which >> i & 1 == 1).map(|(_, x)| x);
    chosen.try_fold(0, |mask, x| Ok(mask | tracked(x)?.handle.as_ref().map_or(0, |h| h.node.mask)))
}

/// What an output does not let through is a cut of the operands concerned: those in `needs` whose
/// gradient it does not `reach`.
fn cut_off(cuts: &mut Cuts, inputs: &[&Tensor], needs: u8, reach: u8) -> Result<()> {
    if reach != needs {
        let mask = leaves(inputs, !reach)? & !leaves(inputs, reach)?;
        cuts.push(Cut { mask, ..here(0) });
    }
    Ok(())
}

/// The inner tensors of operands, in their order: those that are seen as they were produced are not
/// made anew.
pub(crate) struct Inner<'a> {
    operands: &'a [&'a Tensor],
    /// Operands seen through another layout.
    views: Vec<Tensor>,
}

impl<'a> Inner<'a> {
    pub fn of(operands: &'a [&'a Tensor]) -> Result<Inner<'a>> {
        let mut views = Vec::new();
        for x in operands {
            if tracked(x)?.inner.layout() != x.layout() {
                views.push(unwrap(x)?);
            }
        }
        Ok(Inner { operands, views })
    }

    pub fn list(&self) -> Result<Vec<&Tensor>> {
        let mut views = self.views.iter();
        let mut list = Vec::with_capacity(self.operands.len());
        for x in self.operands {
            let inner = &tracked(x)?.inner;
            list.push(if inner.layout() == x.layout() {
                inner
            } else {
                views.next().ok_or_else(|| Error::internal("a view is missing"))?
            });
        }
        Ok(list)
    }
}

pub(crate) fn elementwise(
    device: &Autograd,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
) -> Result<Outputs> {
    let inner = Inner::of(inputs)?;
    let views = inner.list()?;
    let results = device.inner_device().elementwise(kernel, &views, params, shape)?;
    let value = |o, storage| device.value(storage, *shape, kernel.output_dtype(o));
    let operands = Operands::of(inputs)?;
    if operands.recording && results.len() == 1 {
        let y = results.into_first().ok_or_else(|| Error::internal("a kernel gave no output"))?;
        return record_one(device, kernel, inputs, &views, params, operands, value(0, y)?)
            .map(Outputs::one);
    }
    let results = results
        .into_iter()
        .enumerate()
        .map(|(o, storage)| value(o, storage))
        .collect::<Result<Vec<_>>>()?;
    let mut outputs = Outputs::new();
    if !operands.recording {
        results
            .into_iter()
            .for_each(|y| outputs.push(Tracked::storage(y, None, operands.cuts.clone())));
        return Ok(outputs);
    }
    let needs = needs(inputs)?;
    let derivative = device.derivative(kernel, needs, true)?;
    let saved = derivative.save(&views, &results)?;
    let params = params.to_vec();
    let shape = *shape;
    let rule = derivative.clone();
    let backward: Backward = Box::new(move |g| rule.run(&saved, &params, g, &shape));

    let values = Values::Many(results.iter().map(|y| Value { shape, dtype: y.dtype() }).collect());
    let differentiable = (0..results.len()).any(|o| derivative.reach[o] != 0);
    let node = match differentiable {
        true => Some(Arc::new(Node::op(
            backward,
            values,
            edges(inputs)?,
            operands.mask,
            context::current(),
        ))),
        false => None,
    };
    for (o, y) in results.into_iter().enumerate() {
        let mut cuts = operands.cuts.clone();
        cut_off(&mut cuts, inputs, needs, derivative.reach[o])?;
        let handle = node
            .clone()
            .filter(|_| derivative.reach[o] != 0)
            .map(|node| Handle { node, output: o as u8 });
        outputs.push(Tracked::storage(y, handle, cuts));
    }
    Ok(outputs)
}

/// The storage of `y`, the only output of a kernel over tensors of which some need a gradient.
fn record_one(
    device: &Autograd,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    views: &[&Tensor],
    params: &[Scalar],
    mut operands: Operands,
    y: Tensor,
) -> Result<StorageRef> {
    let needs = needs(inputs)?;
    let derivative = device.derivative(kernel, needs, true)?;
    let reach = derivative.reach[0];
    cut_off(&mut operands.cuts, inputs, needs, reach)?;
    if reach == 0 {
        return Ok(Tracked::storage(y, None, operands.cuts));
    }
    let saved = derivative.save(views, std::slice::from_ref(&y))?;
    let (params, shape) = (params.to_vec(), *y.shape());
    let backward: Backward = Box::new(move |g| derivative.run(&saved, &params, g, &shape));
    Ok(operands.store(y, edges(inputs)?, backward))
}

impl Derivative {
    /// The tensors a backward pass will read, in the order of `saved`.
    pub fn save(&self, inputs: &[&Tensor], outputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut saved = Vec::with_capacity(self.saved.len());
        for slot in &self.saved {
            let tensor = match slot {
                Slot::Input(i) => inputs.get(*i).copied(),
                Slot::Output(o) => outputs.get(*o),
                Slot::Grad(_) => None,
            };
            saved.push(tensor.cloned().ok_or_else(|| {
                Error::internal("a derivative reads what the forward pass does not have")
            })?);
        }
        Ok(saved)
    }

    /// The gradients of the operands, all in `shape`, from those of the outputs; a missing one of
    /// several outputs counts as zero.
    pub fn run(
        &self,
        saved: &[Tensor],
        params: &[Scalar],
        g: &[Option<Tensor>],
        shape: &Shape,
    ) -> Result<Vec<Option<Tensor>>> {
        let Some(given) = g.iter().flatten().next() else {
            return Ok(vec![None; self.grads.len()]);
        };
        let zero = |dtype| -> Result<Tensor> { Tensor::zeros((), dtype, given)?.expand(shape) };
        let mut computed: Vec<Vec<Tensor>> = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let read = |(i, slot): (usize, &Slot)| -> Result<Tensor> {
                match slot {
                    Slot::Grad(o) => {
                        g[*o].clone().map_or_else(|| zero(part.kernel.inputs()[i]), Ok)
                    }
                    Slot::Input(_) | Slot::Output(_) => {
                        let place = self.saved.iter().position(|s| s == slot);
                        place
                            .map(|p| saved[p].clone())
                            .ok_or_else(|| Error::internal("a derivative reads what was not saved"))
                    }
                }
            };
            let inputs = part.reads.iter().enumerate().map(read).collect::<Result<Vec<_>>>()?;
            computed.push(launch(&part.kernel, &inputs, params, shape, given)?);
        }
        let grad = |(i, source): (usize, &Source)| -> Result<Option<Tensor>> {
            Ok(match source {
                Source::None => None,
                Source::Zero => Some(zero(self.dtypes[i])?),
                Source::Pass(o) => Some(g[*o].clone().map_or_else(|| zero(self.dtypes[i]), Ok)?),
                Source::Part(part, place) => Some(computed[*part][*place].clone()),
                Source::Factors(factors) => {
                    let mut sum: Option<Tensor> = None;
                    for (o, part) in factors {
                        let Some(g) = &g[*o] else { continue };
                        let term = computed[*part][0].mul(g)?.cast(self.dtypes[i])?;
                        sum = Some(sum.map_or(Ok(term.clone()), |s| s.add(&term))?);
                    }
                    Some(sum.map_or_else(|| zero(self.dtypes[i]), Ok)?)
                }
            })
        };
        self.grads.iter().enumerate().map(grad).collect()
    }
}

/// One backward kernel over tensors that all have `shape`; it may read no tensor at all (a constant
/// slope), so the device comes from `beside`.
fn launch(
    kernel: &Arc<Kernel>,
    inputs: &[Tensor],
    params: &[Scalar],
    shape: &Shape,
    beside: &Tensor,
) -> Result<Vec<Tensor>> {
    let device = beside.device();
    let views: Vec<&Tensor> = inputs.iter().collect();
    let results = device.elementwise(kernel, &views, params, shape)?;
    let tensor =
        |(o, storage)| Tensor::from_result(storage, *shape, kernel.output_dtype(o), device.clone());
    results.into_iter().enumerate().map(tensor).collect()
}
