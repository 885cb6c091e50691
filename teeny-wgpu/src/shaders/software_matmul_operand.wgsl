// How software_matmul.wgsl reads {{name}}: zeros beyond the last k.
#if along
// Four k of the row or column that begins at `start`.
fn {{name}}_along_k(start: u32, k: u32) -> Quad {
#if quads
    return load_{{name}}_quad((start + k) >> 2u);
#else
    var v: Quad;
#for i in 0..4
    let v{{i}} = load_{{name}}(start + min(k + {{i}}u, params.k - 1u) * params.{{k_stride}});
    v[{{i}}] = select(Value(0), v{{i}}, k + {{i}}u < params.k);
#endfor
    return v;
#endif
}
#else
// {{size}} neighbours from number `first` on, at one k; the last ones repeat the last one.
fn {{name}}_across_k(start: u32, first: u32, k: u32) -> vec{{size}}<Value> {
    let at = start + min(k, params.k - 1u) * params.{{k_stride}};
#if quads
    let v = load_{{name}}_quad((at + min(first, params.{{count}} - 4u)) >> 2u);
#else
    var v: vec{{size}}<Value>;
#for i in 0..size
    v[{{i}}] = load_{{name}}(at + min(first + {{i}}u, params.{{count}} - 1u) * params.{{stride}});
#endfor
#endif
    return select(vec{{size}}<Value>(), v, k < params.k);
}
#endif
