//! The hash of programs and their nodes.
//!
//! A kernel is built for each call of a composite method, and each of its nodes is hashed. The
//! standard library's hash, which resists chosen keys, took longer than a small kernel runs. This
//! one takes a rotation, an exclusive or and a multiplication per word. A lookup compares the nodes
//! too, so a collision does no harm.

use std::hash::{BuildHasherDefault, Hasher};

/// For maps with nodes as keys.
pub(super) type NodeHash = BuildHasherDefault<NodeHasher>;

/// The state of a hash.
#[derive(Default)]
pub(super) struct NodeHasher(u64);

impl NodeHasher {
    #[inline]
    fn word(&mut self, word: u64) {
        /// Half of the digits of the golden ratio: an odd number with about as many ones as zeros.
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    }
}

impl Hasher for NodeHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.word(u64::from(byte));
        }
    }
    #[inline]
    fn write_u8(&mut self, x: u8) {
        self.word(u64::from(x));
    }
    #[inline]
    fn write_u16(&mut self, x: u16) {
        self.word(u64::from(x));
    }
    #[inline]
    fn write_u64(&mut self, x: u64) {
        self.word(x);
    }
    #[inline]
    fn write_usize(&mut self, x: usize) {
        self.word(x as u64);
    }
    #[inline]
    fn write_isize(&mut self, x: isize) {
        self.word(x as u64);
    }
    /// The upper half depends on every word, the lower one on few bits of the last.
    #[inline]
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}
