//! Mutants that no case can notice, with the reasons.

/// Parts of the mutant's variant, name and fault, and the reason. A part with ` | ` is a choice.
const REASONS: &[(&[&str], &str)] = &[
    (&["is absent"], "a request without an operand that it needs is refused"),
    (&["shape: "], "the sizes follow from the operands; draws are in row-major order"),
    (&["shapes: "], "the sizes follow from the operands"),
    (&["axes: list: "], "axes that do not ascend are refused, and so are other axes of a row"),
    (&["-0 is 0"], "a zero may lose its sign but where IEEE 754 keeps it"),
    (&["subnormal number is 0"], "a term that small is below the bound of a sum"),
    (&["f16 goes through bf16"], "the bound of a 16-bit result is that of bf16"),
    (&["bf16 goes through f16"], "the bound of a 16-bit result is that of bf16"),
    (&["an infinity is the largest number"], "the largest number, added or multiplied, overflows"),
    (&["add: operand 0: is exchanged"], COMMUTES),
    (&["mul: operand 0: is exchanged"], COMMUTES),
    (&["eq: operand 0: is exchanged"], COMMUTES),
    (&["ne: operand 0: is exchanged"], COMMUTES),
    (&["and: operand 0: is exchanged"], COMMUTES),
    (&["or: operand 0: is exchanged"], COMMUTES),
    (&["maximum has its operands exchanged"], "only the sign of a zero differs"),
    (&["minimum has its operands exchanged"], "only the sign of a zero differs"),
    (&["op: the triangle is"], "other decompositions have no triangle"),
    (&["op: the tolerance is"], "other decompositions have no tolerance"),
    (&["op: the size is"], "other decompositions have one size"),
    (&["Linalg eig: result 2"], "an eigenvector has any sign, and the values have no order"),
    (&["Linalg eig: result 3"], "an eigenvector has any sign, and the values have no order"),
    (&["quant_matmul: exact"], "the oracle multiplies x as it is in both cases"),
    (&["parts: the first is"], "a part of other bytes is refused, unless it has no rows"),
    (&["max_pool_grad: spatial"], "positions with other leading axes are refused"),
    (&["conv_input_grad: window"], GRADIENT),
    (&["conv_weight_grad: window"], GRADIENT),
    (&["is_nan: operand 0:"], "whether a number is NaN does not depend on its value"),
    (&["attention", "operand 2: is"], "a mask of the shape of the values is refused but for T = S"),
    (&["cos: operand 0: a negative"], "the function is even"),
    // what the types, the shapes or the definition exclude
    (&["Conv conv: window: one group | conv_kernel: window: one group"], GROUPS),
    (&["conv_kernel: window: twice the groups"], GROUPS),
    (&["Pool ", ": window: one group"], "a pool has one group"),
    (&["Pool ", ": window: twice the groups"], "a pool of groups is refused"),
    (&["Pool ", "kernel_size: list: the last is missing"], "windows of fewer axes are refused"),
    (&["positions: sizes: list: the last is missing"], "there is an index for each size"),
    (&["quant_rows: columns: one"], "a row that is not whole blocks is refused"),
    (&["quant_rows: operand 0: is"], "an index is no weight: it has other bytes"),
    (&["quant_matmul: operand 1: its strides", "row-major"], "a weight is packed"),
    (&["quant_rows: operand 0: its strides", "row-major"], "a weight is packed"),
    (&["InPlace exp | InPlace neg", "operand 0: its"], "the operand in place is packed"),
    (&["Random random: dtype: is bool"], "other distributions have no bools"),
    (&["cummax: extremum: is Largest | cummin: extremum: is Smallest"], SAME),
    (&["cumsum: op: is Sum | cumprod: op: is Prod"], SAME),
    (&["_grad: operand 1: is exchanged", "_norm"], "the gradient and the weight are multiplied"),
    (&["layer_norm: program: sub has its"], "of two differences, one after the other"),
    (&["attention_grad: operand", "NaN is 0"], "NaN in q, k and v is in y or the logsumexp too"),
    // results of a kind
    (&["Random random: result 0: NaN"], "no draw is NaN"),
    (
        &[" exp: result 0: a neg | exp2: result 0: a neg | Elementwise sqrt: result 0: a neg"],
        POSITIVE,
    ),
    (&["Rows softmax: result 0: a negative | cross_entropy: result 0: a negative"], POSITIVE),
    (&["svd: result 1: a negative"], POSITIVE),
    (&["cummax: | cummin: | sort: | topk:", "result 1: a negative"], POSITIVE),
    (&["argmax: | argmin:", "result 0: a negative"], POSITIVE),
    (&["Elementwise sign: operand 0: i | Elementwise sign: operand 0: u", "through f"], ROUNDS),
    (&["Elementwise sign: result 0: | slogdet: result 0:", "goes through"], SIGN),
    (&["sign is rounded to bf16"], SIGN),
    (&["eig: | eigh: | svd: | pinv:", "result", "NaN is 0"], "NaN has no decomposition"),
    (&["cholesky: result 0: NaN"], "NaN is not positive definite"),
    // positions
    (&["max_pool: | cummax: | cummin: | sort: | topk:", "result 1: i32 goes through f32"], LONG),
    (&["argmax: | argmin:", "result 0: i32 goes through f32"], LONG),
    (&["max_pool_grad: operand 1: i32 goes through f32"], LONG),
    (&[INDEXED, "operand 1: i32 goes through f32 | operand 1: u32 goes through f32"], LONG),
    (&[INDEXED, "operand 1: i64 goes through f64 | operand 1: u64 goes through f64"], LONG),
    // numbers
    (
        &["shl: operand 1: | shr: operand 1:", "goes through f"],
        "beyond the width all counts are one",
    ),
    (&[OF_BITS, "parameter 0: is rounded"], "an integer is whole"),
    (&[OF_BITS, "parameter 0: goes through i64 | parameter 0: goes through u64"], WRAPS),
    (&["cross_entropy", "parameter 0: is rounded"], "an integer is whole"),
    (&["cross_entropy", "parameter 0: goes through i64 | parameter 0: goes through u64"], WRAPS),
    (&[OF_FLOATS, "parameter 0: is a float | parameter 0: goes through f64"], "it is a float"),
];

const COMMUTES: &str = "the operation is commutative";
const GRADIENT: &str = "a window that does not fit the gradient's shape is refused";
const GROUPS: &str = "other groups need a weight of another shape, unless that has no elements";
const SAME: &str = "it is that already";
const POSITIVE: &str = "no result is negative";
const SIGN: &str = "the result is -1, 0 or 1";
const ROUNDS: &str = "a rounded integer keeps its sign";
const LONG: &str = "no case has an axis so long";
const WRAPS: &str = "an integer of 64 bits wraps there and back";

/// Operations with positions as operand 1.
const INDEXED: &str = "gather: | scatter: | quant_rows:";
/// Operations of integers with a number as parameter.
const OF_BITS: &str =
    "Elementwise and: | Elementwise or: | Elementwise xor: | Elementwise shl: | Elementwise shr:";
/// Operations of floats with a number as parameter.
const OF_FLOATS: &str = "Elementwise div: | conv_kernel: | _norm: | _norm_grad:";

/// Why a mutant with another kind of reduction is excused: it has the same results, or takes other
/// types.
fn of_reduction(text: &str) -> Option<&'static str> {
    let (name, new) = text.strip_prefix("Reduce ")?.split_once(": op: is ")?;
    let new = new.to_lowercase();
    let is_of_bools = |op: &str| op == "any" || op == "all";
    if name == new {
        return Some(SAME);
    }
    // positions are of any type
    let is_refused = ![name, &new].iter().any(|op| op.starts_with("arg"))
        && is_of_bools(name) != is_of_bools(&new);
    is_refused.then_some("any and all are of bools, the others of numbers")
}

/// Why the suite cannot notice the mutant `text`.
pub fn reason(text: &str) -> Option<&'static str> {
    let has = |part: &&str| part.split(" | ").any(|choice| text.contains(choice));
    let found = REASONS.iter().find(|(parts, _)| parts.iter().all(has));
    found.map(|(_, reason)| *reason).or_else(|| of_reduction(text))
}
