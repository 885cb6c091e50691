//! A guide: chapters from strides to a GPT, and pages for jobs. All programs compile and run.
//!
//! Each chapter has one idea, a picture, a program that runs in seconds, two exercises with
//! answers, and the names of other libraries. Chapters build on each other; pages for jobs stand
//! alone. They are also Markdown files, in the folder `guide` of this crate.
//!
//! | chapter | idea |
//! |---|---|
//! | 1 [`strides`] | a tensor is a view over flat memory; a view never copies |
//! | 2 [`broadcasting`] | an axis of size 1 repeats itself, by a stride of 0 |
//! | 3 [`programs`] | a formula for one element runs at all in one pass |
//! | 4 [`reverse_mode`] | remember what was computed, then walk back |
//! | 5 [`perceptron`] | training moves the free numbers of a formula |
//! | 6 [`convolution`] | one small layer visits every place of the image |
//! | 7 [`normalization`] | numbers inside stay near mean 0 and variance 1 |
//! | 8 [`attention`] | each token gets an average of the others, weighted by fit |
//! | 9 [`gpt`] | predict the next token with a stack of blocks |
//! | 10 [`laziness`] | record first, run later, several operations as one |
//! | 11 [`own_operation`] | a function, a program, or a rule |
//! | 12 [`own_device`] | everything that computes goes through one function |
//! | 13 [`ranks`] | every rank has the model and a part of the data |
//! | 14 [`browser`] | nothing may wait, so everything that reads is awaited |
//!
//! | job | subject |
//! |---|---|
//! | [`own_data`] | a data set of files, memory or computation |
//! | [`own_loop`] | what a step does; accumulation, clipping, schedules |
//! | [`own_layer`] | ten lines first, then what a layer for others needs |
//! | [`own_optimizer`] | an update rule with state, checkpoints, schedules |
//! | [`own_loss`] | fast, and right at the edges |
//! | [`reproducible`] | seeds, checkpoints, resuming, determinism |
//! | [`gan`] | a GAN on generated points |
//! | [`target_network`] | a target network that follows softly |
//! | [`segmentation`] | a class for each pixel, by a U-Net |
//! | [`serving`] | a function per request, on threads |
//! | [`desktop`] | a device chosen at run time, weights from bytes |
//! | [`wasm`] | how to build for the browser |
//! | [`from_pytorch`] | 200 functions by their names there |
//! | [`from_candle`] | 30 functions by their names there |
//! | [`from_burn`] | 30 functions by their names there |

#[doc = include_str!("../guide/01-strides.md")]
pub mod strides {}

#[doc = include_str!("../guide/02-broadcasting.md")]
pub mod broadcasting {}

#[doc = include_str!("../guide/03-programs.md")]
pub mod programs {}

#[doc = include_str!("../guide/04-reverse-mode.md")]
pub mod reverse_mode {}

#[doc = include_str!("../guide/05-perceptron.md")]
pub mod perceptron {}

#[doc = include_str!("../guide/06-convolution.md")]
pub mod convolution {}

#[doc = include_str!("../guide/07-normalization.md")]
pub mod normalization {}

#[doc = include_str!("../guide/08-attention.md")]
pub mod attention {}

#[doc = include_str!("../guide/09-gpt.md")]
pub mod gpt {}

#[doc = include_str!("../guide/10-laziness.md")]
pub mod laziness {}

#[doc = include_str!("../guide/11-own-operation.md")]
pub mod own_operation {}

#[doc = include_str!("../guide/12-own-device.md")]
pub mod own_device {}

#[doc = include_str!("../guide/13-ranks.md")]
pub mod ranks {}

#[doc = include_str!("../guide/14-browser.md")]
pub mod browser {}

#[doc = include_str!("../guide/15-own-data.md")]
pub mod own_data {}

#[doc = include_str!("../guide/16-own-loop.md")]
pub mod own_loop {}

#[doc = include_str!("../guide/17-own-layer.md")]
pub mod own_layer {}

#[doc = include_str!("../guide/18-own-optimizer.md")]
pub mod own_optimizer {}

#[doc = include_str!("../guide/19-own-loss.md")]
pub mod own_loss {}

#[doc = include_str!("../guide/20-reproducible.md")]
pub mod reproducible {}

#[doc = include_str!("../guide/21-gan.md")]
pub mod gan {}

#[doc = include_str!("../guide/22-target-network.md")]
pub mod target_network {}

#[doc = include_str!("../guide/23-serving.md")]
pub mod serving {}

#[doc = include_str!("../guide/24-desktop.md")]
pub mod desktop {}

#[doc = include_str!("../guide/25-wasm.md")]
pub mod wasm {}

#[doc = include_str!("../guide/26-from-pytorch.md")]
pub mod from_pytorch {}

#[doc = include_str!("../guide/27-from-candle.md")]
pub mod from_candle {}

#[doc = include_str!("../guide/28-from-burn.md")]
pub mod from_burn {}

#[doc = include_str!("../guide/29-segmentation.md")]
pub mod segmentation {}
