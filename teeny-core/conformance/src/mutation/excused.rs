//! Mutants that no case can notice, with the reasons.

/// Parts of the mutant's variant, name and fault, and the reason.
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
];

const COMMUTES: &str = "the operation is commutative";
const GRADIENT: &str = "a window that does not fit the gradient's shape is refused";

/// Why the suite cannot notice the mutant `text`.
pub fn reason(text: &str) -> Option<&'static str> {
    let fits = |(parts, _): &&(&[&str], &'static str)| parts.iter().all(|part| text.contains(part));
    REASONS.iter().find(fits).map(|(_, reason)| *reason)
}
