//! Models as the cost model sees them: parameters, flops and activations of each layer. `gpt` has
//! the layers of a GPT.

/// A layer: the computation between two gradients that become ready together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layer {
    /// The number of parameters.
    pub parameters: f64,
    /// Floating-point operations of the forward pass per item; the backward pass has twice as many.
    pub flops: f64,
    /// Bytes per item that the forward pass keeps for the backward pass.
    pub activations: f64,
}

/// A model and its batches.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The name, for tables.
    pub name: &'static str,
    /// The layers in the order of the backward pass: the last layer of the model first.
    pub layers: Vec<Layer>,
    /// Bytes of a parameter, and of its gradient.
    pub bytes_per_parameter: f64,
    /// Items (sequences) of each rank in a step of weak scaling.
    pub items_per_rank: f64,
    /// Items of all ranks in a step of strong scaling.
    pub joint_items: f64,
    /// The most items whose activations a rank holds: more are computed one micro-batch after
    /// another, and their gradients added.
    pub items_at_once: f64,
}

impl Workload {
    /// The shape of Llama 7B: 6,738,415,616 parameters in f32, one sequence of 2,048 tokens per
    /// rank, 2,048 in strong scaling: the four million tokens of Touvron et al. 2023,
    /// arXiv:2302.13971, table 2.
    pub fn llama7b() -> Workload {
        let shape = Workload::llama(32, 4096.0, 11008.0, 32000.0, 2048.0);
        Workload { name: "llama7b", joint_items: 2048.0, ..shape }
    }

    /// A model as Llama: `layers` blocks of width E with a gated perceptron of width H, a head
    /// that is not tied, vocabulary V and T tokens; one sequence per rank.
    ///
    /// A block has 4 E² + 3 E H + 2 E parameters and keeps 8 E + 4 H elements per token (two norms,
    /// their inputs, queries, keys, values, attention's result, gate, its activation, the other
    /// half and their product).
    pub fn llama(layers: usize, e: f64, h: f64, v: f64, t: f64) -> Workload {
        let head = Layer {
            parameters: e + v * e,
            flops: 2.0 * t * v * e,
            activations: 4.0 * t * (2.0 * e + v),
        };
        let matrices = 4.0 * e * e + 3.0 * e * h;
        let block = Layer {
            parameters: matrices + 2.0 * e,
            flops: t * (2.0 * matrices + 4.0 * t * e),
            activations: 4.0 * t * (8.0 * e + 4.0 * h),
        };
        let embeddings = Layer { parameters: v * e, flops: 0.0, activations: 4.0 * t };
        Workload::of("llama", head, block, layers, embeddings, 1.0)
    }

    /// `blocks` blocks between a head and embeddings, with `items` sequences per rank and at once.
    pub(crate) fn of(
        name: &'static str,
        head: Layer,
        block: Layer,
        blocks: usize,
        embeddings: Layer,
        items: f64,
    ) -> Workload {
        let mut layers = vec![head];
        layers.extend(std::iter::repeat_n(block, blocks));
        layers.push(embeddings);
        Workload {
            name,
            layers,
            bytes_per_parameter: 4.0,
            items_per_rank: items,
            joint_items: 64.0 * items,
            items_at_once: items,
        }
    }

    /// The number of parameters.
    pub fn parameters(&self) -> f64 {
        self.layers.iter().map(|layer| layer.parameters).sum()
    }

    /// The bytes of all parameters, or of all gradients.
    pub fn bytes(&self) -> f64 {
        self.parameters() * self.bytes_per_parameter
    }

    /// Floating-point operations of forward and backward pass per item.
    pub fn flops(&self) -> f64 {
        3.0 * self.layers.iter().map(|layer| layer.flops).sum::<f64>()
    }
}
