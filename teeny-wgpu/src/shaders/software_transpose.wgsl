// transpose.wgsl for software adapters: a thread copies 4 x 4 elements in registers. There a load
// takes as long for four neighbours as for one, workgroup memory is as slow as other memory, and a
// barrier switches between the threads' stacks.
//
// Naive, one thread per four elements of the result: four loads and a store for four elements. Here
// four loads of vectors along the rows of src and four stores along the columns of dst for sixteen.
// Threads of a workgroup copy TILE x TILE elements, so that lines of memory are used as a whole
// while they are in the cache. Expected: 80 to 90 % of the rate of a plain copy.
{{params}}
@group(0) @binding(0) var<storage, read> src: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> dst: array<vec4<u32>>;

const THREADS = {{threads}}u;
const TILE = {{tile}}u;
const SIDE = TILE / 4u;

{{accessors}}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = group.y * groups.x + group.x;
    let across = (params.columns + TILE - 1u) / TILE;
    let down = (params.rows + TILE - 1u) / TILE;
    let matrix = unit / (across * down);
    if matrix >= params.matrices { return; }
    let row = unit / across % down * TILE + thread / SIDE * 4u;
    let column = unit % across * TILE + thread % SIDE * 4u;
    if row >= params.rows || column >= params.columns { return; }
    let base = matrix_addresses(matrix);
    let source = base.src + row + column * params.column_stride;
    let place = base.dst + row * params.row_stride + column;
#for c in 0..4
    let c{{c}} = src[(source + {{c}}u * params.column_stride) >> 2u];
#endfor
#for r in 0..4
    dst[(place + {{r}}u * params.row_stride) >> 2u] =
        vec4<u32>(c0[{{r}}], c1[{{r}}], c2[{{r}}], c3[{{r}}]);
#endfor
}
