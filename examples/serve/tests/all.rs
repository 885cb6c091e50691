//! One program for the tests, which start servers on free ports.

mod batches;
mod common;
mod errors;
mod malformed;
mod parts;
mod program;
mod routes;
