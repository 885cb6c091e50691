// workgroup_reduce.wgsl with subgroup operations: the combination of one value per thread of a
// workgroup, known to every thread.
//
// A subgroup combines its values in registers, one thread of each writes to memory, every thread
// combines those: one barrier and THREADS / subgroup size reads instead of two barriers and
// THREADS / 8 + 8. The order of a subgroup's additions is the driver's, the same in every run on a
// device; between devices sums differ by their rounding. Maxima do not differ: they compare keys
// that order floats as integers, NaN above all.
fn {{name}}(thread: u32, own: {{value}}) -> {{value}} {
    let combined = {{across}}(own);
#if reused
    workgroupBarrier(); // the parts may still be read from the last time
#endif
    if subgroup_lane == 0u { {{parts}}[subgroup] = combined; }
    workgroupBarrier();
    var whole = {{parts}}[0];
    for (var i = 1u; i < subgroup_count; i++) {
        let other = {{parts}}[i];
        whole = {{combine}}(whole, other);
    }
    return whole;
}
