//! Expands the table of requests to [`Op`](super::Op): its names and operands, the same op on other
//! operands, and its recorded form. The macro runs in `table`, which imports the names that it uses.
//!
//! [`Op::ElementwiseInPlace`](super::Op::ElementwiseInPlace) is not a row: it overwrites storage
//! that the caller holds, so it is never recorded.

/// Expands the rows of `table`.
macro_rules! requests {
    (@primitive primitive) => { true };
    (@primitive fused) => { false };
    (@names $($operand:ident),*) => { &[$(stringify!($operand)),*] };
    (@names $($operand:ident),* = $names:expr) => { $names };
    (@kept) => { () };
    (@kept $kept:ident) => { *$kept };
    (
        $request:ident;
        $(
            $(#[$doc:meta])*
            $tier:ident $variant:ident {
                $($(#[$operand_doc:meta])* $operand:ident: $operand_type:ty $(as $kept:ident)?),*;
                $($(#[$attribute_doc:meta])* $attribute:ident: $attribute_type:ty),*;
                $($(#[$run_time_doc:meta])* $run_time:ident: $run_time_type:ty),*;
                name $name:expr, $(operand_names $names:expr,)? moves $moves:expr, flops $flops:expr
            }
        )*
    ) => {
        /// A request to a [`Device`](crate::Device): one operation and its operands.
        ///
        /// Operands are views with any strides (0 and negative included), all on the device that executes
        /// the op. Axes count from 0. Each output is new storage, row-major and without gaps; only
        /// [`Op::CopyInto`] and [`Op::ElementwiseInPlace`] write to storage that they are given.
        ///
        /// Nine variants are primitives, which every device must execute: `Elementwise`, `Reduce`, `Scan`,
        /// `Matmul`, `Gather`, `Scatter`, `CopyInto`, `Sort` and `Random` ([`Op::is_primitive`]). The others
        /// are fused: each is defined by primitives ([`crate::definition`]), and a device may decline it.
        ///
        /// An `Op` is plain data that any code may construct, so it may be invalid. [`Op::outputs`] checks
        /// it: counts, dtypes, shapes, axes and windows fit each other and no size overflows. A device with
        /// `unsafe` kernels calls it before it computes.
        ///
        /// # Example
        /// ```
        /// use teeny_core::{Op, Reference, Result, Tensor};
        /// # fn main() -> Result<()> {
        /// let device = Reference::new();
        /// let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], &device)?; // (2, 2)
        /// let op = Op::Matmul { lhs: &x, rhs: &x };
        /// assert_eq!((op.name(), op.cost()?.flops), ("matmul", 16));
        /// let y = op.tensor(x.device())?; // (2, 2)
        /// assert_eq!(y.to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
        /// # Ok(()) }
        /// ```
        #[non_exhaustive]
        pub enum Op<'a> {
            $(
                $(#[$doc])*
                $variant {
                    $($(#[$operand_doc])* $operand: $operand_type,)*
                    $($(#[$attribute_doc])* $attribute: $attribute_type,)*
                    $($(#[$run_time_doc])* $run_time: $run_time_type,)*
                },
            )*
            /// [`Op::Elementwise`] of one or two inputs, written over the elements of one of them.
            /// Its one output is `storage` itself, so [`Op::run`] returns no storage. A device
            /// declines if the storage has another owner, or if new storage is as fast.
            ElementwiseInPlace {
                /// The scalar program, of one output.
                kernel: &'a Arc<Kernel>,
                /// All elements of the overwritten input: row-major, of `shape`, of the output's
                /// dtype.
                storage: &'a mut StorageRef,
                /// Which input of the kernel `storage` is: 0 or 1.
                input_index: usize,
                /// The other input, of `shape`.
                other: Option<&'a Tensor>,
                /// Values of the kernel's run-time parameters.
                params: &'a [Scalar],
                /// The shape of both.
                shape: &'a Shape,
            },
        }

        /// The variant of an [`Op`] and its attributes, without operands and without what differs
        /// from one run to the next ([`RuntimeArgs`]). Two that are equal do the same work. `'a` is
        /// the lifetime in the types of the table; nothing is borrowed.
        #[derive(Clone, PartialEq)]
        #[doc(hidden)]
        pub enum RecordedOp<'a> {
            $(
                $variant {
                    $($($kept: <$operand_type as Operand<'a>>::Kept,)?)*
                    $($attribute: <$attribute_type as Attribute>::Owned,)*
                },
            )*
        }

        // A row's expressions use some of its fields; an op without operands takes none.
        #[allow(unused_variables, unused_mut)]
        impl<'a> Op<'a> {
            /// The op's name. For a kernel of one operation, the name of that operation, otherwise
            /// `kernel`.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Op::$variant { $($operand,)* $($attribute,)* $($run_time,)* } => $name,)*
                    Op::ElementwiseInPlace { kernel, .. } => kernel_name(kernel),
                }
            }

            /// True for the ops that every device must execute.
            pub fn is_primitive(&self) -> bool {
                match self {
                    $(Op::$variant { .. } => requests!(@primitive $tier),)*
                    Op::ElementwiseInPlace { .. } => false,
                }
            }

            /// True for ops that only move, choose or draw elements: they compute none.
            pub(crate) fn only_moves(&self) -> bool {
                match self {
                    $(Op::$variant { $($operand,)* $($attribute,)* $($run_time,)* } => $moves,)*
                    Op::ElementwiseInPlace { .. } => false,
                }
            }

            /// Floating-point operations by the op's definition. The op is valid.
            pub(super) fn flops(&self) -> u64 {
                let $request = self;
                match self {
                    $(Op::$variant { $($operand,)* $($attribute,)* $($run_time,)* } => $flops,)*
                    Op::ElementwiseInPlace { kernel, shape, .. } => {
                        arithmetic(kernel) * shape.numel() as u64
                    }
                }
            }

            /// The names of [`Op::operands`], for messages; the last one repeats for further
            /// operands.
            pub fn operand_names(&self) -> &'static [&'static str] {
                match self {
                    $(Op::$variant { $($operand,)* $($attribute,)* $($run_time,)* } => {
                        requests!(@names $($operand),* $(= $names)?)
                    })*
                    Op::ElementwiseInPlace { .. } => &["other"],
                }
            }

            /// The tensors that the op reads, without the storage it owns (a destination or an
            /// overwritten input).
            pub fn operands(&self) -> Operands<'a> {
                let mut all = Operands::List(&[]);
                match self {
                    $(Op::$variant { $($operand,)* .. } => { $($operand.list(&mut all);)* })*
                    Op::ElementwiseInPlace { other, .. } => other.list(&mut all),
                }
                all
            }

            /// The same op on other operands, one for each of [`Op::operands`] and in their order:
            /// how a wrapper passes an op on. Storage that the op owns moves to the new op: the
            /// destination of [`Op::CopyInto`] is taken.
            ///
            /// # Panics
            /// If `operands` has another length than [`Op::operands`].
            pub fn with_operands<'b>(&'b mut self, operands: &'b [&'b Tensor]) -> Op<'b> {
                let count = self.operands().len();
                assert_eq!(operands.len(), count, "an op on {count} operands");
                match self {
                    $(Op::$variant { $($operand,)* $($attribute,)* $($run_time,)* } => {
                        let required = 0 $(+ <$operand_type as Operand<'a>>::REQUIRED)*;
                        let mut rest = Rest::new(operands, required);
                        Op::$variant {
                            $($operand: <$operand_type as Operand<'a>>::from_rest($operand.kept(), &mut rest),)*
                            $($attribute: $attribute.again(),)*
                            $($run_time: $run_time.pass_on(),)*
                        }
                    })*
                    Op::ElementwiseInPlace { kernel, storage, input_index, other, params, shape } => {
                        Op::ElementwiseInPlace {
                            kernel,
                            storage,
                            input_index: *input_index,
                            other: other.map(|_| operands[0]),
                            params,
                            shape,
                        }
                    }
                }
            }
        }

        #[allow(unused_variables, unused_mut)]
        impl<'a> RecordedOp<'a> {
            /// The name of the variant, and each attribute with its name: for code that changes
            /// attributes by their type.
            pub fn fields(&mut self) -> (&'static str, Vec<(&'static str, &mut dyn Any)>) {
                match self {
                    $(RecordedOp::$variant { $($($kept,)?)* $($attribute,)* } => {
                        let kept = [$($((stringify!($kept), $kept as &mut dyn Any),)?)*];
                        let all = [$((stringify!($attribute), $attribute as &mut dyn Any),)*];
                        (stringify!($variant), kept.into_iter().chain(all).collect())
                    })*
                }
            }

            /// The attributes of `op`. `None` for [`Op::ElementwiseInPlace`], which overwrites
            /// storage that the caller holds.
            pub fn of(op: &Op<'_>) -> Option<RecordedOp<'a>> {
                Some(match op {
                    $(Op::$variant { $($operand,)* $($attribute,)* .. } => RecordedOp::$variant {
                        $($($kept: $operand.kept(),)?)*
                        $($attribute: $attribute.owned(),)*
                    },)*
                    Op::ElementwiseInPlace { .. } => return None,
                })
            }

            /// The op on `operands`, which are as many as it was recorded with, in the order of
            /// [`Op::operands`]. `dst` is the destination of [`Op::CopyInto`].
            pub fn op<'b>(
                &'b self,
                operands: &'b [&'b Tensor],
                args: RuntimeArgs<'b>,
                mut dst: Option<StorageRef>,
            ) -> Op<'b> {
                match self {
                    $(RecordedOp::$variant { $($($kept,)?)* $($attribute,)* } => {
                        let required = 0 $(+ <$operand_type as Operand<'a>>::REQUIRED)*;
                        let mut rest = Rest::new(operands, required);
                        Op::$variant {
                            $($operand: <$operand_type as Operand<'a>>::from_rest(
                                requests!(@kept $($kept)?), &mut rest,
                            ),)*
                            $($attribute: <$attribute_type as Attribute>::lent($attribute),)*
                            $($run_time: <$run_time_type as RunTime>::given(args, &mut dst),)*
                        }
                    })*
                }
            }
        }

        impl<'a> RuntimeArgs<'a> {
            /// The arguments of `op`.
            pub fn of(op: &Op<'a>) -> RuntimeArgs<'a> {
                let mut args = RuntimeArgs::default();
                match op {
                    $(Op::$variant { $($run_time,)* .. } => {
                        $($run_time.note(&mut args);)*
                    })*
                    Op::ElementwiseInPlace { params, .. } => params.note(&mut args),
                }
                args
            }
        }
    };
}

pub(super) use requests;
