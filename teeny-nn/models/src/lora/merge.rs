//! Merging adds the adapters to the weights; unmerging restores the weights.

use super::Lora;
use super::adapter::replaced;
use super::plan::Saved;
use teeny_autograd::detached;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};
use teeny_nn::store::{Param, Reader, Value};

/// Parameters whose values were replaced: the value before, and the version since.
pub(super) type Merged = Vec<(Param, Tensor, u64)>;

impl Lora {
    /// Adds the adapters to the weights, `W + s B A`, so that the model is as fast as without
    /// adapters. The weights of before are kept for [`Lora::unmerge`].
    ///
    /// An embedding that is the head too is one weight: as in peft, both then have the adapter of
    /// either, and the logits change.
    ///
    /// # Errors
    /// If they are merged or not active, a weight is quantised, or one that is embedding and head
    /// was trained as a whole. Nothing has changed then.
    #[track_caller]
    pub fn merge(&mut self) -> Result<()> {
        let _op = enter("Lora::merge");
        if self.merged.is_some() || !self.is_active() {
            let state = if self.merged.is_some() { "merged" } else { "not active" };
            let text = format!("the adapters are {state}");
            return Err(Error::value(text).help("call lora.set_active(true)? first, merge once"));
        }
        let mut changed: Vec<(Param, Tensor)> = Vec::new();
        for (param, _) in &self.attached {
            if param.quantized().is_some() {
                let text = format!(
                    "cannot merge into {}: it is quantised, and would round the change away",
                    param.name()
                );
                return Err(Error::value(text)
                    .help("call store.dequantize()?, or keep the adapters beside the weights"));
            }
        }
        let tied = || self.saved.iter().filter(|saved| saved.tensor.param.is_tied());
        if let Some(saved) = tied().next() {
            let value = |reader| match tied().find(|saved| saved.tensor.reader == reader) {
                Some(saved) => detached(&saved.value.value()),
                None => saved.tensor.param.floats(),
            };
            if value(Reader::Rows)?.ne(&value(Reader::Linear)?)?.any(..)?.item::<bool>()? {
                let text = format!("cannot merge {:?}, trained as a whole", saved.tensor.name);
                return Err(Error::value(text)
                    .note("embedding and head share a weight, so merging would change both")
                    .help("keep the adapters beside the weights"));
            }
        }
        let before = |changed: &mut Vec<(Param, Tensor)>, param: &Param| {
            let at = changed.iter().position(|(other, _)| other.name() == param.name());
            at.map_or_else(|| param.floats(), |at| Ok(changed.swap_remove(at).1))
        };
        for Saved { tensor, value } in &self.saved {
            let whole = Value::Plain(before(&mut changed, &tensor.param)?);
            let value = replaced(whole, &tensor.rows, &detached(&value.value())?)?;
            changed.push((tensor.param.clone(), value));
        }
        for layer in &self.layers {
            let param = &layer.tensor.param;
            let a = detached(&layer.a.value())?; // (r, in)
            let b = detached(&layer.b.value())?; // (rows, r)
            let delta = match layer.tensor.reader {
                Reader::Rows => a.t()?.mul(layer.scale)?.matmul(&b.t()?)?, // (V, E)
                _ => b.mul(layer.scale)?.matmul(&a)?,                      // (rows, in)
            };
            let whole = before(&mut changed, param)?;
            let rows = layer.tensor.rows.start as isize..layer.tensor.rows.end as isize;
            let old = whole.slice(0, rows.clone())?;
            let wide = old.dtype().promote(delta.dtype());
            let new = old.cast(wide)?.add(delta.cast(wide)?)?.cast(old.dtype())?;
            drop(old); // the rows are written in place where this is the only handle
            let is_whole = new.shape() == whole.shape();
            let new = if is_whole { new } else { whole.slice_assign(0, rows, &new)? };
            changed.push((param.clone(), new));
        }
        let before: Vec<Tensor> = changed.iter().map(|(param, _)| param.stored()).collect();
        Param::set_all(changed.iter().map(|(param, value)| (param, value)))?;
        let version = |((param, _), before): ((Param, _), _)| {
            let version = param.version();
            (param, before, version)
        };
        self.merged = Some(changed.into_iter().zip(before).map(version).collect());
        self.switch.set(false);
        Ok(())
    }

    /// Puts back the weights of before [`Lora::merge`], bit for bit. The adapters are active then.
    ///
    /// # Errors
    /// If they are not merged, or a weight has got another value since. Nothing has changed then.
    #[track_caller]
    pub fn unmerge(&mut self) -> Result<()> {
        let _op = enter("Lora::unmerge");
        let Some(merged) = &self.merged else {
            return Err(Error::value("the adapters are not merged").help("lora.merge()? does it"));
        };
        if let Some((param, ..)) =
            merged.iter().find(|(param, _, version)| param.version() != *version)
        {
            let text = format!("{} has changed since the adapters were merged", param.name());
            return Err(Error::value(text).help(
                "unmerge the adapters that were merged later first; or open the model again",
            ));
        }
        Param::set_all(merged.iter().map(|(param, before, _)| (param, before)))?;
        self.merged = None;
        self.switch.set(true);
        Ok(())
    }

    /// [`Lora::merge`] for good: the weights of before are not kept, and nothing is attached any
    /// more.
    ///
    /// # Errors
    /// As [`Lora::merge`], unless they are merged: the adapters stay attached then. If the device
    /// fails.
    #[track_caller]
    pub fn merge_into_base(mut self) -> Result<()> {
        let _op = enter("Lora::merge_into_base");
        if self.merged.is_none() {
            self.merge()?;
        }
        self.merged = None;
        self.remove()
    }
}
