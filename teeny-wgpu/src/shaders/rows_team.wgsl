// The combination of one value per thread of a team, known to all its threads.
//
// Naive: a tree, with a barrier for each doubling. Here every thread combines all parts of its team,
// in their order: one barrier and TEAM reads.
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
