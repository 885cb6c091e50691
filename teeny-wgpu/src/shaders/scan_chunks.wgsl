// Running sums and products, one workgroup per line, or per chunk of a long line.
//
// Naive: acc = carry; for r in low..high { acc = combine(acc, x[r]); y[r] = acc; }
// From there: a workgroup goes through its chunk tile by tile, ITEMS_PER_THREAD consecutive
// elements a thread.
//  1. Each thread combines its elements.
//  2. SCAN_THREADS threads scan SHARE of these parts each: the combination of the parts before each one
//     in its share.
//  3. Each thread combines all that precedes it (the carry, the shares before, the parts before in
//     its share) and scans its elements from there. The carry goes on to the next tile.
{{params}}
@group(0) @binding(0) var<storage, read> x: array<{{x_word}}>;
#if carried
@group(0) @binding(1) var<storage, read> totals: array<Value>; // of the chunks up to each, scanned
@group(0) @binding(2) var<storage, read_write> y: array<Value>;
#else
@group(0) @binding(1) var<storage, read_write> y: array<Value>;
#endif

alias Value = {{value_type}};
const THREADS = {{threads}}u;
const ITEMS_PER_THREAD = {{items_per_thread}}u;
const TILE = THREADS * ITEMS_PER_THREAD;
const SCAN_THREADS = {{scan_threads}}u;
const SHARE = THREADS / SCAN_THREADS;

{{accessors}}

fn combine(a: Value, b: Value) -> Value { return a {{operator}} b; }

var<workgroup> parts: array<Value, THREADS>;
var<workgroup> shares: array<Value, SCAN_THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = group.y * groups.x + group.x;
    if unit >= params.lines * params.chunks { return; }
    let base = line_addresses(unit / params.chunks);
    let low = unit % params.chunks * params.chunk;
    let high = min(low + params.chunk, params.length);
    var carry: Value = {{identity}};
#if carried
    if low > 0u { carry = totals[unit - 1u]; }
#endif
    for (var tile = low; tile < high; tile += TILE) {
        let first = tile + thread * ITEMS_PER_THREAD;
        let last = min(first + ITEMS_PER_THREAD, high);
        var own: Value = {{identity}};
        for (var r = first; r < last; r++) {
            own = combine(own, load_x(base.x + r * params.x_step));
        }
        parts[thread] = own;
        workgroupBarrier();
        if thread < SCAN_THREADS {
            var sum: Value = {{identity}};
            for (var i = thread * SHARE; i < (thread + 1u) * SHARE; i++) {
                let here = parts[i];
                parts[i] = sum;
                sum = combine(sum, here);
            }
            shares[thread] = sum;
        }
        workgroupBarrier();
        var before: Value = {{identity}};
        for (var i = 0u; i < thread / SHARE; i++) { before = combine(before, shares[i]); }
        var value = combine(carry, combine(before, parts[thread]));
        for (var r = first; r < last; r++) {
            value = combine(value, load_x(base.x + r * params.x_step));
            y[base.y + r * params.y_step] = value;
        }
        var all: Value = {{identity}};
        for (var i = 0u; i < SCAN_THREADS; i++) { all = combine(all, shares[i]); }
        carry = combine(carry, all);
        workgroupBarrier();
    }
}
