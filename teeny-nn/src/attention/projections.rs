//! [`Projections`]: the linear layers before attention, one or three.

use crate::linear::Linear;
use crate::module::{Module, require_type};
use teeny_core::{Result, Tensor};

/// The linear layers to queries, keys and values.
///
/// One product for all three is faster; three have the names of most published models.
#[derive(Clone, Debug)]
pub enum Projections {
    /// One of (Q + 2 KV, E): the rows of queries, keys and values, in this order.
    Joined(Linear),
    /// To queries (Q, E), keys (KV, E) and values (KV, E).
    Separate(Box<[Linear; 3]>),
}

impl From<Linear> for Projections {
    fn from(qkv: Linear) -> Projections {
        Projections::Joined(qkv)
    }
}

impl From<[Linear; 3]> for Projections {
    fn from(layers: [Linear; 3]) -> Projections {
        Projections::Separate(Box::new(layers))
    }
}

impl Projections {
    fn layers(&self) -> &[Linear] {
        match self {
            Projections::Joined(qkv) => std::slice::from_ref(qkv),
            Projections::Separate(layers) => &**layers,
        }
    }

    /// The width E.
    pub(super) fn inputs(&self) -> usize {
        self.layers()[0].weight.shape()[1]
    }

    /// Whether queries have `q` features, and keys and values `kv` each.
    pub(super) fn fits(&self, q: usize, kv: usize) -> bool {
        let all = kv.saturating_mul(2).saturating_add(q);
        let rows = if self.layers().len() == 1 { vec![all] } else { vec![q, kv, kv] };
        let e = self.inputs();
        self.layers().iter().zip(rows).all(|(layer, n)| layer.weight.shape()[..] == [n, e])
    }

    /// The names and the shapes of the weights.
    pub(super) fn described(&self) -> String {
        let each = |layer: &Linear| {
            let weight = &layer.weight;
            format!("{} is {}", weight.name(), weight.shape())
        };
        self.layers().iter().map(each).collect::<Vec<_>>().join(", ")
    }

    /// Queries, keys and values of `x` (B, T, E), of widths Q and KV.
    pub(super) fn all(&self, x: &Tensor, [q, kv]: [usize; 2]) -> Result<[Tensor; 3]> {
        match self {
            Projections::Joined(qkv) => {
                let parts = qkv.forward(x)?.split_sizes(-1, &[q, kv, kv])?; // of (B, T, Q + 2 KV)
                Ok([0, 1, 2].map(|i| parts[i].clone()))
            }
            Projections::Separate(layers) => {
                let [q, k, v] = &**layers;
                Ok([q.forward(x)?, k.forward(x)?, v.forward(x)?])
            }
        }
    }

    /// Queries of `x` (B, T, E), keys and values of `context` (B, S, E).
    pub(super) fn of_two(
        &self,
        x: &Tensor,
        context: &Tensor,
        [q, kv]: [usize; 2],
    ) -> Result<(Tensor, [Tensor; 2])> {
        match self {
            Projections::Joined(qkv) => {
                let (q, kv) = (q as isize, kv as isize);
                let keys = rows(qkv, context, q, q + 2 * kv)?.chunk(-1, 2)?; // (B, S, KV) twice
                Ok((rows(qkv, x, 0, q)?, [keys[0].clone(), keys[1].clone()]))
            }
            Projections::Separate(layers) => {
                let [q, k, v] = &**layers;
                Ok((q.forward(x)?, [k.forward(context)?, v.forward(context)?]))
            }
        }
    }
}

/// The rows `from..to` of a layer, of `x`.
fn rows(layer: &Linear, x: &Tensor, from: isize, to: isize) -> Result<Tensor> {
    if layer.weight.is_indirect() {
        return layer.forward(x)?.slice(-1, from..to);
    }
    require_type(x, &layer.weight)?;
    let y = x.matmul(&layer.weight.value().slice(0, from..to)?.t()?)?;
    match &layer.bias {
        Some(bias) => y.add(&bias.value().slice(0, from..to)?),
        None => Ok(y),
    }
}
