//! Size classes: multiples of 64 bytes up to 256, then four per octave, so that a block is at most
//! a quarter larger than the request.

/// The largest class index: 2^48 bytes.
pub(super) const CLASSES: usize = 4 * (48 - 8) + 4;

/// The size class of a request, and the bytes of its blocks.
#[inline]
pub(super) fn class_of(bytes: usize) -> (usize, usize) {
    if bytes <= 256 {
        let class = bytes.max(1).div_ceil(64) - 1;
        return (class, (class + 1) * 64);
    }
    let octave = (bytes - 1).ilog2(); // 2^octave < bytes <= 2^(octave + 1)
    let quarter = 1usize << (octave - 2);
    let q = (bytes - (1 << octave)).div_ceil(quarter); // 1..=4
    (4 * (octave as usize - 8) + 3 + q, (1 << octave) + q * quarter)
}

/// The bytes of a block of this class: the inverse of `class_of`.
#[inline]
pub(super) fn class_size(class: usize) -> usize {
    if class < 4 {
        return (class + 1) * 64;
    }
    let (octave, q) = ((class - 4) / 4 + 8, (class - 4) % 4 + 1);
    (1 << octave) + q * (1 << (octave - 2))
}
