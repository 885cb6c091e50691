// An index along an axis, which may be outside of it: such an index is never an address. It is
// noted in a record of the launch instead, as the first place, the least and the largest such
// index.
@group(0) @binding({{binding}}) var<storage, read_write> index_errors: array<atomic<u32>>;

alias Index = {{index}};

struct AxisPosition {
    found: bool, // inside the axis, and in the range that this launch serves
    at: u32,     // the position in that range
}

fn find_position(k: Index) -> AxisPosition {
    let inside = {{inside}};
    let at = select(0u, u32(k), inside) - params.range_low;
    return AxisPosition(inside && at < params.range_length, at);
}

// `find_position` that notes an index outside the axis, at this place.
fn axis_position(k: Index, place: u32) -> AxisPosition {
    if !({{inside}}) {
        // The index as a number that grows with it, saturated to 32 bits: -2^31 is 0.
        let number = {{biased}};
        atomicMin(&index_errors[params.error_record], place);
        atomicMin(&index_errors[params.error_record + 1u], number);
        atomicMin(&index_errors[params.error_record + 2u], ~number);
    }
    return find_position(k);
}
