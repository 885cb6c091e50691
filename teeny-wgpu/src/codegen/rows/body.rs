//! The text of a row program's levels.

use super::plan::{Access, RowsPlan};
use super::reads::{folds, stored, targets};
use crate::codegen::expressions::quad_expression;
use crate::codegen::generator::Scalars;
use crate::codegen::shader::{Shader, shader};
use crate::codegen::types::{self, LANES};
use std::fmt::Write;
use teeny_core::kernel::{Extent, Fold};
use teeny_core::{DType, Kernel, OpCode, Result};

/// The parts of the shader that depend on the program.
pub(super) struct Body {
    pub(super) functions: String,
    pub(super) body: String,
    pub(super) row_stores: String,
}

pub(super) struct Text<'a> {
    pub(super) plan: &'a RowsPlan,
    pub(super) program: &'a Kernel,
    pub(super) levels: Vec<usize>,
    pub(super) extents: Vec<Extent>,
    /// Whether elements are vectors of four.
    pub(super) by_quads: bool,
    pub(super) scalars: Scalars,
    /// The expression of each node that is the length of the row.
    pub(super) lengths: Vec<String>,
}

/// The nodes of one level.
struct Level {
    level: usize,
    /// Computed here, ascending.
    nodes: Vec<usize>,
    /// The arguments of the function after the position: per-row values, inputs, and elements of
    /// earlier levels.
    arguments: Vec<usize>,
    /// The values that the function returns.
    results: Vec<usize>,
    /// The folds of its elements.
    folds: Vec<usize>,
    /// The outputs that it writes.
    stored: Vec<usize>,
}

impl Text<'_> {
    fn dtype(&self, id: usize) -> DType {
        self.program.nodes()[id].dtype
    }

    /// Whether node `id` is an expression of parameters, which is written where it is used.
    fn is_number(&self, id: usize) -> bool {
        matches!(self.program.nodes()[id].op, OpCode::Const(_) | OpCode::Param(_) | OpCode::Length)
    }

    /// The access of the input that node `id` is.
    fn access(&self, id: usize) -> Option<(usize, Access)> {
        let OpCode::Input(i) = self.program.nodes()[id].op else { return None };
        let i = usize::from(i);
        let place = (0..i).filter(|&i| self.program.reads(i)).count();
        Some((i, self.plan.inputs[place]))
    }

    /// Whether node `id` is a variable of the row.
    fn is_of_row(&self, id: usize) -> bool {
        self.extents[id] == Extent::Row || matches!(self.access(id), Some((_, Access::Row)))
    }

    /// The expression of node `id`, whose sources are named by their numbers.
    fn expression(&self, id: usize) -> String {
        let node = &self.program.nodes()[id];
        match node.op {
            OpCode::Index => "i32(r)".to_string(),
            OpCode::Length => self.lengths[id].clone(),
            OpCode::Input(i) => format!("load_x{i}(base.x{i})"),
            OpCode::At => {
                let OpCode::Input(i) = self.program.nodes()[node.src[0] as usize].op else {
                    return String::new();
                };
                let along =
                    format!("along_addresses(axis_position(v{}, row).at).x{i}", node.src[1]);
                format!("load_x{i}(base.x{i} + {along})")
            }
            _ => self.scalars.expression(self.program, id),
        }
    }

    /// The levels that are visited, and where each element is computed.
    fn levels(&self) -> Vec<Level> {
        let count = self.levels.iter().copied().max().unwrap_or(0) + 1;
        let mut known = vec![false; self.levels.len()];
        let mut all: Vec<Level> = Vec::new();
        for level in 0..count {
            let results = targets(self.program, &self.levels, level);
            if results.is_empty() {
                continue;
            }
            let mut needed = vec![false; self.levels.len()];
            results.iter().for_each(|&id| needed[id] = true);
            let (mut nodes, mut arguments) = (Vec::new(), Vec::new());
            for id in (0..needed.len()).rev() {
                if needed[id] {
                    self.visit(id, &known, &mut needed, &mut nodes, &mut arguments);
                }
            }
            nodes.sort_unstable();
            arguments.sort_unstable();
            if self.plan.held > 0 {
                let loaded = arguments.iter().filter(|&&id| self.access(id).is_some());
                let computed = nodes.iter().filter(|&&id| !self.is_number(id));
                loaded.chain(computed).for_each(|&id| known[id] = true);
            }
            let folds = folds(self.program, &self.levels, level);
            let stored = stored(self.program, &self.levels, level);
            all.push(Level { level, nodes, arguments, results, folds, stored });
        }
        // A level returns the values that later levels take.
        for later in 0..all.len() {
            for id in all[later].arguments.clone() {
                if let Some(level) = all[..later].iter_mut().find(|l| l.nodes.contains(&id))
                    && !level.results.contains(&id)
                {
                    level.results.push(id);
                }
            }
        }
        all
    }

    /// Sorts the needed node `id` into nodes and arguments, and marks its sources.
    fn visit(
        &self,
        id: usize,
        known: &[bool],
        needed: &mut [bool],
        nodes: &mut Vec<usize>,
        arguments: &mut Vec<usize>,
    ) {
        if self.is_number(id) {
            return nodes.push(id);
        }
        if self.is_of_row(id) || known[id] || self.access(id).is_some() {
            return arguments.push(id);
        }
        nodes.push(id);
        self.program.nodes()[id].sources().iter().for_each(|&s| needed[s as usize] = true);
    }

    pub(super) fn body(&self) -> Result<Body> {
        let (mut functions, mut body) = (String::new(), String::new());
        let levels = self.levels();
        let mut arrays: Vec<String> = Vec::new();
        let count = self.levels.iter().copied().max().unwrap_or(0) + 1;
        let mut loaded: Vec<usize> = Vec::new();
        for number in 0..count {
            self.row_values(number, &mut body);
            let Some(level) = levels.iter().find(|l| l.level == number) else { continue };
            self.level_function(level, &mut functions);
            if !level.folds.is_empty() {
                self.fold_functions(level, &mut arrays, &mut functions)?;
            }
            body += &self.level_text(level, &levels, &mut loaded)?;
            for (k, &id) in level.folds.iter().enumerate() {
                let (dtype, value) = (self.dtype(id), format!("whole{number}.a{k}"));
                let value = if dtype.is_half() { value } else { types::stored(dtype, &value) };
                let _ = writeln!(body, "    let v{id} = {value};");
            }
        }
        let mut row_stores = String::new();
        for (o, &id) in self.program.outputs().iter().enumerate() {
            if self.program.output_extent(o) == Extent::Row {
                let value = types::accumulated(self.program.output_dtype(o), &format!("v{id}"));
                let _ = writeln!(row_stores, "        out{o}[row] = {value};");
            }
        }
        Ok(Body { functions, body, row_stores })
    }

    /// The values of the row that depend on folds of this level and before.
    fn row_values(&self, level: usize, body: &mut String) {
        for id in 0..self.levels.len() {
            let is_fold = matches!(self.program.nodes()[id].op, OpCode::Fold(_));
            if self.levels[id] == level && self.is_of_row(id) && !is_fold {
                let _ = writeln!(body, "    let v{id} = {};", self.expression(id));
            }
        }
    }

    fn level_function(&self, level: &Level, text: &mut String) {
        let n = level.level;
        let quads = self.by_quads;
        let member = |&id: &usize| match quads {
            true => format!("v{id}: vec4<f32>"),
            false => format!("v{id}: {}", types::value(self.dtype(id))),
        };
        let members: Vec<String> = level.results.iter().map(member).collect();
        let arguments: String =
            level.arguments.iter().map(|id| format!(", {}", member(id))).collect();
        let _ = writeln!(text, "struct Level{n} {{ {} }}", members.join(", "));
        let _ = writeln!(text, "fn level{n}(r: u32{arguments}) -> Level{n} {{");
        for &id in &level.nodes {
            let node = &self.program.nodes()[id];
            let [a, b] = [node.src[0], node.src[1]].map(|source| format!("v{source}"));
            let expression = match quad_expression(node.op, &a, &b) {
                Some(expression) if quads => expression,
                _ if quads => format!("vec4<f32>({})", self.expression(id)),
                _ => self.expression(id),
            };
            let _ = writeln!(text, "    let v{id} = {expression};");
        }
        let results: Vec<String> = level.results.iter().map(|id| format!("v{id}")).collect();
        let _ = writeln!(text, "    return Level{n}({});\n}}", results.join(", "));
    }

    /// The functions of the folds of a level: `of{n}`, `neutral{n}` and `combine{n}` work on the
    /// state of a thread, `folds{n}` makes one value per fold of it, and `fold{n}` combines all
    /// threads.
    fn fold_functions(
        &self,
        level: &Level,
        arrays: &mut Vec<String>,
        text: &mut String,
    ) -> Result<()> {
        let n = level.level;
        let kinds: Vec<(Fold, DType)> = level
            .folds
            .iter()
            .filter_map(|&id| match self.program.nodes()[id].op {
                OpCode::Fold(fold) => Some((fold, self.dtype(id))),
                _ => None,
            })
            .collect();
        let members: Vec<&str> = kinds.iter().map(|&(_, t)| types::accumulator(t)).collect();
        let signature = members.join("_");
        let ty = format!("Folds_{signature}");
        let parts = format!("parts_{signature}");
        let reused = arrays.contains(&signature);
        if !reused {
            let members: Vec<String> =
                members.iter().enumerate().map(|(k, t)| format!("a{k}: {t}")).collect();
            let _ = writeln!(text, "struct {ty} {{ {} }}", members.join(", "));
            if self.plan.team > 1 {
                let _ = writeln!(text, "var<workgroup> {parts}: array<{ty}, THREADS>;");
            }
            arrays.push(signature);
        }
        let each = |f: &dyn Fn(usize, Fold, DType) -> String| -> String {
            let all = kinds.iter().enumerate().map(|(k, &(fold, dtype))| f(k, fold, dtype));
            all.collect::<Vec<_>>().join(", ")
        };
        let values = each(&|k, _, dtype| {
            let source = self.program.nodes()[level.folds[k]].src[0];
            types::accumulated(dtype, &format!("e.v{source}"))
        });
        let neutrals = each(&|_, fold, dtype| neutral(fold, dtype));
        let both =
            |fold, dtype, k: usize| combined(fold, dtype, &format!("a.a{k}"), &format!("b.a{k}"));
        let combine = each(&|k, fold, dtype| both(fold, dtype, k));
        let _ = match self.by_quads {
            false => writeln!(
                text,
                "fn of{n}(e: Level{n}) -> {ty} {{ return {ty}({values}); }}\n\
                 fn neutral{n}() -> {ty} {{ return {ty}({neutrals}); }}\n\
                 fn combine{n}(a: {ty}, b: {ty}) -> {ty} {{ return {ty}({combine}); }}\n\
                 fn folds{n}(a: {ty}) -> {ty} {{ return a; }}"
            ),
            true => {
                let quads = format!("Quads{n}");
                let members = each(&|k, _, _| format!("a{k}: vec4<f32>"));
                let neutrals =
                    each(&|_, fold, dtype| format!("vec4<f32>({})", neutral(fold, dtype)));
                let combine_quads = each(&|k, fold, dtype| match fold {
                    Fold::Max => format!("max4_f32(a.a{k}, b.a{k})"),
                    Fold::Min => format!("min4_f32(a.a{k}, b.a{k})"),
                    _ => both(fold, dtype, k),
                });
                let folds = each(&|k, fold, dtype| {
                    let [x, y, z, w] = ["x", "y", "z", "w"].map(|lane| format!("a.a{k}.{lane}"));
                    let (low, high) =
                        (combined(fold, dtype, &x, &y), combined(fold, dtype, &z, &w));
                    combined(fold, dtype, &format!("({low})"), &format!("({high})"))
                });
                writeln!(
                    text,
                    "struct {quads} {{ {members} }}\n\
                     fn of{n}(e: Level{n}) -> {quads} {{ return {quads}({values}); }}\n\
                     fn neutral{n}() -> {quads} {{ return {quads}({neutrals}); }}\n\
                     fn combine{n}(a: {quads}, b: {quads}) -> {quads} {{ \
                     return {quads}({combine_quads}); }}\n\
                     fn folds{n}(a: {quads}) -> {ty} {{ return {ty}({folds}); }}\n\
                     fn join{n}(a: {ty}, b: {ty}) -> {ty} {{ return {ty}({combine}); }}"
                )
            }
        };
        let name = format!("fold{n}");
        let combine = format!("{}{n}", if self.by_quads { "join" } else { "combine" });
        let reduction = |shader: Shader| {
            let shader = shader.text("name", &name).text("value", &ty).text("combine", &combine);
            shader.text("parts", &parts).flag("reused", reused).text_of()
        };
        let RowsPlan { threads, team, subgroups, .. } = *self.plan;
        let reduction = match team {
            1 => format!("fn {name}(thread: u32, own: {ty}) -> {ty} {{ return own; }}\n"),
            _ if subgroups => {
                let across = each(&|k, fold, dtype| across(fold, dtype, &format!("own.a{k}")));
                let _ =
                    writeln!(text, "fn across{n}(own: {ty}) -> {ty} {{ return {ty}({across}); }}");
                let shader = shader!("workgroup_reduce_subgroups");
                reduction(shader.text("across", format!("across{n}")))?
            }
            _ => reduction(shader!("workgroup_reduce").number("threads", threads))?,
        };
        *text += &reduction;
        Ok(())
    }

    /// The loop of a level. `loaded` are the inputs that are in registers.
    fn level_text(
        &self,
        level: &Level,
        levels: &[Level],
        loaded: &mut Vec<usize>,
    ) -> Result<String> {
        let held = self.plan.held;
        let copies: Vec<String> = match held {
            0 => vec![String::new()],
            _ => (0..held).map(|g| g.to_string()).collect(),
        };
        let n = level.level;
        let (mut variables, mut elements) = (Vec::new(), Vec::new());
        let (mut folded, mut stores) = (Vec::new(), Vec::new());
        for g in &copies {
            let (mut names, mut text) = (String::new(), String::new());
            for &id in &level.arguments {
                if let Some((i, access)) = self.access(id)
                    && access != Access::Row
                    && !loaded.contains(&id)
                {
                    self.load(i, access, g, &mut names, &mut text);
                }
            }
            let lanes = if self.by_quads { 1 } else { self.plan.lanes };
            for l in 0..lanes {
                let argument = |&id: &usize| match self.access(id) {
                    _ if self.is_of_row(id) && self.by_quads => format!(", vec4<f32>(v{id})"),
                    _ if self.is_of_row(id) => format!(", v{id}"),
                    Some((i, _)) if self.by_quads => {
                        let lanes = [0, 1, 2, 3].map(|l| format!("l{i}_{g}_{l}"));
                        format!(", vec4<f32>({})", lanes.join(", "))
                    }
                    Some((i, _)) => format!(", l{i}_{g}_{l}"),
                    None => {
                        let from = levels.iter().find(|l| l.nodes.contains(&id));
                        format!(", e{}_{g}_{l}.v{id}", from.map_or(0, |l| l.level))
                    }
                };
                let arguments: String = level.arguments.iter().map(argument).collect();
                let call = format!("level{n}(q{g} * LANES + {l}u{arguments})");
                let ty = format!("Level{n}");
                self.variable(&format!("e{n}_{g}_{l}"), &ty, &call, &mut names, &mut text);
            }
            variables.push(names);
            elements.push(text);
            folded.push(match lanes {
                LANES => format!(
                    "combine{n}(combine{n}(of{n}(e{n}_{g}_0), of{n}(e{n}_{g}_1)), \
                     combine{n}(of{n}(e{n}_{g}_2), of{n}(e{n}_{g}_3)))"
                ),
                _ => format!("of{n}(e{n}_{g}_0)"),
            });
            let mut text = String::new();
            for &o in &level.stored {
                let (id, dtype) = (self.program.outputs()[o], self.program.output_dtype(o));
                let value = |l: usize| match self.by_quads {
                    true => format!("e{n}_{g}_0.v{id}.{}", ["x", "y", "z", "w"][l]),
                    false => format!("e{n}_{g}_{l}.v{id}"),
                };
                let address = format!("base.y + at{g}.y");
                let _ = match self.plan.lanes {
                    LANES => {
                        let v: [String; LANES] = std::array::from_fn(value);
                        let v = [&v[0][..], &v[1], &v[2], &v[3]];
                        let place = self.group("y", g);
                        let store = types::store_quad(dtype, &format!("out{o}"), &place, v);
                        writeln!(text, "        {store}")
                    }
                    _ => {
                        let value = types::accumulated(dtype, &value(0));
                        writeln!(text, "        out{o}[{address}] = {value};")
                    }
                };
            }
            stores.push(text);
        }
        if held > 0 {
            loaded.extend(level.arguments.iter().filter(|&&id| self.access(id).is_some()));
        }
        shader!("rows_level")
            .number("level", n)
            .number("count", copies.len())
            .number("lanes", self.plan.lanes)
            .list("variables", variables)
            .list("elements", elements)
            .list("folded", folded)
            .list("stores", stores)
            .flag("held", held > 0)
            .flag("folds", !level.folds.is_empty())
            .text_of()
    }

    /// The number of the group `g` of the row in the view `view` of whole groups.
    fn group(&self, view: &str, g: &str) -> String {
        match self.plan.along {
            // neighbours from the first element on
            1 => format!("(base.{view} >> 2u) + q{g}"),
            _ => format!("(base.{view} + at{g}.{view}) >> 2u"),
        }
    }

    /// Defines the variable `name` of type `ty` as `value`. Where rows stay in registers, `names`
    /// declares it and `text` assigns it, since the assignment has a condition.
    fn variable(&self, name: &str, ty: &str, value: &str, names: &mut String, text: &mut String) {
        let _ = match self.plan.held {
            0 => writeln!(text, "    let {name} = {value};"),
            _ => writeln!(names, "    var {name}: {ty};")
                .and_then(|()| writeln!(text, "    {name} = {value};")),
        };
    }

    /// The loads of input `i` for the group `g`: the variables `l{i}_{g}_{lane}`.
    fn load(&self, i: usize, access: Access, g: &str, names: &mut String, text: &mut String) {
        let (dtype, lanes) = (self.program.inputs()[i], self.plan.lanes);
        let address = format!("base.x{i} + at{g}.x{i}");
        let values: Vec<String> = if access == Access::Quads {
            let (group, word) = (format!("g{i}_{g}"), format!("w{i}_{g}"));
            let (load, values) = types::load_quad(dtype, &format!("x{i}"), &group, &word);
            let place = self.group(&format!("x{i}"), g);
            let _ = writeln!(text, "    let {group} = {place};\n    {load}");
            values.into()
        } else {
            let step = format!("params.x{i}_along_strides_{}", self.plan.along - 1);
            let at =
                |l| if l == 0 { address.clone() } else { format!("{address} + {l}u * {step}") };
            (0..lanes).map(|l| format!("load_x{i}({})", at(l))).collect()
        };
        for (l, value) in values.iter().enumerate() {
            self.variable(&format!("l{i}_{g}_{l}"), types::value(dtype), value, names, text);
        }
    }
}

/// The neutral value of a fold, of the accumulation type.
fn neutral(fold: Fold, dtype: DType) -> String {
    match fold {
        Fold::Sum => types::zero(types::accumulation(dtype)).to_string(),
        Fold::Prod => format!("{}(1)", types::accumulator(dtype)),
        Fold::Max => types::lowest(dtype).to_string(),
        Fold::Min => types::highest(dtype).to_string(),
        Fold::Any => "0u".to_string(),
        Fold::All => "1u".to_string(),
    }
}

/// The expression of `a` and `b` combined.
fn combined(fold: Fold, dtype: DType, a: &str, b: &str) -> String {
    match fold {
        Fold::Sum => format!("{a} + {b}"),
        Fold::Prod => format!("{a} * {b}"),
        Fold::Max => types::larger(dtype, a, b),
        Fold::Min => types::smaller(dtype, a, b),
        Fold::Any => format!("{a} | {b}"),
        Fold::All => format!("{a} & {b}"),
    }
}

/// The expression of the values `own` of a subgroup combined.
fn across(fold: Fold, dtype: DType, own: &str) -> String {
    let is_float = types::accumulation(dtype).is_float();
    match fold {
        Fold::Sum => format!("subgroupAdd({own})"),
        Fold::Prod => format!("subgroupMul({own})"),
        Fold::Max if is_float => format!("subgroup_largest({own})"),
        Fold::Min if is_float => format!("subgroup_smallest({own})"),
        Fold::Max => format!("subgroupMax({own})"),
        Fold::Min => format!("subgroupMin({own})"),
        Fold::Any => format!("subgroupOr({own})"),
        Fold::All => format!("subgroupAnd({own})"),
    }
}
