// An operand of matmul_cooperative.wgsl: a tile of TILE rows of lhs, or columns of rhs, times
// TILE_K, in workgroup memory. Its groups of four are numbered in the order in which neighbouring
// threads fetch neighbours:
//     along k:  element (across, k) at across * PITCH + k, group across * TILE_K / 4 + k / 4
//     across:   element (across, k) at k * PITCH + across, group k * TILE / 4 + across / 4
// A group is one load where its elements are four neighbours at a multiple of four.
#if along
const {{pitch}} = TILE_K + PAD;
var<workgroup> {{name}}_tile: array<Element, TILE * {{pitch}}>;
fn {{name}}_across(group: u32) -> u32 { return group / (TILE_K / 4u); }
fn {{name}}_k(group: u32) -> u32 { return group % (TILE_K / 4u) * 4u; }
#else
const {{pitch}} = TILE + PAD;
var<workgroup> {{name}}_tile: array<Element, TILE_K * {{pitch}}>;
fn {{name}}_across(group: u32) -> u32 { return group % (TILE / 4u) * 4u; }
fn {{name}}_k(group: u32) -> u32 { return group / (TILE / 4u); }
#endif

// Zeros where the matrix, or the slice of k, ends.
fn fetch_{{name}}(base: u32, across0: u32, k0: u32, end: u32, group: u32) -> Quad {
    let across = across0 + {{name}}_across(group);
    let k = k0 + {{name}}_k(group);
    var v = Quad();
    if across >= params.{{count}} || k >= end { return v; }
    let p = base + across * params.{{stride}} + k * params.{{name}}_k_stride;
#if quads
    v = {{name}}[p >> 2u];
#else
#for i in 0..4
#if along
    if k + {{i}}u < end { v[{{i}}] = {{name}}[p + {{i}}u * params.{{name}}_k_stride]; }
#else
    if across + {{i}}u < params.{{count}} { v[{{i}}] = {{name}}[p + {{i}}u * params.{{stride}}]; }
#endif
#endfor
#endif
    return v;
}

fn put_{{name}}(group: u32, v: Quad) {
#if along
    let at = {{name}}_across(group) * {{pitch}} + {{name}}_k(group);
#else
    let at = {{name}}_k(group) * {{pitch}} + {{name}}_across(group);
#endif
#for i in 0..4
    {{name}}_tile[at + {{i}}u] = v[{{i}}];
#endfor
}
