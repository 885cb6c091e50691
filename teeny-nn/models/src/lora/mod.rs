//! LoRA: trains small matrices beside frozen weights, instead of the weights.
//!
//! ```text
//!                 ┌─ x Wᵀ ──────────────────────┐        W (out, in), frozen, quantised or not
//! x (.., in) ─────┤                             + ─ y    A (r, in), B (out, r), trained
//!                 └─ dropout ─ x Aᵀ ─ s h Bᵀ ───┘        s = alpha / r
//! ```
//!
//! [`Lora`] attaches such pairs to the layers of a model that [`LoraOptions`] choose, by the names
//! that peft uses: the names in the model's files ([`LoraModel`]). The store of the model keeps its
//! parameters, bit for bit; the pairs are in a separate store.
//!
//! ```text
//! select    which layers, by endings or a regular expression     tensors   names of the files
//! adapter   the pairs of one weight, and values in its place     plan      what is attached
//! config    adapter_config.json                                  file      peft's folder
//! merge     weights with their pairs added                       pattern   expressions for names
//! ```
//!
//! Source: Hu et al. 2021, arXiv:2106.09685; quantised weights: Dettmers et al. 2023,
//! arXiv:2305.14314.

mod adapter;
mod config;
mod file;
mod merge;
mod options;
mod pattern;
mod plan;
mod select;
mod tensors;

use adapter::Enabled;
use merge::Merged;
pub use options::{LoraBias, LoraOptions, Modules};
use plan::{Layer, Plan, Saved};
use std::fmt;
use std::sync::Arc;
use teeny_core::context::enter;
use teeny_core::{Error, Result};
use teeny_formats::names::grouped;
use teeny_nn::store::{Adapter, Param, Role, Store};
pub use tensors::{LayerNames, LoraModel};

/// The adapters of one task, attached to a model.
///
/// They are attached until [`Lora::detach`], also if this handle is dropped. Several can be
/// attached to one model; those that are [active](Lora::set_active) add up.
///
/// # Example
/// ```
/// use teeny_models::lora::{Lora, LoraOptions, Modules};
/// use teeny_nn::prelude::*;
/// use teeny_nn::transformer::{CausalLm, CausalLmConfig};
/// # fn main() -> Result<()> {
/// let device = Autograd::new(teeny_nn::device("cpu")?);
/// let store = Store::new(&device);
/// let model = CausalLm::new(&store.root(), CausalLmConfig::new(65, 32, 2, 4, 16, 40))?;
/// let targets = Modules::names(["qkv_proj", "o_proj"]);
/// let options = LoraOptions::new().with_rank(4).with_target_modules(targets);
/// let lora = Lora::attach(&store, options)?;
/// println!("{}", lora.summary()); // trainable 768 of 9,136 parameters (8.41 %), ..
/// let mut optimizer = AdamW::new(lora.trainable(), 1e-2);
/// let tokens = Tensor::new([[1i32, 2, 3]], &device)?; // (B, T)
/// let targets = Tensor::new([[2i32, 3, 4]], &device)?;
/// let loss = cross_entropy(&model.logits(&tokens)?.flatten(0, 1)?, &targets.flatten(0, 1)?)?;
/// optimizer.step(&loss.backward()?)?;
/// # assert!(lora.summary().starts_with("trainable 768 of "), "{}", lora.summary());
/// # lora.detach() }
/// ```
/// Equivalent: `peft.get_peft_model`.
pub struct Lora {
    base: Store,
    store: Store,
    options: LoraOptions,
    names: LayerNames,
    layers: Vec<Layer>,
    saved: Vec<Saved>,
    attached: Vec<(Param, Arc<dyn Adapter>)>,
    switch: Arc<Enabled>,
    merged: Option<Merged>,
    notes: Vec<String>,
}

impl Lora {
    /// Attaches new adapters to the layers of `model` that `options` choose. Outputs stay the same
    /// until they are trained. All parameters of the model are frozen.
    ///
    /// # Errors
    /// If a name fits no layer, an expression is not valid, the rank is 0, or `dropout` is not a
    /// probability. Nothing has changed then.
    #[track_caller]
    pub fn attach(model: &impl LoraModel, options: LoraOptions) -> Result<Lora> {
        let _op = enter("Lora::attach");
        let (names, base) = (model.names(), model.store().clone());
        let plan = Plan::by_options(&base, &names, options)?;
        Lora::attached(base, names, plan)
    }

    /// Attaches what `plan` has.
    fn attached(base: Store, names: LayerNames, plan: Plan) -> Result<Lora> {
        base.freeze()?;
        let Plan { store, options, layers, saved, adapters, switch } = plan;
        adapters.iter().for_each(|(param, adapter)| param.attach(adapter.clone()));
        let (attached, merged, notes) = (adapters, None, Vec::new());
        Ok(Lora { base, store, options, names, layers, saved, attached, switch, merged, notes })
    }

    /// The keys of `adapter_config.json` that are not known, and so have no effect.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The trainable parameters, for an optimizer: the adapters, the biases that
    /// [`LoraOptions::bias`] chooses, and [`LoraOptions::modules_to_save`].
    pub fn trainable(&self) -> Vec<Param> {
        self.store.trainable()
    }

    /// The store of the parameters that [`Lora::trainable`] lists, for checkpoints and for
    /// parallel training.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The options.
    pub fn options(&self) -> &LoraOptions {
        &self.options
    }

    /// The names of the layers that have adapters, as the files of the model call them.
    pub fn layers(&self) -> Vec<&str> {
        self.layers.iter().map(|layer| &layer.name[..]).collect()
    }

    /// The trained parameters in one line:
    /// `trainable 460,800 of 134,975,808 parameters (0.34 %), 210 adapters of rank 8`.
    pub fn summary(&self) -> String {
        let own = self.store.count();
        let kept = |param: &Param| param.role() != Role::Buffer;
        let base: usize =
            self.base.all().iter().filter(|p| kept(p)).map(|p| p.shape().numel()).sum();
        let all = base.saturating_add(own);
        let ranks = self.layers.iter().map(|layer| layer.a.shape()[0]);
        let ranks = match (ranks.clone().min(), ranks.max()) {
            (Some(low), Some(high)) if low != high => format!("ranks {low} to {high}"),
            (low, _) => format!("rank {}", low.unwrap_or(self.options.rank)),
        };
        let mut text = format!(
            "trainable {} of {} parameters ({:.2} %), {} adapters of {ranks}",
            grouped(own),
            grouped(all),
            100.0 * own as f64 / all.max(1) as f64,
            self.layers.len()
        );
        if !self.saved.is_empty() {
            text += &format!(", {} other tensors", self.saved.len());
        }
        text
    }

    /// Whether the model computes with these adapters.
    pub fn is_active(&self) -> bool {
        self.switch.is_on()
    }

    /// Switches these adapters on or off. Nothing is loaded or copied.
    ///
    /// # Errors
    /// If they are merged.
    #[track_caller]
    pub fn set_active(&self, active: bool) -> Result<()> {
        let _op = enter("Lora::set_active");
        if self.merged.is_some() {
            return Err(Error::value("the adapters are merged into the weights")
                .help("lora.unmerge()? first"));
        }
        self.switch.set(active);
        Ok(())
    }

    /// Removes the adapters from the model. Without others, its parameters are trainable again if
    /// they were. Adapters that are merged are unmerged first.
    ///
    /// # Errors
    /// As [`Lora::unmerge`]; if the device fails.
    #[track_caller]
    pub fn detach(mut self) -> Result<()> {
        let _op = enter("Lora::detach");
        if self.merged.is_some() {
            self.unmerge()?;
        }
        self.remove()
    }

    fn remove(&self) -> Result<()> {
        self.attached.iter().for_each(|(param, adapter)| param.detach(adapter));
        self.base.thaw()
    }
}

impl fmt::Debug for Lora {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lora({})", self.summary())
    }
}
