// Combines one value per thread of a team (TEAM consecutive threads; TEAM divides THREADS) and
// returns the result to each of them. All threads of the workgroup must call it, since it has
// barriers. The order is fixed: all get the same bits. codegen/rows/body.rs declares the parts, of
// THREADS elements, and the function that combines two.
//
// Naive: a tree, with a barrier for each doubling. Here every thread combines all parts of its
// team, in their order: one barrier and TEAM reads.
fn {{name}}(thread: u32, own: {{value}}) -> {{value}} {
#if reused
    workgroupBarrier(); // the parts may still be read from the last time
#endif
    {{parts}}[thread] = own;
    workgroupBarrier();
    let first = thread - thread % TEAM;
    var whole = {{parts}}[first];
    for (var i = 1u; i < TEAM; i++) {
        let other = {{parts}}[first + i];
        whole = {{combine}}(whole, other);
    }
    return whole;
}
