//! Sorting, and what sorted elements answer: unique elements, counts, positions.

mod sort;
mod unique;
