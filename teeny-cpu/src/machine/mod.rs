//! A machine for programs of floats: an accumulator of eight vectors, and instructions that combine
//! it with operands in memory.
//!
//! ```text
//!   kernel ─► values ─► program: instructions with operands by number, bound to memory
//!                          │        by `elementwise::prepared` and `rows`
//!                          ▼
//!   registers ─► accumulator: what each instruction does     calls: functions, by `blocks`
//!      ▲
//!   instructions: of steps, with addresses
//!      ▲
//!   groups ◄─ step: a loop over each block, and its memory, as data (`elementwise::interpreter`)
//!    │  └─► blocks: a loop for each step
//!    └────► half_pairs: one step on 16-bit floats
//! ```
//! A new operation of floats is a function in `loops::float` and its name in `loops::each_loop`; a
//! new fold is a code in `instructions`, an arm in `registers` and in `program`, and how its
//! vectors become one number in `rows::folds`; a level is a type in `simd`. Independent of tensors
//! and threads.

mod accumulator;
pub(crate) mod blocks;
mod calls;
pub(crate) mod groups;
mod half_pairs;
pub(crate) mod instructions;
pub(crate) mod program;
pub(crate) mod registers;
pub(crate) mod step;
pub(crate) mod values;
