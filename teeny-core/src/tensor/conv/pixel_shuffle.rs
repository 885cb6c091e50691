//! Pixel shuffle: channels moved into space and back, and shuffled. Each is a reshape, a permute
//! and a copy.

use crate::context::enter;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl Tensor {
    /// Channels moved into space: (.., C r², H, W) → (.., C, H r, W r). Equivalent:
    /// `torch.nn.functional.pixel_shuffle`.
    ///
    /// Source: Shi et al. 2016, arXiv:1609.05158.
    ///
    /// # Errors
    /// If there are fewer than three axes, or `r²` does not divide the channels.
    #[track_caller]
    pub fn pixel_shuffle(&self, r: usize) -> Result<Tensor> {
        let _op = enter("pixel_shuffle").on([("x", Some(self))]);
        let (lead, [c, h, w]) = self.channels_last_but_two()?;
        let Some(square) =
            r.checked_mul(r).filter(|&square| square > 0 && c.is_multiple_of(square))
        else {
            return Err(Error::shape(format!(
                "{c} channels of {} are not divisible by {r}²",
                self.shape()
            ))
            .help(format!(
                "the largest r for {c} channels is {}",
                (1..=c.isqrt()).rev().find(|r| c.is_multiple_of(r * r)).unwrap_or(1)
            )));
        };
        let x = self
            .reshape((lead.iter().product::<usize>(), c / square, r, r, h, w))?
            .permute([0, 1, 4, 2, 5, 3])?;
        // all factors are sizes of one shape
        x.reshape([lead, &[c / square, h * r, w * r]].concat())
    }

    /// Space moved into channels, the inverse of [`Tensor::pixel_shuffle`]: (.., C, H r, W r) →
    /// (.., C r², H, W).
    ///
    /// # Errors
    /// If there are fewer than three axes, or `r` does not divide the last two.
    ///
    /// Equivalent: `torch.nn.functional.pixel_unshuffle`.
    #[track_caller]
    pub fn pixel_unshuffle(&self, r: usize) -> Result<Tensor> {
        let _op = enter("pixel_unshuffle").on([("x", Some(self))]);
        let (lead, [c, h, w]) = self.channels_last_but_two()?;
        if r == 0 || !h.is_multiple_of(r) || !w.is_multiple_of(r) {
            return Err(Error::shape(format!(
                "the image of {} is not divisible by {r}",
                self.shape()
            ))
            .help(format!("r must divide {h} and {w}")));
        }
        let x = self
            .reshape((lead.iter().product::<usize>(), c, h / r, r, w / r, r))?
            .permute([0, 1, 3, 5, 2, 4])?;
        x.reshape([lead, &[c * r * r, h / r, w / r]].concat())
    }

    /// The channels of (N, C, ..) taken from `groups` groups in turn. Equivalent:
    /// `torch.nn.functional.channel_shuffle`.
    ///
    /// # Errors
    /// If self has no channel axis, or `groups` does not divide it.
    #[track_caller]
    pub fn channel_shuffle(&self, groups: usize) -> Result<Tensor> {
        let _op = enter("channel_shuffle").on([("x", Some(self))]);
        match self.shape().get(1) {
            Some(&c) if groups > 0 && c.is_multiple_of(groups) => {
                self.unflatten(1, (groups, c / groups))?.transpose(1, 2)?.reshape(self.shape())
            }
            _ => Err(Error::shape(format!(
                "the channels of {} do not divide into {groups} groups",
                self.shape()
            ))
            .help(match self.shape().get(1) {
                Some(c) => format!("the groups must divide the {c} channels of axis 1"),
                None => {
                    "channels are axis 1 of (N, C, ..): x.unsqueeze(0)? adds an axis".to_string()
                }
            })),
        }
    }

    fn channels_last_but_two(&self) -> Result<(&[usize], [usize; 3])> {
        match &self.shape()[..] {
            [lead @ .., c, h, w] => Ok((lead, [*c, *h, *w])),
            _ => Err(Error::shape(format!("needs (.., C, H, W), not {}", self.shape()))
                .help("x.unsqueeze(0)? adds an axis in front")),
        }
    }
}
