//! Rules that shrink a program while it is built. Each keeps every bit of the result, for NaN,
//! infinities and signed zeros too.

use super::OpCode::{self, Cast, Const, Input, Not, Where};
use super::eval::eval;
use super::{Arithmetic, Bitwise, Comparison, Id, OpNode, SignFunction};
use crate::dtype::DType;
use crate::scalar::Scalar;

/// The result of simplifying a node before it is added.
pub(super) enum Simplified {
    /// An existing node.
    Same(Id),
    /// A node (perhaps rewritten) that still has to be added.
    Node(OpNode),
}

/// Folds constants, removes neutral elements and double operations, and orders the operands of
/// commutative operations.
pub(super) fn simplify(nodes: &[OpNode], mut node: OpNode) -> Simplified {
    use Arithmetic::{Add, Div, FloorDiv, Max, Min, Mul, Pow, Sub};
    use Bitwise::{And, Or};
    let constant = |id: Id| match &nodes[id as usize].op {
        Const(value) => Some(value),
        _ => None,
    };
    let [a, b, c] = node.src;

    // Before folding, which would round a 16-bit constant that is computed in f32.
    if node.op == Cast && nodes[a as usize].dtype == node.dtype {
        return Simplified::Same(a);
    }
    let folds = node.op.arity() > 0 && !node.op.is_of_rows();
    if folds && node.sources().iter().all(|&s| constant(s).is_some()) {
        let args = node.src.map(|s| constant(s).copied().unwrap_or(Scalar::Bool(false)));
        let src_dtype = nodes[*node.sources().last().expect("an operand") as usize].dtype;
        let value = eval(&node, src_dtype, args);
        return Simplified::Node(OpNode { op: Const(value), src: [0; 3], dtype: node.dtype });
    }
    // Operands of commutative operations: constants second, otherwise the earlier node first.
    if node.op.is_commutative()
        && ((constant(a).is_some() && constant(b).is_none()) || (constant(b).is_none() && a > b))
    {
        node.src = [b, a, 0];
    }
    let [a, b, _] = if node.op.is_commutative() { node.src } else { [a, b, c] };
    let is = |id: Id, value: f64| constant(id).is_some_and(|k| k.is(value));
    let is_bool = |id: Id, value: bool| constant(id) == Some(&Scalar::Bool(value));
    let float = node.dtype.is_float();
    let inner = |id: Id| &nodes[id as usize];

    let same = match node.op {
        // A widening cast and the cast back lose nothing.
        Cast if inner(a).op == Cast
            && inner(inner(a).src[0]).dtype == node.dtype
            && widens(node.dtype, inner(a).dtype)
            && is_rounded(*inner(inner(a).src[0])) =>
        {
            Some(inner(a).src[0])
        }
        OpCode::Sign(SignFunction::Neg) | Not if inner(a).op == node.op => Some(inner(a).src[0]),
        // Idempotent: abs, sign and the roundings.
        OpCode::Sign(_) | OpCode::Round(_) if inner(a).op == node.op => Some(a),
        // -0.0 is the neutral element of float addition: -0.0 + 0.0 would be 0.0.
        OpCode::Arithmetic(Add)
            if float && constant(b).is_some_and(|k| k.is(0.0) && k.to_f64().is_sign_negative()) =>
        {
            Some(a)
        }
        OpCode::Arithmetic(Add) if !float && is(b, 0.0) => Some(a),
        OpCode::Arithmetic(Sub)
            if is(b, 0.0)
                && (!float || constant(b).is_some_and(|k| k.to_f64().is_sign_positive())) =>
        {
            Some(a)
        }
        OpCode::Arithmetic(Mul | Div) if is(b, 1.0) => Some(a),
        OpCode::Arithmetic(FloorDiv) if is(b, 1.0) && !float => Some(a),
        OpCode::Arithmetic(Mul) if !float && is(b, 0.0) => Some(b),
        OpCode::Arithmetic(Pow) if is(b, 1.0) => Some(a),
        OpCode::Arithmetic(Max | Min) | OpCode::Bitwise(And | Or) if a == b => Some(a),
        OpCode::Bitwise(And) if is_bool(b, true) => Some(a),
        OpCode::Bitwise(And) if is_bool(b, false) => Some(b),
        OpCode::Bitwise(Or) if is_bool(b, false) => Some(a),
        OpCode::Bitwise(Or) if is_bool(b, true) => Some(b),
        Where if b == c => Some(b),
        Where if constant(a).is_some() => Some(if is_bool(a, true) { b } else { c }),
        // NOTE: the only wildcard over operations: a missing rule costs speed, not correctness.
        _ => None,
    };
    if let Some(id) = same {
        return Simplified::Same(id);
    }
    // A square is cheaper than a power and equal to it, bit for bit after rounding.
    if node.op == OpCode::Arithmetic(Pow) && is(b, 2.0) {
        node.op = OpCode::Arithmetic(Mul);
        node.src = [a, a, 0];
    }
    // Equal or less is one comparison; false for NaN either way.
    if node.op == OpCode::Bitwise(Or) && node.dtype == DType::Bool {
        let equality = OpCode::Compare(Comparison::Eq);
        let (equal, less) =
            if inner(a).op == equality { (inner(a), inner(b)) } else { (inner(b), inner(a)) };
        let [p, q, _] = equal.src;
        if equal.op == equality
            && less.op == OpCode::Compare(Comparison::Lt)
            && (less.src[..2] == [p, q] || less.src[..2] == [q, p])
        {
            return simplify(nodes, OpNode { op: OpCode::Compare(Comparison::Le), ..*less });
        }
    }
    // `c <= max(x, k)` is `c <= x` where k is below c, and `min(x, k) <= c` is `x <= c` where it is
    // above; false for NaN either way. The derivative of a clamp compares its steps. Not `<`, of
    // which the rule above makes `<=`.
    if node.op == OpCode::Compare(Comparison::Le) {
        let number = |id: Id| {
            let exact = inner(id).dtype.is_float() || inner(id).dtype.size() <= 4;
            constant(id).filter(|_| exact).map(|k| k.to_f64())
        };
        let bounded = |id: Id, op: Arithmetic| {
            let [x, k, _] = inner(id).src;
            (inner(id).op == OpCode::Arithmetic(op)).then(|| Some((x, number(k)?))).flatten()
        };
        if let (Some(c), Some((x, k))) = (number(a), bounded(b, Max))
            && k < c
        {
            node.src[1] = x;
        } else if let (Some((x, k)), Some(c)) = (bounded(a, Min), number(b))
            && c < k
        {
            node.src[0] = x;
        }
    }
    Simplified::Node(node)
}

/// True if the value of `node` is one its type can store. A 16-bit float is computed in f32, and a
/// cast rounds it.
fn is_rounded(node: OpNode) -> bool {
    !node.dtype.is_half() || matches!(node.op, Input(_) | Cast)
}

/// True if every value of `narrow` survives being stored as `wide`.
fn widens(narrow: DType, wide: DType) -> bool {
    use DType::*;
    match (narrow, wide) {
        (a, b) if a == b => true,
        (Bool, _) => true,
        (F16 | BF16, F32 | F64) | (F32, F64) => true,
        (a, b)
            if a.is_unsigned_int() && b.is_unsigned_int()
                || a.is_signed_int() && b.is_signed_int() =>
        {
            a.size() < b.size()
        }
        (a, b) if a.is_unsigned_int() && b.is_signed_int() => a.size() < b.size(),
        (a, F64) if a.is_int() => a.size() <= 4,
        (a, F32) if a.is_int() => a.size() <= 2,
        _ => false,
    }
}
