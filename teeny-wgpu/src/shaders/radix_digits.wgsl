// Counts the digits of a tile: each thread counts its EACH neighbouring keys into its own column of
// workgroup memory.
const THREADS = {{threads}}u;
const EACH = {{each}}u;
const TILE = THREADS * EACH;
const DIGITS = {{digits}}u;

var<workgroup> places: array<u32, DIGITS * THREADS>; // (digit, thread)

fn digit(key: u32) -> u32 { return (key >> params.shift) & (DIGITS - 1u); }

fn first_key(tile: u32, thread: u32) -> u32 { return tile * TILE + thread * EACH; }

fn last_key(first: u32) -> u32 { return min(first + EACH, params.keys); }

fn count_digits(tile: u32, thread: u32) {
    for (var d = 0u; d < DIGITS; d++) { places[d * THREADS + thread] = 0u; }
    let low = first_key(tile, thread);
    let high = last_key(low);
    for (var i = low; i < high; i++) { places[digit(keys[i]) * THREADS + thread] += 1u; }
    workgroupBarrier();
}
