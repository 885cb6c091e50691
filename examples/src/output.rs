//! Standard output that may be closed: `print!` and `println!` of the programs.
//!
//! The macros of the standard library panic if the reader is gone, as after `bench | head -n 1`.
//! These end a program that does nothing but print, and a program that trains or writes files goes
//! on without a word.

use std::fmt;
use std::io::{Write, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the program has nothing to do once its output is closed.
static ONLY_PRINTS: AtomicBool = AtomicBool::new(false);

/// Says whether the program has nothing to do once its output is closed.
pub fn only_prints(yes: bool) {
    ONLY_PRINTS.store(yes, Ordering::Relaxed);
}

/// Writes to the standard output, for the macros.
pub fn write(text: fmt::Arguments<'_>) {
    if stdout().write_fmt(text).is_err() && ONLY_PRINTS.load(Ordering::Relaxed) {
        std::process::exit(0);
    }
}

/// [`std::print!`] for an output that may be closed.
#[macro_export]
macro_rules! print {
    ($($text:tt)*) => { $crate::output::write(format_args!($($text)*)) };
}

/// [`std::println!`] for an output that may be closed.
#[macro_export]
macro_rules! println {
    () => { $crate::print!("\n") };
    ($($text:tt)*) => { $crate::print!("{}\n", format_args!($($text)*)) };
}
