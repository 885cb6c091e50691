// Whether a sorts before b. Equal elements (all NaN are equal, and -0 equals 0) are ordered by the
// caller, by position. NaN is the largest. Must be a strict weak order: otherwise two elements are
// written to one place. `Value` is the type that the including shader sorts.
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
