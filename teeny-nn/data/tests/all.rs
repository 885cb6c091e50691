//! The integration tests of this crate in one program, since linking takes much of a test's time.

#[path = "../../tests/common/mod.rs"]
mod common;
mod corpus;
mod generated;
mod image_files;
mod images;
mod loader;
mod series;
mod tables;
