//! Every kind of shader that this crate writes, validated by naga and translated to SPIR-V, MSL and
//! HLSL: plain unit tests, no adapter needed.

use crate::codegen::elementwise::{Access, ElementwisePlan};
use crate::codegen::elementwise_many::ElementwiseManyPlan;
use crate::codegen::epilogue::EpiloguePlan;
use crate::codegen::types::{LANES, OCTET};
use crate::ops::attention::plan::{
    AttentionKind, AttentionPlan, Mask as AttentionMask, Tile as AttentionTile,
};
use crate::ops::cat::CatPlan;
use crate::ops::matmul::product::{Fetch, Staging};
use crate::ops::matmul::select::{AlongK, Cooperative, MatmulKernel, Tile};
use crate::ops::pooling::Pool;
use crate::ops::radix_sort::RadixStep;
use crate::ops::random::DistributionKind;
use crate::ops::reduce::shader::ReducePlan;
use crate::ops::scan::Pass;
use crate::ops::software::matmul::Subgroups;
use crate::ops::{
    attention, conv, copy, gather, matmul, pooling, quant, radix_sort, random, reduce, scan,
    scatter, sort, transpose,
};
use teeny_core::{Builder, DType, Expr, Kernel, OpCode, QuantType, ReduceOp, ScanOp, ScatterMode};

/// Validates the text and translates it for all platforms that have its types.
pub(crate) fn accept(label: &str, source: &str, types: &[DType]) {
    let module = naga::front::wgsl::parse_str(source)
        .unwrap_or_else(|e| panic!("{label}: {}\n{source}", e.emit_to_string(source)));
    let capabilities = naga::valid::Capabilities::FLOAT64
        | naga::valid::Capabilities::SHADER_INT64
        | naga::valid::Capabilities::SHADER_FLOAT16
        | naga::valid::Capabilities::COOPERATIVE_MATRIX
        | naga::valid::Capabilities::SUBGROUP;
    let mut validator =
        naga::valid::Validator::new(naga::valid::ValidationFlags::all(), capabilities);
    validator
        .subgroup_stages(naga::valid::ShaderStages::COMPUTE)
        .subgroup_operations(naga::valid::SubgroupOperationSet::all());
    let info = validator
        .validate(&module)
        .unwrap_or_else(|e| panic!("{label}: {}\n{source}", e.emit_to_string(source)));
    let spirv = naga::back::spv::Options { lang_version: (1, 3), ..Default::default() };
    naga::back::spv::write_vec(&module, &info, &spirv, None)
        .unwrap_or_else(|e| panic!("{label} to SPIR-V: {e}"));
    // Shader model 6 has no cooperative matrices.
    if !source.contains("enable wgpu_cooperative_matrix;") {
        translate_to_hlsl(label, &module, &info);
    }
    if !types.contains(&DType::F64) {
        let msl = naga::back::msl::Options { lang_version: (2, 4), ..Default::default() };
        naga::back::msl::write_string(&module, &info, &msl, &Default::default())
            .unwrap_or_else(|e| panic!("{label} to MSL: {e}"));
    }
}

fn translate_to_hlsl(label: &str, module: &naga::Module, info: &naga::valid::ModuleInfo) {
    let hlsl = naga::back::hlsl::Options {
        shader_model: naga::back::hlsl::ShaderModel::V6_0,
        ..Default::default()
    };
    let stage = naga::back::hlsl::PipelineOptions::default();
    let mut text = String::new();
    naga::back::hlsl::Writer::new(&mut text, &hlsl, &stage)
        .write(module, info, None)
        .unwrap_or_else(|e| panic!("{label} to HLSL: {e}"));
}

/// A kernel of `op` on operands of type `dtype`.
fn kernel(op: OpCode, dtype: DType) -> Kernel {
    let builder = Builder::new();
    let inputs: Vec<Expr<'_>> = (0..op.arity()).map(|_| builder.input(dtype)).collect();
    let y = if op.arity() == 1 { inputs[0].unary(op) } else { inputs[0].binary(op, inputs[1]) };
    builder.finish(&[y]).unwrap()
}

#[test]
fn every_operation_in_every_type() {
    for dtype in DType::ALL {
        for op in OpCode::UNARY.into_iter().chain(OpCode::BINARY).filter(|op| op.accepts(dtype)) {
            let kernel = kernel(op, dtype);
            let inputs = (0..op.arity())
                .map(|i| (if i == 0 { Access::Group } else { Access::Strided }, i))
                .collect();
            let plan = ElementwisePlan { outputs: 1, lanes: LANES, axes: 2, inputs };
            accept(&format!("{} {dtype}", op.name()), &plan.wgsl(&kernel).unwrap(), &[dtype]);
        }
    }
}

#[test]
fn every_cast_and_every_access() {
    for from in DType::ALL {
        for to in DType::ALL {
            let kernel =
                Kernel::build([from], [to], |[x], [p]| [x.cast(to), x.cast(to).eq(p)]).unwrap();
            let octets = from.size() <= 4 && to.size() <= 4;
            let all_lanes = if octets { &[LANES, OCTET][..] } else { &[LANES] };
            for (access, &lanes) in Access::ALL
                .into_iter()
                .flat_map(|access| all_lanes.iter().map(move |l| (access, l)))
            {
                let plan = ElementwisePlan {
                    outputs: 3,
                    lanes,
                    axes: if access.has_strides() { 3 } else { 0 },
                    inputs: vec![(access, 0)],
                };
                accept(
                    &format!("{from} to {to} {access:?} by {lanes}"),
                    &plan.wgsl(&kernel).unwrap(),
                    &[from, to],
                );
            }
        }
    }
}

#[test]
fn reductions_scans_sorts_and_positions() {
    for dtype in DType::ALL {
        let identity = Kernel::build([dtype], [], |[x], []| [x]).unwrap();
        for op in ReduceOp::ALL
            .into_iter()
            .filter(|op| matches!(op, ReduceOp::Any | ReduceOp::All) == (dtype == DType::Bool))
        {
            for (team, kept, reduced) in
                [(reduce::shader::THREADS, 0, 1), (1, 2, 0), (reduce::shader::TEAM, 3, 2)]
            {
                let vectors = reduced == 1 && dtype.size() <= 4 && !op.is_arg();
                for lanes in [1, LANES, OCTET].into_iter().take(1 + 2 * vectors as usize) {
                    let plan = ReducePlan { op, kept, reduced, team, lanes };
                    let text = plan.wgsl(&identity).unwrap();
                    accept(&format!("{op:?} {dtype} by {lanes}"), &text, &[dtype]);
                }
            }
        }
        accept(&format!("sort {dtype}"), &sort::block_wgsl(2, dtype, true).unwrap(), &[dtype]);
        accept(&format!("merge {dtype}"), &sort::merge_wgsl(dtype, false).unwrap(), &[dtype]);
        for index in [DType::U8, DType::I32, DType::U32, DType::I64] {
            for pairs in [false, dtype.is_half()] {
                let text = gather::wgsl(2, dtype, index, pairs).unwrap();
                accept(&format!("gather {dtype} {index} {pairs}"), &text, &[dtype]);
            }
        }
        if dtype != DType::Bool {
            for op in [ScanOp::Sum, ScanOp::Prod] {
                for pass in [Pass::Lines, Pass::Chunks, Pass::Totals, Pass::CarriedChunks] {
                    accept(
                        &format!("scan {pass:?} {dtype}"),
                        &scan::wgsl(pass, 2, dtype, op).unwrap(),
                        &[dtype],
                    );
                }
            }
            for mode in [ScatterMode::Set, ScatterMode::Add, ScatterMode::Max, ScatterMode::Min] {
                accept(
                    &format!("pull {mode:?} {dtype}"),
                    &scatter::shader::wgsl(2, dtype, DType::I64, mode).unwrap(),
                    &[dtype],
                );
                accept(
                    &format!("lines {mode:?} {dtype}"),
                    &scatter::shader::lines_wgsl(2, dtype, DType::I64, mode).unwrap(),
                    &[dtype],
                );
                accept(
                    &format!("join {mode:?} {dtype}"),
                    &scatter::shader::runs_wgsl(1, 2, dtype, mode).unwrap(),
                    &[dtype],
                );
                for long in [false, true] {
                    accept(
                        &format!("collect {mode:?} {dtype}"),
                        &scatter::shader::collect_wgsl(2, dtype, mode, long).unwrap(),
                        &[dtype],
                    );
                }
            }
        }
    }
}

#[test]
fn the_steps_of_a_sorted_scatter() {
    for index in [DType::U8, DType::I8, DType::U32, DType::I32, DType::U64, DType::I64] {
        accept(&format!("keys {index}"), &scatter::shader::keys_wgsl(2, index).unwrap(), &[index]);
    }
    let place = |first| RadixStep::Place { first };
    for step in [RadixStep::Count, RadixStep::Offsets, place(true), place(false)] {
        accept(&format!("order {step:?}"), &radix_sort::wgsl(step).unwrap(), &[]);
    }
    accept("bounds", &scatter::shader::bounds_wgsl().unwrap(), &[]);
}

#[test]
fn copies_random_numbers_and_softmax() {
    for (unit, words) in [(DType::U8, 1), (DType::U16, 1), (DType::U32, 1), (DType::U32, 2)] {
        accept("copy", &copy::wgsl(2, unit, words).unwrap(), &[]);
    }
    for size in [1, 2, 4, 8] {
        accept(
            "transpose",
            &transpose::wgsl_of(transpose::Through::WorkgroupMemory, 2, size).unwrap(),
            &[],
        );
        accept(
            "transpose in registers",
            &transpose::wgsl_of(transpose::Through::Registers, 2, 4).unwrap(),
            &[],
        );
    }
    for dtype in DType::ALL {
        let kinds: &[DistributionKind] = match dtype {
            t if t.is_float() => &[DistributionKind::Uniform, DistributionKind::Normal],
            DType::Bool => &[DistributionKind::Bernoulli],
            _ => &[DistributionKind::Integer],
        };
        for &kind in kinds {
            accept(&format!("{kind:?} {dtype}"), &random::wgsl(kind, dtype).unwrap(), &[dtype]);
        }
    }
}

#[test]
fn kernels_behind_products() {
    for dtype in [DType::I8, DType::I32, DType::BF16, DType::F32, DType::F64] {
        let kernel = Kernel::build([dtype, dtype, DType::Bool], [dtype], |[y, b, c], [p]| {
            let sum = y + b * p;
            [c.where_cond(sum, y), sum.lt(b)]
        });
        let kernel = kernel.unwrap();
        for axes in [0, 2] {
            let plan = Some(EpiloguePlan { kernel: &kernel, axes, pairs: false });
            let in_pairs = Some(EpiloguePlan { kernel: &kernel, axes, pairs: true });
            let tiled =
                MatmulKernel::Tiled { tile: Tile::Small, lhs: Fetch::AlongK, rhs: Fetch::Across };
            let along = AlongK { teams: true, quads: dtype.size() <= 4, down: true };
            for product in [tiled, MatmulKernel::GemvAlongK(along), MatmulKernel::Naive] {
                let text = matmul::wgsl(product, 2, dtype, plan, false).unwrap();
                accept(&format!("{product:?} {dtype} {axes}"), &text, &[dtype]);
            }
            let text = matmul::wgsl(tiled, 2, dtype, in_pairs, false).unwrap();
            accept(&format!("pairs of {tiled:?} {dtype} {axes}"), &text, &[dtype]);
            if dtype.is_float() {
                for product in [conv::ConvKernel::Direct, conv::ConvKernel::Tiled(Tile::Small)] {
                    let text = conv::wgsl(conv::ConvKind::Forward, product, 2, dtype, plan, false)
                        .unwrap();
                    accept(&format!("{product:?} {dtype} {axes}"), &text, &[dtype]);
                }
            }
        }
    }
}

#[test]
fn kernels_of_many_tensors() {
    let kernel =
        Kernel::build([DType::F16, DType::F32, DType::U8], [DType::F32], |[a, b, c], [p]| {
            let sum = a.cast(DType::F32) * p + b;
            [sum, sum.cast(DType::F16), c.cast(DType::F32) - b]
        });
    let kernel = kernel.unwrap();
    for inputs in [
        vec![vec![0, 1, 2], vec![3; 3], vec![4, 5, 4]],
        vec![vec![0], vec![1], vec![2]],
        vec![vec![0; 20], (1..21).collect(), vec![21; 20]],
    ] {
        for lanes in [LANES, OCTET] {
            let (inputs, written) = (inputs.clone(), vec![DType::F32, DType::F16]);
            let plan = ElementwiseManyPlan { lanes, inputs, written };
            accept(&format!("{plan:?}"), &plan.wgsl(&kernel).unwrap(), &[]);
        }
    }
}

#[test]
fn every_cat() {
    for unit in [DType::U8, DType::U16, DType::U32] {
        for (tensors, axes, axis) in [(1, 1, 0), (2, 3, 1), (7, 2, 1), (3, 8, 4)] {
            let plan = CatPlan { tensors, axes, axis, unit };
            accept(&format!("{plan:?}"), &plan.wgsl().unwrap(), &[unit]);
        }
    }
}

#[test]
fn every_attention() {
    accept("combine", &attention::plan::combine_wgsl().unwrap(), &[]);
    for dtype in [DType::F16, DType::F32] {
        for kind in [AttentionKind::Forward, AttentionKind::Queries, AttentionKind::Keys] {
            for tile in [AttentionTile::Tall, AttentionTile::Wide, AttentionTile::Few] {
                for (column_quads, quads, packed) in
                    [(8, false, false), (16, true, true), (64, true, false)]
                {
                    let plan = AttentionPlan {
                        kind,
                        dtype,
                        axes: 4,
                        tile,
                        column_quads,
                        quads,
                        packed,
                        mask: AttentionMask::None,
                    };
                    accept(&format!("{plan:?}"), &plan.wgsl().unwrap(), &[dtype]);
                }
            }
        }
    }
}

#[test]
fn every_attention_by_subgroups() {
    for mask in [AttentionMask::None, AttentionMask::Bool, AttentionMask::Added] {
        for column_quads in [8, 16] {
            let plan = AttentionPlan {
                kind: AttentionKind::Forward,
                dtype: DType::F32,
                axes: 4,
                tile: AttentionTile::Subgroup,
                column_quads,
                quads: true,
                packed: true,
                mask,
            };
            accept(&format!("{plan:?}"), &plan.wgsl().unwrap(), &[DType::F32]);
        }
    }
}

#[test]
fn every_kernel_of_a_product() {
    for dtype in DType::ALL.into_iter().filter(|t| *t != DType::Bool) {
        let tiled = |tile, lhs, rhs| MatmulKernel::Tiled { tile, lhs, rhs };
        let mut kernels = vec![
            tiled(Tile::Small, Fetch::AlongK, Fetch::Across),
            MatmulKernel::GemvAcrossK,
            MatmulKernel::Naive,
        ];
        let stagings = [(true, true), (true, false), (false, true), (false, false)]
            .map(|(along, quads)| Staging { along, quads });
        for (lhs, rhs) in stagings.into_iter().flat_map(|l| stagings.map(|r| (l, r))) {
            let columns = if rhs.quads && !rhs.along { 4 } else { 2 };
            if matches!(dtype, DType::F32 | DType::I32 | DType::U32) {
                let kernel = Subgroups { rows: 16, columns, lhs, rhs };
                kernels.push(MatmulKernel::Subgroups(kernel));
            }
        }
        for bits in 0..8 {
            let [teams, quads, down] = [1, 2, 4].map(|bit| bits & bit != 0);
            if !quads || dtype.size() <= 4 {
                kernels.push(MatmulKernel::GemvAlongK(AlongK { teams, quads, down }));
            }
        }
        if dtype.size() <= 4 {
            kernels.extend([
                tiled(Tile::Large, Fetch::AlongK, Fetch::Quads),
                tiled(Tile::Small, Fetch::Quads, Fetch::AlongK),
                tiled(Tile::Flat, Fetch::Across, Fetch::Quads),
            ]);
        }
        for kernel in kernels {
            let is_tiled = matches!(kernel, MatmulKernel::Tiled { .. });
            for packed in [false, is_tiled && dtype.size() < 4] {
                accept(
                    &format!("{kernel:?} {dtype} {packed}"),
                    &matmul::wgsl(kernel, 2, dtype, None, packed).unwrap(),
                    &[dtype],
                );
            }
        }
    }
}

#[test]
fn every_kernel_of_a_product_on_cooperative_matrices() {
    for dtype in [DType::F16, DType::F32] {
        let bias = Kernel::build([dtype, dtype], [], |[y, b], []| [(y + b).relu()]).unwrap();
        for (size, subgroup_threads) in
            [(8, (8, 8)), (8, (4, 64)), (16, (32, 32)), (16, (32, 64)), (16, (128, 128))]
        {
            for bits in 0..16 {
                let staging =
                    |at: u32| Staging { along: bits >> at & 1 == 1, quads: bits >> at & 2 == 2 };
                let kernel =
                    Cooperative { size, subgroup_threads, lhs: staging(0), rhs: staging(2) };
                let plan =
                    (bits == 0).then_some(EpiloguePlan { kernel: &bias, axes: 2, pairs: false });
                let kernel = MatmulKernel::Cooperative(kernel);
                let text = matmul::wgsl(kernel, 2, dtype, plan, false).unwrap();
                accept(&format!("{kernel:?} {dtype}"), &text, &[dtype]);
            }
        }
    }
}

#[test]
fn products_and_rows_of_every_quantised_type() {
    for kind in QuantType::ALL {
        for (rows, groups, teams, unrolled, broadcasts) in [
            (1, 2, 1, 1, false),
            (1, 2, 16, 8, false),
            (1, 1, 8, 1, false),
            (8, 4, 8, 1, false),
            (16, 4, 1, 1, true),
        ] {
            let tile = quant::Tile { rows, groups, teams, unrolled, broadcasts };
            accept(&format!("{kind} {tile:?}"), &quant::product_wgsl(kind, tile).unwrap(), &[]);
        }
        for index in [DType::U8, DType::I32, DType::I64] {
            let text = quant::rows_wgsl(kind, 2, index).unwrap();
            accept(&format!("rows {kind} {index}"), &text, &[index]);
        }
    }
}

#[test]
fn every_convolution_and_pooling() {
    for dtype in [DType::F16, DType::F32, DType::F64] {
        for kind in [conv::ConvKind::Forward, conv::ConvKind::InputGrad, conv::ConvKind::WeightGrad]
        {
            for ndim in 1..=3 {
                let mut kernels =
                    vec![conv::ConvKernel::Direct, conv::ConvKernel::Tiled(Tile::Small)];
                if dtype != DType::F64 {
                    kernels.extend([
                        conv::ConvKernel::Tiled(Tile::Large),
                        conv::ConvKernel::Tiled(Tile::Flat),
                    ]);
                }
                for kernel in kernels {
                    let packs = dtype.is_half() && kernel != conv::ConvKernel::Direct;
                    for packed in [false, packs] {
                        accept(
                            &format!("{kind:?} {kernel:?} {ndim} {dtype} {packed}"),
                            &conv::wgsl(kind, kernel, ndim, dtype, None, packed).unwrap(),
                            &[dtype],
                        );
                    }
                }
            }
        }
    }
    for dtype in DType::ALL.into_iter().filter(|t| *t != DType::Bool) {
        for pool in [Pool::Max, Pool::Mean] {
            if pool == Pool::Max || dtype.is_float() {
                let text = pooling::wgsl(pool, 2, 2, dtype).unwrap();
                accept(&format!("pool {pool:?} {dtype}"), &text, &[dtype]);
            }
            if matches!(dtype, DType::F16 | DType::BF16 | DType::F32) {
                for ndim in [1, 2, 3] {
                    let text = pooling::pairs_wgsl(pool, 2, ndim, dtype).unwrap();
                    accept(&format!("pool pairs {pool:?} {ndim} {dtype}"), &text, &[dtype]);
                }
            }
        }
    }
}
