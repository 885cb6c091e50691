// Cross-entropy of rows of logits x with targets t, or its gradient:
//     loss[row]      = log(sum_c exp(x[row, c] - max)) - (x[row, t] - max)
//     x_grad[row, c] = (exp(x[row, c] - max) / sum - [c = t]) g[row]
//
// Naive, by its definition: a log-softmax (classes results a row), a gather of the targets and a
// negation; for the gradient a softmax, ones scattered to the targets and a product: three and five
// launches that store rows of classes. Here one launch reads each row from memory once, and from
// cache in its other loops; the gradient alone writes a row. A row has a thread where rows are
// short, so that no thread waits for others; a workgroup with every THREADS-th element a thread
// where they are long, so that reads are contiguous.
//
// Ignored rows cost 0 and have gradient 0, whatever they contain. A target outside the classes is
// noted by the loss (axis_index.wgsl). A gradient of 16-bit floats is written in their type, two a thread,
// where rows have an even number of classes.
//
// Arithmetic intensity: 4 flops for each element of 4 bytes (loss), or 8 bytes (gradient): bound by
// memory, so the share of peak bandwidth is the measure; 80 % of it is expected from 4096 rows of
// 1024 classes on, in the variant of workgroups. Registers: 6 words of state and the addresses.
// Workgroup memory: 4 THREADS bytes in the variant of workgroups, else none.
{{params}}
@group(0) @binding(0) var<storage, read> x: array<{{x_word}}>;
@group(0) @binding(1) var<storage, read> targets: array<{{targets_word}}>;
#if gradient
@group(0) @binding(2) var<storage, read> g: array<{{g_word}}>;
@group(0) @binding(3) var<storage, read_write> result: array<{{result_word}}>;
#else
@group(0) @binding(2) var<storage, read_write> result: array<{{result_word}}>;
#endif

alias Value = {{value}};
const THREADS = {{threads}}u;

{{accessors}}

#if workgroup_rows
fn add(a: Value, b: Value) -> Value { return a + b; }

var<workgroup> parts: array<Value, THREADS>;
{{workgroup_max}}
{{workgroup_sum}}
const STEP = THREADS;
#else
const STEP = 1u;
#endif

#if gradient
struct Row {
    base: u32,
    largest: Value,
    sum: Value,
    kept: bool,
    position: AxisPosition,
    scale: Value,
}

fn gradient(row: Row, c: u32) -> Value {
    if !row.kept { return {{zero}}; } // even where the row has a NaN
    var d = exp_{{value}}(load_x(row.base + c * params.x_class_stride) - row.largest) / row.sum;
    if row.position.found && c == row.position.at { d -= {{one}}; }
    return d * row.scale;
}
#endif

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
#if workgroup_rows
    let row = group.y * groups.x + group.x;
    let first = thread;
#else
    let row = (group.y * groups.x + group.x) * THREADS + thread;
    let first = 0u;
#endif
    if row >= params.rows { return; }
    let base = params.x_offset + row * params.x_row_stride;
    var largest = -inf_{{value}}();
    for (var c = first; c < params.classes; c += STEP) {
        largest = max_{{value}}(largest, load_x(base + c * params.x_class_stride));
    }
#if workgroup_rows
    largest = workgroup_max(thread, largest);
#endif
    var sum: Value = {{zero}};
    for (var c = first; c < params.classes; c += STEP) {
        sum += exp_{{value}}(load_x(base + c * params.x_class_stride) - largest);
    }
#if workgroup_rows
    sum = workgroup_sum(thread, sum);
#endif
    let t = load_targets(params.targets_offset + row * params.targets_stride);
    var position = AxisPosition(false, 0u);
    var kept = true;
#if ignores
    kept = t != ignored();
#endif
#if gradient
    position = find_position(t);
#else
    if kept { position = axis_position(t, row); }
#endif
#if gradient
    var scale: Value = {{zero}};
    if kept { scale = load_g(params.g_offset + row * params.g_stride); }
    let own = Row(base, largest, sum, kept, position, scale);
#if pairs
    let pairs = params.classes / 2u;
    for (var p = first; p < pairs; p += STEP) {
        store_result(row * pairs + p, vec2<f32>(gradient(own, 2u * p), gradient(own, 2u * p + 1u)));
    }
#else
    for (var c = first; c < params.classes; c += STEP) {
        result[row * params.classes + c] = gradient(own, c);
    }
#endif
#else
    if first > 0u { return; }
    var loss: Value = {{zero}};
    if position.found {
        loss = log_{{value}}(sum) - (load_x(base + position.at * params.x_class_stride) - largest);
    }
    result[row] = loss;
#endif
}
