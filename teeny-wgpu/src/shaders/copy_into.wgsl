// dst[view] = src, one thread per element. Bits are moved as integers of the element's width.
//
// Elements below 32 bits share words with each other and with elements outside the view, so they
// are put in by atomic operations on their own bits: the result does not depend on the order.
{{params}}
@group(0) @binding(0) var<storage, read> src: array<u32>;
#if packed
@group(0) @binding(1) var<storage, read_write> dst: array<atomic<u32>>;
#else
@group(0) @binding(1) var<storage, read_write> dst: array<u32>;
#endif

const THREADS = {{threads}}u;
const WORDS = {{words}}u;         // of an element
const PER_WORD = {{per_word}}u;   // elements of a word
const BITS = 32u / PER_WORD;      // of an element

{{accessors}}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let n = (group.y * groups.x + group.x) * THREADS + thread;
    if n >= params.elements { return; }
    let at = element_addresses(n);
#if packed
    let mask = (1u << BITS) - 1u;
    let value = (src[at.src / PER_WORD] >> ((at.src % PER_WORD) * BITS)) & mask;
    let shift = (at.dst % PER_WORD) * BITS;
    atomicAnd(&dst[at.dst / PER_WORD], ~(mask << shift));
    atomicOr(&dst[at.dst / PER_WORD], value << shift);
#else
#for word in 0..words
    dst[at.dst * WORDS + {{word}}u] = src[at.src * WORDS + {{word}}u];
#endfor
#endif
}
