//! A guide: chapters from strides to a GPT, and pages for jobs. All programs compile and run.
//!
//! Each chapter has one idea, a picture, a program that runs in seconds, two exercises with
//! answers, and the names of other libraries. Chapters build on each other; pages for jobs stand
//! alone. They are also Markdown files, in the folder `guide` of this crate.
//!
//! | chapter | idea |
//! |---|---|
//! | 1 [`strides`] | a tensor is a view over flat memory, and a view never copies |
//! | 2 [`broadcasting`] | an axis of size 1 repeats itself, by a stride of 0 |
//! | 3 [`programs`] | a formula for one element runs at all of them in one pass |
//! | 4 [`reverse_mode`] | remember what was computed, then walk back |
//! | 5 [`perceptron`] | a network is a formula with free numbers; training moves them |

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
