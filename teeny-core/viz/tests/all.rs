//! The integration tests of this crate in one program.

#[path = "../../tests/support/xml.rs"]
mod xml;

mod graph;
mod pictures;
