    // From the row in v and its sum in sum4: v - mean (layer) in v, the rounding error of the mean in
    // rest, and the scale. For norm_quads.wgsl and norm_grad_quads.wgsl.
    var rest = 0.0f;
#if layer
    let mean = workgroup_sum(thread, sum_of(sum4)) * inverse_length();
    sum4 = vec4<f32>();
#for q in 0..quads
    if thread + {{q}}u * THREADS < length {
        v{{q}} = v{{q}} - mean;
        sum4 += v{{q}};
    }
#endfor
    rest = workgroup_sum(thread, sum_of(sum4)) * inverse_length();
#endif
    var squares = vec4<f32>();
#for q in 0..quads
    squares += v{{q}} * v{{q}};
#endfor
    let v = workgroup_sum(thread, sum_of(squares)) * inverse_length() - rest * rest;
    let variance = select(v, 0.0f, v < 0.0f); // max would make 0 of NaN
    let scale = 1.0f / sqrt(variance + eps());
