//! Sorting, unique elements, counts.

mod sort;

mod unique;

mod histogram;
