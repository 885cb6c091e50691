//! Selects the layers and tensors to train, by peft's rules for names.

use super::options::{LoraBias, LoraOptions, Modules};
use super::pattern::{Pattern, ends};
use super::tensors::{FileTensor, FileTensors, LayerNames};
use std::collections::BTreeSet;
use teeny_core::{Error, Result};
use teeny_formats::names::{listed, nearest};
use teeny_nn::store::Reader;

/// The positions of the tensors whose layers get adapters.
///
/// # Errors
/// If an option names something that the model does not have, or nothing is chosen.
pub(super) fn layers(
    tensors: &FileTensors,
    names: &LayerNames,
    options: &LoraOptions,
) -> Result<Vec<usize>> {
    let all: Vec<&str> = tensors.layers().map(|(_, name)| name).collect();
    if let Modules::Names(list) = &options.target_modules {
        let unknown = |own: &&String| !all.iter().any(|name| name == own || ends(name, own));
        if let Some(own) = list.iter().find(unknown) {
            return Err(no_layer(own, "target_modules", &all));
        }
    }
    if let Some(numbers) = &options.layers_to_transform {
        if matches!(options.target_modules, Modules::Pattern(_)) {
            let text = "layers_to_transform with a regular expression for target_modules";
            return Err(Error::value(text).help("write the numbers into the expression"));
        }
        let used: BTreeSet<usize> =
            all.iter().filter_map(|name| number_of(name, &options.layers_pattern)).collect();
        if let Some(other) = numbers.iter().find(|n| !used.contains(n)) {
            let text = format!("layers_to_transform has {other}, but no layer has this number");
            return Err(Error::value(text).help("blocks are counted from 0"));
        }
    }
    let chosen = chosen(tensors, names, options)?;
    if chosen.is_empty() {
        return Err(Error::value("no layer is chosen for adapters")
            .note(format!("the layers are {}", kinds(&all)))
            .help("see target_modules, exclude_modules and modules_to_save"));
    }
    Ok(chosen)
}

/// The positions of the tensors whose layers `options` choose, which may be none.
pub(super) fn chosen(
    tensors: &FileTensors,
    names: &LayerNames,
    options: &LoraOptions,
) -> Result<Vec<usize>> {
    let is_linear = |i: usize, name: &str| {
        tensors.all[i].reader == Reader::Linear
            && names.head.as_deref() != Some(name)
            && !names.unread.iter().any(|own| own == name || ends(name, own))
    };
    let target = chooser(&options.target_modules, &is_linear)?;
    let exclude = chooser(&options.exclude_modules, &is_linear)?;
    let saved = options.modules_to_save.iter().map(|own| Pattern::ending(own));
    let saved = saved.collect::<Result<Vec<_>>>()?;
    // whether a module to save is the layer, or has it inside
    let is_saved = |name: &str| {
        let mut modules = name.match_indices('.').map(|(at, _)| at).chain([name.len()]);
        modules.any(|at| saved.iter().any(|own| own.matches(&name[..at])))
    };
    let has_number = |name: &str| match &options.layers_to_transform {
        Some(numbers) => {
            number_of(name, &options.layers_pattern).is_some_and(|n| numbers.contains(&n))
        }
        None => true,
    };
    let fits = |(i, name): &(usize, &str)| {
        target(*i, name) && !exclude(*i, name) && !is_saved(name) && has_number(name)
    };
    Ok(tensors.layers().filter(fits).map(|(i, _)| i).collect())
}

/// Whether the layer at a position, with this name, is chosen.
type Chooser<'a> = dyn Fn(usize, &str) -> bool + 'a;

/// The layers that `modules` select; `is_linear` identifies linear layers.
pub(super) fn chooser<'a>(
    modules: &'a Modules,
    is_linear: &'a Chooser<'_>,
) -> Result<Box<Chooser<'a>>> {
    Ok(match modules {
        Modules::AllLinear => Box::new(is_linear),
        Modules::Names(list) => {
            Box::new(move |_, name| list.iter().any(|own| own == name || ends(name, own)))
        }
        Modules::Pattern(text) => {
            let pattern = Pattern::whole(text)?;
            Box::new(move |_, name| pattern.matches(name))
        }
    })
}

/// The positions of the tensors that are trained as a whole: the modules to save, and biases of the
/// layers `chosen` or of all.
pub(super) fn whole(
    tensors: &FileTensors,
    options: &LoraOptions,
    chosen: &[usize],
) -> Result<Vec<usize>> {
    for own in &options.modules_to_save {
        if !names_module(tensors, own) {
            let modules = tensors.all.iter().filter_map(|t| Some(t.name.rsplit_once('.')?.0));
            return Err(no_layer(own, "modules_to_save", &modules.collect::<Vec<_>>()));
        }
    }
    let own_bias = |name: &str| {
        let of = |i: &usize| {
            let layer = tensors.all[*i].layer().unwrap_or_default();
            ["bias", "_bias"].iter().any(|end| {
                name.strip_suffix(end).is_some_and(|rest| rest.trim_end_matches('.') == layer)
            })
        };
        chosen.iter().any(of)
    };
    let is_chosen = |(_, tensor): &(usize, &FileTensor)| {
        let name = &tensor.name[..];
        let bias = tensor.is_bias()
            && match options.bias {
                LoraBias::None => false,
                LoraBias::All => true,
                LoraBias::LoraOnly => own_bias(name),
            };
        bias || options.modules_to_save.iter().any(|own| in_module(name, own))
    };
    Ok(tensors.all.iter().enumerate().filter(is_chosen).map(|(i, _)| i).collect())
}

/// Whether the model has a module to save of this name.
pub(super) fn names_module(tensors: &FileTensors, own: &str) -> bool {
    tensors.all.iter().any(|tensor| in_module(&tensor.name, own))
}

/// Whether the tensor `name` is in a module whose name ends with `own`: peft compares ends of
/// names, not whole parts of them.
fn in_module(name: &str, own: &str) -> bool {
    name.match_indices('.').any(|(at, _)| name[..at].ends_with(own))
}

/// The rank and alpha of the layer `name`.
pub(super) fn size(options: &LoraOptions, name: &str) -> Result<(usize, f64)> {
    let rank = first(&options.rank_pattern, name)?.unwrap_or(options.rank);
    let alpha = first(&options.alpha_pattern, name)?.unwrap_or(options.alpha);
    if rank == 0 {
        let text = format!("the rank of {name:?} is 0");
        return Err(Error::value(text).help("at least 1; exclude_modules leaves layers out"));
    }
    Ok((rank, alpha))
}

fn first<T: Copy>(patterns: &[(String, T)], name: &str) -> Result<Option<T>> {
    for (text, value) in patterns {
        if Pattern::ending(text)?.matches(name) {
            return Ok(Some(*value));
        }
    }
    Ok(None)
}

/// The number of the block of a layer: the first part of its name that is a number.
fn number_of(name: &str, before: &[String]) -> Option<usize> {
    let parts: Vec<&str> = name.split('.').collect();
    parts.windows(2).find_map(|pair| {
        let fits = before.is_empty() || before.iter().any(|own| own == pair[0]);
        pair[1].parse().ok().filter(|_| fits)
    })
}

fn no_layer(own: &str, option: &str, names: &[&str]) -> Error {
    let last = names.iter().filter_map(|name| name.rsplit('.').next());
    let near = nearest(own, last).or_else(|| nearest(own, names.iter().copied()));
    let error = Error::value(format!("{option} has {own:?}, but no layer has this name"))
        .note(format!("the layers are {}", kinds(names)));
    match near {
        Some(near) => error.help(format!("{near:?} is the nearest name")),
        None => error.help("a name is the end of a layer's name, or all of it"),
    }
}

/// The last parts of names, each once.
pub(super) fn kinds(names: &[&str]) -> String {
    let mut all: Vec<&str> = Vec::new();
    for name in names.iter().filter_map(|name| name.rsplit('.').next()) {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    listed(&all)
}
