// The largest element of every window and its position in the image, one thread per window:
//     for k in window { h = start + k * dilation; if inside { best = max(best, x[h]) } }
// The first largest and the first NaN win. A window of padding alone has the value `constant` and
// the position -1.
{{params}}
@group(0) @binding(0) var<storage, read> x: array<{{x_word}}>;
@group(0) @binding(1) var<storage, read_write> y: array<Value>;
@group(0) @binding(2) var<storage, read_write> positions: array<i32>;

alias Value = {{value}};
const THREADS = {{threads}}u;

{{accessors}}

fn better(v: Value, best: Value) -> bool {
#if float
    return v > best || (is_nan_{{value}}(v) && !is_nan_{{value}}(best));
#else
    return v > best;
#endif
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let n = (group.y * groups.x + group.x) * THREADS + thread;
    if n >= params.windows { return; }
    let base = image_addresses(n / params.windows_per_image).x;
    var rest = n % params.windows_per_image;
#for axis in reversed 0..ndim
    let place{{axis}} = rest % params.y_sizes_{{axis}};
    let start{{axis}} = i32(place{{axis}} * params.stride_{{axis}}) - i32(params.padding_{{axis}});
    rest = rest / params.y_sizes_{{axis}};
#endfor
    var best: Value = {{lowest}};
    var position = -1;
#for axis in 0..ndim
    for (var k{{axis}} = 0u; k{{axis}} < params.window_{{axis}}; k{{axis}} += 1u) {
    let h{{axis}} = start{{axis}} + i32(k{{axis}} * params.dilation_{{axis}});
    if h{{axis}} < 0 || h{{axis}} >= i32(params.x_sizes_{{axis}}) { continue; }
#endfor
        var address = base;
        var flat = 0u;
#for axis in 0..ndim
        address += u32(h{{axis}}) * params.x_steps_{{axis}};
        flat = flat * params.x_sizes_{{axis}} + u32(h{{axis}});
#endfor
        let v = load_x(address);
        if position < 0 || better(v, best) {
            best = v;
            position = i32(flat);
        }
#for axis in 0..ndim
    }
#endfor
    if position < 0 { best = constant(); }
    y[n] = best;
    positions[n] = position;
}
