//! Reads the rotary embedding of a `config.json`, under its old or new keys.

use teeny_core::Result;
use teeny_formats::config::Config;
use teeny_nn::attention::RopeScaling;
use teeny_nn::transformer::Rotary;

/// The rotary embedding of layers of the type `layers`, such as `full_attention`; `key` has the
/// base in files without `rope_parameters`.
pub(super) fn rotary(config: &Config, layers: &str, key: &str, head_size: usize) -> Result<Rotary> {
    // the older key wins: users add it to a file to extend the context
    let old = config.section("rope_scaling").filter(|_| layers == FULL);
    let parameters = config.section("rope_parameters");
    let own = parameters.as_ref().and_then(|section| section.section(layers));
    let flat = parameters.filter(|_| own.is_none() && old.is_none());
    let number = |of: &Option<Config>, key| of.as_ref().map_or(Ok(None), |of| of.number_of(&[key]));
    let theta = |section| number(section, "rope_theta");
    let base = theta(&old)?.or(theta(&own)?).or(theta(&flat)?);
    let base = base.map_or_else(|| config.number(&[key], 10_000.0), Ok)?;
    if !(base > 0.0 && base.is_finite()) {
        return Err(config.error(format!("{:?} is {base}, not positive", config.shown(key))));
    }
    let section = old.or(own).or(flat);
    let partial = number(&section, "partial_rotary_factor")?;
    let partial = partial.map_or_else(|| config.number(&["partial_rotary_factor"], 1.0), Ok)?;
    // a whole number that was divided by the size of a head is that number again
    let dims = (head_size as f64 * partial.clamp(0.0, 1.0) + 1e-6) as usize;
    if dims < 2 || !dims.is_multiple_of(2) {
        let text =
            format!("{dims} of {head_size} elements of a head are rotated, not an even number");
        return Err(config.error(text).help(format!(
            "see {:?} and {:?}",
            config.shown("partial_rotary_factor"),
            config.shown("head_dim")
        )));
    }
    let scaling = match &section {
        Some(section) => scaling(config, section, dims)?,
        None => RopeScaling::None,
    };
    Ok(Rotary::new(base).with_dims(dims).with_scaling(scaling))
}

/// The type of layers that see all keys before them.
pub(super) const FULL: &str = "full_attention";

/// The type of layers with a window.
pub(super) const SLIDING: &str = "sliding_attention";

fn scaling(config: &Config, section: &Config, dims: usize) -> Result<RopeScaling> {
    let longest = config.size(&["max_position_embeddings"], 2048)?;
    let original = || -> Result<usize> {
        let key = ["original_max_position_embeddings"];
        let own = section.size(&key, config.size(&["original"], longest)?)?;
        config.size(&key, own).map(|size| size.max(1))
    };
    let checked = |factor: f64| {
        let valid = factor >= 1.0 && factor.is_finite();
        let text = || format!("\"factor\" of the rotary embedding is {factor}, below 1");
        if valid { Ok(factor) } else { Err(config.error(text())) }
    };
    let factor = || match section.number_of(&["factor"])? {
        Some(factor) => checked(factor),
        None => Err(config.error("the rotary embedding has no \"factor\"".to_string())),
    };
    let kind = [section.text("rope_type")?, section.text("type")?].into_iter().flatten().next();
    let kind = match kind.unwrap_or("default") {
        // files of Phi 3
        "yarn" if config.has("original") => "longrope",
        kind => kind,
    };
    Ok(match kind {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: factor()? },
        "dynamic" => RopeScaling::Dynamic { factor: factor()?, original: longest.max(1) },
        "llama3" => RopeScaling::Llama3 {
            factor: factor()?,
            low: section.number(&["low_freq_factor"], 1.0)?,
            high: section.number(&["high_freq_factor"], 4.0)?,
            original: original()?,
        },
        "yarn" => {
            let original = original()?;
            let usual = longest as f64 / original as f64;
            let factor = checked(section.number(&["factor"], usual)?)?;
            let growth =
                |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 };
            let number = |key| section.number_of(&[key]);
            let attention =
                match (number("attention_factor")?, number("mscale")?, number("mscale_all_dim")?) {
                    (Some(attention), ..) => attention,
                    (None, Some(own), Some(all)) if own != 0.0 && all != 0.0 => {
                        growth(own) / growth(all)
                    }
                    _ => growth(1.0),
                };
            RopeScaling::Yarn {
                factor,
                // 0 means the default
                beta_fast: number("beta_fast")?.filter(|x| *x != 0.0).unwrap_or(32.0),
                beta_slow: number("beta_slow")?.filter(|x| *x != 0.0).unwrap_or(1.0),
                original,
                attention,
                truncate: section.flag("truncate", true)?,
            }
        }
        "longrope" | "su" => {
            let original = original()?;
            let divisors = |key: &str| {
                let numbers = section.numbers(key)?.unwrap_or_default();
                let valid = numbers.len() == dims / 2 && numbers.iter().all(|x| *x > 0.0);
                let text = || format!("{key:?} is not {} numbers above 0", dims / 2);
                if valid { Ok(numbers) } else { Err(config.error(text())) }
            };
            let grown = section.number(&["factor"], longest as f64 / original as f64)?;
            let usual = if grown <= 1.0 || original < 2 {
                1.0
            } else {
                (1.0 + grown.ln() / (original as f64).ln()).sqrt()
            };
            RopeScaling::LongRope {
                short: divisors("short_factor")?,
                long: divisors("long_factor")?,
                original,
                attention: section.number(&["attention_factor"], usual)?,
            }
        }
        other => {
            return Err(config
                .error(format!("\"rope_type\" is {other:?}"))
                .help("known: default, linear, dynamic, llama3, yarn, longrope"));
        }
    })
}
