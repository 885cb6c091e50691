// Whether the index reaches element n of x on the axes other than the one that is scattered along.
fn covered(n: u32) -> bool {
    var rest = n;
    var covered = true;
#for axis in reversed 0..axes
    covered = covered && rest % params.sizes_{{axis}} < params.index_sizes_{{axis}};
    rest = rest / params.sizes_{{axis}};
#endfor
    return covered;
}
