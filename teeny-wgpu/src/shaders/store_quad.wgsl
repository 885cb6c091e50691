// The end of a product of a type of less than 32 bits, without a kernel: four neighbouring results,
// which begin at a multiple of four, in the type of the product.
@group(0) @binding(2) var<storage, read_write> out: array<{{word}}>;
fn store_quad(i: u32, v: vec4<{{value}}>) { {{store}} }
