//! A readable one-line form of a program.

use super::{Kernel, OpCode, OpNode};
use crate::scalar::Scalar;
use std::fmt::Write as _;

impl Kernel {
    /// The program as an expression: inputs are `x0`, `x1`, …, run-time parameters `p0`, `p1`, ….
    /// A value that is read more than once gets a name.
    ///
    /// # Example
    /// ```
    /// use teeny_core::{Builder, DType};
    /// # fn main() -> teeny_core::Result<()> {
    /// let builder = Builder::new();
    /// let (x, c) = (builder.input(DType::F32), builder.param(DType::F32));
    /// let y = x.mul(c).exp();
    /// assert_eq!(builder.finish(&[y])?.expression(), "exp(x0 * p0)");
    /// let z = y.add(x).mul(y);
    /// assert_eq!(builder.finish(&[z])?.expression(), "t0 = exp(x0 * p0); t0 * (x0 + t0)");
    /// # Ok(()) }
    /// ```
    pub fn expression(&self) -> String {
        self.expression_by(&|value| value.to_string(), &[])
    }

    /// [`Kernel::expression`] with scalars written by `scalar_text`, and the values of these
    /// parameters.
    pub(crate) fn expression_by(
        &self,
        scalar_text: &dyn Fn(Scalar) -> String,
        params: &[Scalar],
    ) -> String {
        let mut reads = vec![0usize; self.nodes.len()];
        let sources = self.nodes.iter().flat_map(OpNode::sources);
        sources.chain(&self.outputs).for_each(|&id| reads[id as usize] += 1);
        let mut names = String::new();
        // For each node: its text, and true if it needs parentheses as an operand.
        let mut texts: Vec<(String, bool)> = Vec::with_capacity(self.nodes.len());
        for (id, node) in self.nodes.iter().enumerate() {
            let text = match node.op {
                OpCode::Const(value) => (scalar_text(value), false),
                OpCode::Param(i) if (i as usize) < params.len() => {
                    (scalar_text(params[i as usize]), false)
                }
                _ => text(node, &texts),
            };
            texts.push(if reads[id] > 1 && node.op.arity() > 0 {
                let name = format!("t{}", names.matches(';').count());
                // writing to a String cannot fail
                let _ = write!(names, "{name} = {}; ", text.0);
                (name, false)
            } else {
                text
            });
        }
        let outputs: Vec<&str> =
            self.outputs.iter().map(|&id| texts[id as usize].0.as_str()).collect();
        names + &outputs.join(", ")
    }
}

/// A node on operands of these texts.
fn text(node: &OpNode, texts: &[(String, bool)]) -> (String, bool) {
    let whole = |i: usize| texts[node.src[i] as usize].0.as_str();
    let operand = |i: usize| {
        let (text, is_infix) = &texts[node.src[i] as usize];
        if *is_infix { format!("({text})") } else { text.clone() }
    };
    let name = node.op.name();
    let symbol = match name {
        "add" => "+",
        "sub" => "-",
        "mul" => "*",
        "div" => "/",
        "rem" => "%",
        "lt" => "<",
        "le" => "<=",
        "eq" => "==",
        "ne" => "!=",
        "and" => "&",
        "or" => "|",
        "xor" => "^",
        "shl" => "<<",
        "shr" => ">>",
        _ => "",
    };
    match node.op {
        OpCode::Input(i) => (format!("x{i}"), false),
        OpCode::Param(i) => (format!("p{i}"), false),
        OpCode::Const(value) => (value.to_string(), false),
        OpCode::Cast => (format!("{}({})", node.dtype, whole(0)), false),
        _ if !symbol.is_empty() => (format!("{} {symbol} {}", operand(0), operand(1)), true),
        _ if name == "neg" => (format!("-{}", operand(0)), false),
        _ => {
            let all: Vec<&str> = (0..node.op.arity()).map(whole).collect();
            (format!("{name}({})", all.join(", ")), false)
        }
    }
}
