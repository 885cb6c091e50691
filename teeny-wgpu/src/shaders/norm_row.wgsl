// The statistics of a row of x that both a normalisation and its gradient need: its mean (layer) and
// the scale 1 / sqrt(variance + eps).
//
// A workgroup reads the row for each sum, the second time from cache. The variance is that of the
// differences from the mean, never a difference of sums. The rounding error of the mean, `rest`, is
// subtracted apart: rows of nearly equal elements would show it otherwise.
struct RowStatistics {
    mean: Value,
    rest: Value,
    scale: Value,
}

fn add(a: Value, b: Value) -> Value { return a + b; }

var<workgroup> parts: array<Value, THREADS>;
{{workgroup_sum}}

fn row_statistics(thread: u32, base: u32) -> RowStatistics {
    var mean: Value = {{zero}};
    var squares: Value = {{zero}};
    var rest: Value = {{zero}};
#if layer
    for (var r = thread; r < params.length; r += THREADS) {
        mean += load_x(base + r * params.x_step);
    }
    mean = workgroup_sum(thread, mean) * inverse_length();
    for (var r = thread; r < params.length; r += THREADS) {
        let d = load_x(base + r * params.x_step) - mean;
        rest += d;
        squares += d * d;
    }
    rest = workgroup_sum(thread, rest) * inverse_length();
#else
    for (var r = thread; r < params.length; r += THREADS) {
        let v = load_x(base + r * params.x_step);
        squares += v * v;
    }
#endif
    let v = workgroup_sum(thread, squares) * inverse_length() - rest * rest;
    let variance = select(v, {{zero}}, v < {{zero}}); // max would make 0 of NaN
    return RowStatistics(mean, rest, Value(1) / sqrt(variance + eps()));
}

// Element r of the row, minus the mean (layer).
fn centred(base: u32, r: u32, of_row: RowStatistics) -> Value {
#if layer
    return load_x(base + r * params.x_step) - of_row.mean - of_row.rest;
#else
    return load_x(base + r * params.x_step);
#endif
}
