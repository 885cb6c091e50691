// The end of a product without a kernel: `place` is the number of the result in row-major order.
@group(0) @binding(2) var<storage, read_write> out: array<{{value}}>;
fn store(place: u32, product: {{value}}) { out[place] = product; }
