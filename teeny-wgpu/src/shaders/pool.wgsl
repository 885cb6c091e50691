// The largest element of every window and its position in the image, or the mean of every window,
// one thread per window:
//     for k in window { h = start + k * dilation; if inside { best = max(best, x[h]) } }
//     for k in window { h = start + k * dilation; if inside { sum += x[h] } }; y = sum / window
// The first largest and the first NaN win, and a window of padding alone has the value `constant`
// and the position -1; padding counts as zeros for the mean. By its definition a mean is a padded
// copy and a sum over a view of it; here places outside the image are skipped, and neighbouring
// threads find shared elements in the cache.
//
// Arithmetic intensity: one flop for each element of a window; with caches perfect x is read once
// and y written once, so bound by memory for windows up to about 10 x 10: 60 % of peak bandwidth is
// expected at stride 1. Registers: the result, NDIM starts and counters, an address. No workgroup
// memory.
{{params}}
@group(0) @binding(0) var<storage, read> x: array<{{x_word}}>;
@group(0) @binding(1) var<storage, read_write> y: array<Value>;
#if max
@group(0) @binding(2) var<storage, read_write> positions: array<i32>;
#endif

alias Value = {{value}};
const THREADS = {{threads}}u;

{{accessors}}

#if max
fn better(v: Value, best: Value) -> bool {
#if float
    return v > best || (is_nan_{{value}}(v) && !is_nan_{{value}}(best));
#else
    return v > best;
#endif
}
#endif

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
    var result: Value = {{first}};
#if max
    var position = -1;
#endif
#for axis in 0..ndim
    for (var k{{axis}} = 0u; k{{axis}} < params.window_{{axis}}; k{{axis}} += 1u) {
    let h{{axis}} = start{{axis}} + i32(k{{axis}} * params.dilation_{{axis}});
    if h{{axis}} < 0 || h{{axis}} >= i32(params.x_sizes_{{axis}}) { continue; }
#endfor
        var address = base;
#for axis in 0..ndim
        address += u32(h{{axis}}) * params.x_steps_{{axis}};
#endfor
        let v = load_x(address);
#if max
        if position < 0 || better(v, result) {
            var flat = 0u;
#for axis in 0..ndim
            flat = flat * params.x_sizes_{{axis}} + u32(h{{axis}});
#endfor
            result = v;
            position = i32(flat);
        }
#else
        result += v;
#endif
#for axis in 0..ndim
    }
#endfor
#if max
    if position < 0 { result = constant(); }
    y[n] = result;
    positions[n] = position;
#else
    y[n] = div_{{value}}(result, constant());
#endif
}
