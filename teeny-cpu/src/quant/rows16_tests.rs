//! The same bytes through the lanes of all instructions that this machine has.

use super::rows16::arrays::Arrays;
use super::rows16::{Instructions, RowWork, Rows};
use crate::Level;

/// Every method on the same bytes.
struct Probe<'a> {
    x: [u8; 64],
    a: i32,
    to: &'a mut Vec<[i32; 16]>,
}

impl Probe<'_> {
    fn keep<R: Rows>(&mut self, lanes: R) {
        let mut all = [0; 16];
        // SAFETY: 64 bytes.
        unsafe { lanes.store(all.as_mut_ptr().cast()) };
        self.to.push(all);
    }

    fn keep_floats<R: Rows>(&mut self, floats: R::Floats) {
        let mut all = [0.0; 16];
        // SAFETY: 16 floats.
        unsafe { R::store_floats(floats, all.as_mut_ptr()) };
        self.to.push(all.map(|x| x.to_bits() as i32));
    }
}

impl RowWork for Probe<'_> {
    fn run<R: Rows>(mut self) {
        // SAFETY: 64 bytes, of which 32 are 16-bit floats.
        let (x, halves) = unsafe { (R::load(self.x.as_ptr()), R::halves(self.x.as_ptr())) };
        let (a, table) = (self.a, &[-127, 3, 0, 1, -1, 9, 5, 7, 100, 0, 2, -5, 8, 127, 6, -9]);
        let sum = a.to_le_bytes().iter().fold(0, |sum, &byte| sum + i32::from(byte as i8));
        let shift = R::splat(-R::SHIFT * sum);
        for lanes in [
            x,
            x.shr(5),
            x.shl(7),
            x.sar(9),
            x.and(R::splat(a)),
            x.or(R::splat(a)),
            x.mul(R::splat(a)),
            x.add(R::splat(a)),
            R::splat(a).dot(x.and(R::splat(0x7f7f_7f7f)), a),
            x.add(shift).dot_signed(x.signed(), a),
            x.and(R::splat(0x0f0f_0f0f)).look_up(table),
        ] {
            self.keep(lanes);
        }
        let floats = R::mul_floats(x.floats(), R::splat_float(1e-3));
        self.keep_floats::<R>(floats);
        self.keep_floats::<R>(R::add_floats(halves, floats));
    }
}

#[test]
fn lanes_of_all_instructions_compute_the_same() {
    let level = Level::Avx512.supported();
    let (mut seed, mut seen) = (7u64, 0);
    for case in 0..500 {
        let mut byte = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        };
        // the ends of the range too; no exponent of an infinite half, no -128 in `a`
        let mut x: [u8; 64] = std::array::from_fn(|_| match case % 3 {
            0 => byte(),
            1 => 128 + byte() % 2,
            _ => 127 - byte() % 2,
        });
        x.iter_mut().take(32).skip(1).step_by(2).for_each(|high| *high &= 0x3b);
        let a = [byte(), byte(), byte(), byte()];
        let a = i32::from_le_bytes(a.map(|byte| if byte == 128 { 129 } else { byte }));
        let mut wanted = Vec::new();
        Probe { x, a, to: &mut wanted }.run::<Arrays>();
        for all in Instructions::ALL.iter().filter(|all| all.are_at(level)) {
            let mut got = Vec::new();
            // SAFETY: they were detected.
            unsafe { all.run(Probe { x, a, to: &mut got }) };
            assert_eq!(got, wanted, "case {case}: {all:?}");
            seen += 1;
        }
    }
    assert!(seen >= 500);
}
