//! The kernel of a group: the programs of its nodes, each with the operands that the group computes
//! replaced by the program that computes them.

use super::fuse::Group;
use super::graph::Graph;
use super::list::{Node, Operand};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::Kernel;
use crate::kernel::build::{Builder, Expr};
use crate::layout::Layout;

/// A kernel with its inputs and outputs.
pub(super) struct Fused {
    pub(super) kernel: Kernel,
    pub(super) operands: Vec<Operand>,
    /// Its numbers, by their places in the list.
    pub(super) params: Vec<u32>,
    /// The slots of its outputs.
    pub(super) outputs: Vec<u32>,
}

/// The numbers of the programs that one kernel is made of, each by its place in the list: a number
/// that several programs have is one parameter.
#[derive(Default)]
pub(super) struct Params<'b>(Vec<(u32, Expr<'b>)>);

impl<'b> Params<'b> {
    /// The parameters of `kernel`, the program of `node`.
    pub(super) fn of(
        &mut self,
        node: &Node,
        kernel: &Kernel,
        builder: &'b Builder,
    ) -> Vec<Expr<'b>> {
        let mut param = |(place, &dtype): (u32, &DType)| {
            if let Some((_, expr)) = self.0.iter().find(|(known, _)| *known == place) {
                return *expr;
            }
            let expr = builder.param(dtype);
            self.0.push((place, expr));
            expr
        };
        node.params.clone().zip(kernel.params()).map(&mut param).collect()
    }

    /// The places of all parameters, in their order.
    pub(super) fn places(&self) -> Vec<u32> {
        self.0.iter().map(|(place, _)| *place).collect()
    }
}

/// The kernel of `group`; None if it has none, or is one node as it was recorded.
pub(super) fn fused(graph: &Graph<'_>, group: &Group) -> Result<Option<Fused>> {
    if group.members.len() < 2 {
        return Ok(None);
    }
    let builder = Builder::new();
    let mut inputs: Vec<(Operand, Expr<'_>)> = Vec::new();
    let mut params = Params::default();
    // The values of the earlier members: node, view, outputs.
    let mut values: Vec<(u32, Layout, Vec<Expr<'_>>)> = Vec::new();
    // The product that the kernel begins with is its first input.
    if let Some(id) = group.product
        && let Some((shape, dtype)) = graph.product(id)
    {
        let (slot, layout) = (graph.node(id).outputs.start, Layout::contiguous(shape));
        let expr = builder.input(dtype);
        inputs.push((Operand { slot, layout, dtype }, expr));
        values.push((id, layout, vec![expr]));
    }
    let programs = group.members.iter().rev().filter(|member| Some(member.node) != group.product);
    for member in programs {
        let Some(program) = graph.program(member.node) else { return Ok(None) };
        let node = graph.node(member.node);
        let numbers = params.of(node, program.kernel, &builder);
        for view in &member.views {
            let mut operands = Vec::with_capacity(node.operands.len());
            for Operand { slot, layout, dtype } in &node.operands {
                let Some(layout) = view.through(layout) else { return Ok(None) };
                let made = graph.maker(*slot).and_then(|(maker, output)| {
                    let same =
                        |(node, view, _): &&(u32, Layout, _)| *node == maker && *view == layout;
                    values.iter().find(same).map(|(_, _, outputs)| outputs[output as usize])
                });
                operands.push(match made {
                    Some(expr) => rounded(expr),
                    None => {
                        let operand = Operand { slot: *slot, layout, dtype: *dtype };
                        match inputs.iter().find(|(known, _)| *known == operand) {
                            Some((_, expr)) => *expr,
                            None => {
                                let expr = builder.input(*dtype);
                                inputs.push((operand, expr));
                                expr
                            }
                        }
                    }
                });
            }
            let outputs = builder.embed(program.kernel, &operands, &numbers);
            values.push((member.node, *view, outputs));
        }
    }
    let root = graph.node(group.root()).outputs.clone();
    let mut outputs: Vec<u32> = root.clone().filter(|&slot| graph.is_needed(slot)).collect();
    if group.reduces {
        outputs = vec![root.start];
    }
    outputs.extend(&group.extra);
    let exprs: Option<Vec<Expr<'_>>> = outputs
        .iter()
        .map(|&slot| {
            let (maker, output) = graph.maker(slot)?;
            // A value that is stored is read whole.
            let (_, _, all) = values.iter().rev().find(|(node, _, _)| *node == maker)?;
            Some(all[output as usize])
        })
        .collect();
    let Some(exprs) = exprs else { return Ok(None) };
    let (kernel, read) = builder.finish_pruned(&exprs)?;
    let operands = read.into_iter().map(|i| inputs[i].0.clone()).collect();
    Ok(Some(Fused { kernel, operands, params: params.places(), outputs }))
}

/// A value as it would be read from memory: 16-bit floats are computed in f32 and rounded when they
/// are stored.
pub(super) fn rounded(expr: Expr<'_>) -> Expr<'_> {
    match expr.dtype() {
        dtype @ (DType::F16 | DType::BF16) => expr.cast(DType::F32).cast(dtype),
        _ => expr,
    }
}
