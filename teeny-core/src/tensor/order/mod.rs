//! Sorting, unique elements, counts. `Op::Sort` is the only primitive here.

mod sort;

mod unique;

mod histogram;
