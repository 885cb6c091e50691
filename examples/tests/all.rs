//! The integration tests of this crate in one program, since linking takes much of a test's time.
//! Tests that need a separate process or allocator are separate programs.

mod common;

mod bert;
mod classify;
mod cost;
mod finetune;
mod gpt;
mod locate;
mod makemore;
mod mnist;
mod output;
mod pretrained;
mod regression;
