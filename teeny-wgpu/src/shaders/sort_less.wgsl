// Whether a precedes b, positions left out. NaN is the largest.
fn less(a: Value, b: Value) -> bool {
#if descending
    let x = b;
    let y = a;
#else
    let x = a;
    let y = b;
#endif
#if float
    if is_nan_{{value}}(x) { return false; }
    if is_nan_{{value}}(y) { return true; }
#endif
    return x < y;
}
