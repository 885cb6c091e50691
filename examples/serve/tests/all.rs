//! One program for the tests.

mod parts;
