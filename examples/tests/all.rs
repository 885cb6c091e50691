//! The integration tests of this crate in one program: linking is a large part of the time that a
//! test takes. What needs a process or an allocator of its own is a program beside this one.

mod common;

mod bert;
mod classify;
mod gpt;
mod locate;
mod makemore;
mod mnist;
mod regression;
