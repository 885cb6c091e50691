// Philox 4x32-10 (Salmon et al. 2011): block number `counter` of the stream (seed, draw), with the
// bits that teeny_core::random defines. Ten rounds of two multiplications whose halves are
// exchanged.
fn philox(counter: u32) -> vec4<u32> {
    var x = vec4<u32>(counter, 0u, params.draw_low, params.draw_high);
    var k = vec2<u32>(params.seed_low, params.seed_high);
    for (var i = 0; i < 10; i++) {
        x = vec4<u32>(
            mul_high_u32(0xCD9E8D57u, x.z) ^ x.y ^ k.x,
            0xCD9E8D57u * x.z,
            mul_high_u32(0xD2511F53u, x.x) ^ x.w ^ k.y,
            0xD2511F53u * x.x,
        );
        k += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
    }
    return x;
}
