// The largest element of every window and its position in the image, or the mean of every window,
// where windows have two elements of a row, are two apart along it, and have no padding there.
//
// Naive: a thread per window reads its elements one by one (pool.wgsl, which other windows take).
// Here a thread has two neighbouring windows: it reads a row of both as a vector of four and writes
// both results at once, in their storage type. As there, the first largest and the first NaN win,
// and a window of padding alone has the value `constant` and the position -1; padding counts as
// zeros for the mean.
//
// 4 bytes read and 1 to 3 written for 4 comparisons at 2 x 2: bound by bandwidth, 70 to 85 % of it
// expected. Registers: a vector, two results and positions, the counters. No workgroup memory.
{{params}}
@group(0) @binding(0) var<storage, read> x: array<{{x_word}}>;
@group(0) @binding(1) var<storage, read_write> y: array<{{y_word}}>;
#if max
@group(0) @binding(2) var<storage, read_write> positions: array<vec2<i32>>;
#endif

const THREADS = {{threads}}u;

{{accessors}}

#if max
fn better(v: f32, best: f32, position: i32) -> bool {
    return position < 0 || v > best || (is_nan_f32(v) && !is_nan_f32(best));
}
#endif

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let n = (group.y * groups.x + group.x) * THREADS + thread;
    if n >= params.windows / 2u { return; }
    let pairs = params.windows_per_image / 2u;
    let base = image_addresses(n / pairs).x;
    var rest = n % pairs;
    let place = rest % (params.y_sizes_{{last}} / 2u);
    rest = rest / (params.y_sizes_{{last}} / 2u);
#for axis in reversed 0..last
    let place{{axis}} = rest % params.y_sizes_{{axis}};
    let start{{axis}} = i32(place{{axis}} * params.stride_{{axis}}) - i32(params.padding_{{axis}});
    rest = rest / params.y_sizes_{{axis}};
#endfor
#if max
    var best = vec2<f32>();
    var position = vec2<i32>(-1);
#else
    var sum = vec2<f32>();
#endif
#for axis in 0..last
    for (var k{{axis}} = 0u; k{{axis}} < params.window_{{axis}}; k{{axis}} += 1u) {
    let h{{axis}} = start{{axis}} + i32(k{{axis}} * params.dilation_{{axis}});
    if h{{axis}} < 0 || h{{axis}} >= i32(params.x_sizes_{{axis}}) { continue; }
#endfor
        var address = base;
#for axis in 0..last
        address += u32(h{{axis}}) * params.x_steps_{{axis}};
#endfor
        let v = load_x_quad((address >> 2u) + place);
#if max
        var flat = 0u;
#for axis in 0..last
        flat = flat * params.x_sizes_{{axis}} + u32(h{{axis}});
#endfor
        let first = i32(flat * params.x_sizes_{{last}} + 4u * place);
#for lane in 0..4
        if better(v[{{lane}}], best[{{lane / 2}}], position[{{lane / 2}}]) {
            best[{{lane / 2}}] = v[{{lane}}];
            position[{{lane / 2}}] = first + {{lane}};
        }
#endfor
#else
        sum += v.xz;
        sum += v.yw;
#endif
#for axis in 0..last
    }
#endfor
#if max
    store_y(n, select(best, vec2<f32>(constant()), position < vec2<i32>()));
    positions[n] = position;
#else
    store_y(n, vec2<f32>(div_f32(sum.x, constant()), div_f32(sum.y, constant())));
#endif
}
