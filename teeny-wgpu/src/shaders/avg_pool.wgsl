// The mean of every window, one thread per window:
//     for k in window { h = start + k * dilation; if inside { sum += x[h] } }; y = sum / window
// Padding counts as zeros. By its definition this is a padded copy and a sum over a view of it; here
// places outside the image are skipped, and neighbouring threads find shared elements in the cache.
//
// Arithmetic intensity: one flop for each element of a window; with caches perfect x is read once
// and y written once, so bound by memory for windows up to about 10 x 10: 60 % of peak bandwidth is
// expected at stride 1. Registers: the sum, NDIM starts and counters, an address. No workgroup
// memory.
{{params}}
@group(0) @binding(0) var<storage, read> x: array<{{x_word}}>;
@group(0) @binding(1) var<storage, read_write> y: array<Value>;

alias Value = {{value}};
const THREADS = {{threads}}u;

{{accessors}}

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
    var sum: Value = {{zero}};
#for axis in 0..ndim
    for (var k{{axis}} = 0u; k{{axis}} < params.window_{{axis}}; k{{axis}} += 1u) {
    let h{{axis}} = start{{axis}} + i32(k{{axis}} * params.dilation_{{axis}});
    if h{{axis}} < 0 || h{{axis}} >= i32(params.x_sizes_{{axis}}) { continue; }
#endfor
        var address = base;
#for axis in 0..ndim
        address += u32(h{{axis}}) * params.x_steps_{{axis}};
#endfor
        sum += load_x(address);
#for axis in 0..ndim
    }
#endfor
    y[n] = sum / constant();
}
