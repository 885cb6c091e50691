//! [`RopeScaling`]: rotary frequencies for texts longer than the pretraining context.
//!
//! ```text
//! fᵢ = base^(-2i / D)          of D rotated elements of a head
//! Linear, Dynamic              all angles, or the base, are scaled
//! Llama3, Yarn                 only long wavelengths are
//! LongRope                     each frequency has its own factor
//! ```

use std::f64::consts::PI;

/// How the frequencies of [`super::Rope`] differ from `base^(-2i / D)`.
///
/// Sources: linear: Chen et al. 2023, arXiv:2306.15595; Yarn: Peng et al. 2023, arXiv:2309.00071;
/// LongRope: Ding et al. 2024, arXiv:2402.13753; Llama 3: Grattafiori et al. 2024,
/// arXiv:2407.21783.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum RopeScaling {
    /// They do not.
    #[default]
    None,
    /// All are divided by `factor`.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// The base grows with the length of texts beyond `original`. Keys of a cache keep the
    /// rotations of the length that the text had, as in transformers.
    Dynamic {
        /// The factor of the length.
        factor: f64,
        /// The length of texts in pretraining.
        original: usize,
    },
    /// Wavelengths above `original / low` are multiplied by `factor`, those below `original / high`
    /// are not, those between by something between.
    Llama3 {
        /// The factor of long wavelengths.
        factor: f64,
        /// `low_freq_factor`.
        low: f64,
        /// `high_freq_factor`.
        high: f64,
        /// The length of texts in pretraining.
        original: usize,
    },
    /// As Llama 3, with a ramp over the index of the frequency.
    Yarn {
        /// The factor of long wavelengths.
        factor: f64,
        /// A frequency that completes more rotations within `original` is unchanged.
        beta_fast: f64,
        /// A frequency that completes fewer rotations within `original` is divided by the factor.
        beta_slow: f64,
        /// The length of texts in pretraining.
        original: usize,
        /// The factor of cosines and sines.
        attention: f64,
        /// Whether the ends of the ramp are whole numbers.
        truncate: bool,
    },
    /// Divisors of each frequency.
    LongRope {
        /// For texts of at most `original` tokens.
        short: Vec<f64>,
        /// For longer ones.
        long: Vec<f64>,
        /// The length of texts in pretraining.
        original: usize,
        /// The factor of cosines and sines.
        attention: f64,
    },
}

impl RopeScaling {
    /// The frequencies of the pairs of `dims` rotated elements, for texts of `length` tokens, and
    /// the factor of cosines and sines.
    pub fn frequencies(&self, dims: usize, base: f64, length: usize) -> (Vec<f64>, f64) {
        let plain = |base: f64| -> Vec<f64> {
            (0..dims / 2).map(|i| base.powf(-2.0 * i as f64 / dims as f64)).collect()
        };
        let mut f = plain(base);
        match self {
            RopeScaling::None => (f, 1.0),
            RopeScaling::Linear { factor } => {
                f.iter_mut().for_each(|f| *f /= factor);
                (f, 1.0)
            }
            RopeScaling::Dynamic { factor, original } => {
                let ratio = length.max(*original) as f64 / *original as f64;
                let grown = factor * ratio - (factor - 1.0);
                (plain(base * grown.powf(dims as f64 / (dims as f64 - 2.0))), 1.0)
            }
            RopeScaling::Llama3 { factor, low, high, original } => {
                let original = *original as f64;
                for f in &mut f {
                    let length = 2.0 * PI / *f;
                    if length > original / low {
                        *f /= factor;
                    } else if length >= original / high {
                        let s = (original / length - low) / (high - low);
                        *f *= (1.0 - s) / factor + s;
                    }
                }
                (f, 1.0)
            }
            RopeScaling::Yarn { factor, beta_fast, beta_slow, original, attention, truncate } => {
                let d = dims as f64;
                let index =
                    |n: f64| d * (*original as f64 / (2.0 * PI * n)).ln() / (2.0 * base.ln());
                let (mut low, mut high) = (index(*beta_fast), index(*beta_slow));
                if *truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                (low, high) = (low.max(0.0), high.min(d - 1.0));
                if low == high {
                    high += 0.001;
                }
                for (i, f) in f.iter_mut().enumerate() {
                    let r = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    *f *= 1.0 - r + r / factor;
                }
                (f, *attention)
            }
            RopeScaling::LongRope { short, long, original, attention } => {
                let divisors = if length > *original { long } else { short };
                f.iter_mut().zip(divisors).for_each(|(f, d)| *f /= d);
                (f, *attention)
            }
        }
    }

    /// The length beyond which texts have other frequencies, if they change.
    pub fn changes_after(&self) -> Option<usize> {
        match self {
            RopeScaling::LongRope { original, .. } | RopeScaling::Dynamic { original, .. } => {
                Some(*original)
            }
            _ => None,
        }
    }

    /// Whether each length beyond has its own frequencies. Keys of shorter texts stay as they are.
    pub(crate) fn grows(&self) -> bool {
        matches!(self, RopeScaling::Dynamic { .. })
    }
}
