// The combination of one value per thread of a workgroup, known to every thread.
//
// Naive: every thread combines all parts, THREADS steps. Here eight threads combine an eighth each,
// then every thread combines the eight results: THREADS / 8 + 8 steps and two barriers, where a
// tree needs a barrier for each doubling. The order is fixed, so the same values give the same
// bits.
fn {{name}}(thread: u32, own: {{value}}) -> {{value}} {
#if reused
    workgroupBarrier(); // the parts may still be read from the last time
#endif
    {{parts}}[thread] = own;
    workgroupBarrier();
    if thread < 8u {
        var part = {{parts}}[thread * {{threads / 8}}u];
        for (var i = 1u; i < {{threads / 8}}u; i++) {
            let other = {{parts}}[thread * {{threads / 8}}u + i];
            part = {{combine}}(part, other);
        }
        {{parts}}[thread * {{threads / 8}}u] = part;
    }
    workgroupBarrier();
    var whole = {{parts}}[0];
    for (var i = 1u; i < 8u; i++) {
        let other = {{parts}}[i * {{threads / 8}}u];
        whole = {{combine}}(whole, other);
    }
    return whole;
}
