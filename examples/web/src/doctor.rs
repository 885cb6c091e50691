//! Examines an engine in this browser: a sample of the conformance suite, some steps of
//! fine-tuning, and whether the limits of a tab end in clear errors.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;
use teeny_conformance::{Cell, Suite};
use teeny_core::clock::Instant;
use teeny_core::{ErrorKind, Reference, SortOrder};
use teeny_cpu::Cpu;
use teeny_models::lora::{Lora, LoraOptions, Modules};
use teeny_nn::prelude::*;
use teeny_nn::transformer::{CausalBatch, CausalLm, CausalLmConfig};
use teeny_wgpu::{Options, Wgpu};

/// A tensor whose size no engine has in a tab: 2 GiB.
const TOO_LARGE: usize = 1 << 29;

/// The report of `name`, `cpu` or `webgpu`: what the engine is, the suite, the limits. `pause` is
/// awaited between cases.
///
/// # Errors
/// If the engine cannot be opened.
pub async fn examine<P: Future<Output = ()>>(
    name: &str,
    seconds: f64,
    pause: impl Fn() -> P,
) -> Result<String> {
    let mut lines = vec![format!("teeny {}", env!("CARGO_PKG_VERSION"))];
    let mut failures = 0;
    let time = Duration::from_secs_f64(seconds);
    let device = super::session::open(name).await?;
    lines.push(format!("engine   {name}, {}", device.info().description));
    let any: &dyn Any = &*device;
    if let Some(gpu) = any.downcast_ref::<Wgpu>() {
        lines.extend(capabilities(gpu));
    }
    let suite = Suite::new(&device).within(time);
    let suite = match name {
        "cpu" => suite,
        _ => suite
            .flushes_subnormals()
            .loses_zero_signs()
            .multiplies_padding()
            .simplifies_programs()
            .trusts_indices(),
    };
    let report = suite.run_async(pause).await;
    let refused = report
        .rows()
        .iter()
        .flat_map(|(_, cells)| cells)
        .filter(|cell| matches!(cell, Cell::Unsupported(_)))
        .count();
    lines.push(format!(
        "suite    {} cases of {} operations agree with the oracle, {} fail, {refused} refused",
        report.cases(),
        report.rows().len(),
        report.failures().len(),
    ));
    for failure in report.failures() {
        failures += 1;
        lines.push(format!("FAILED   {failure}"));
    }
    let trained = [("fine-tune", "an adapter of a small decoder", fine_tuned(&device).await)];
    let limits = limits(name, &device).await.into_iter();
    let limits = limits.map(|(what, outcome)| ("limit", what, outcome));
    for (kind, what, outcome) in trained.into_iter().chain(limits) {
        match outcome {
            Ok(text) => lines.push(format!("{kind:<8} {what}: {text}")),
            Err(error) => {
                failures += 1;
                lines.push(format!("FAILED   {what}: {error}"));
            }
        }
    }
    lines.push(match failures {
        0 => "result   everything agrees".to_string(),
        n => format!("result   {n} failures"),
    });
    Ok(lines.join("\n"))
}

/// The lines about an adapter.
fn capabilities(gpu: &Wgpu) -> Vec<String> {
    let has = gpu.capabilities();
    vec![
        format!(
            "limits   buffers of {} MiB, bindings of {} MiB; workgroups of {} threads with {} KiB",
            has.max_buffer >> 20,
            has.max_binding >> 20,
            has.workgroup_threads,
            has.workgroup_memory >> 10
        ),
        format!(
            "         16-bit floats: {}, subgroups: {}, 64-bit integers: {}",
            has.float16, has.subgroups, has.int64
        ),
    ]
}

type Check = (&'static str, Result<String>);

async fn limits(name: &str, device: &DeviceRef) -> Vec<Check> {
    let mut checks = vec![
        ("two reads at once", two_reads(device).await),
        ("a tensor of 2 GiB", refused_and_usable(device, TOO_LARGE).await),
    ];
    if name == "webgpu" {
        checks.push(("a read that waits", waiting_read(device)));
        checks.push(("a tensor beyond one binding", beyond_binding().await));
        checks.push(("memory exhausted", exhausted().await));
    }
    checks
}

/// Some steps of a LoRA adapter of a small decoder, whose own weights stay as they are.
async fn fine_tuned(device: &DeviceRef) -> Result<String> {
    const STEPS: usize = 8;
    let device: DeviceRef = Autograd::new(device.clone());
    let store = Store::new(&device);
    let config = CausalLmConfig::new(65, 32, 2, 4, 32, 64);
    let model = CausalLm::new(&store.root(), config)?;
    let targets = Modules::names(["qkv_proj", "o_proj", "down_proj"]);
    let lora = Lora::attach(&store, LoraOptions::new().with_target_modules(targets))?;
    let sum = || store.get("layers.0.self_attn.qkv_proj.weight")?.value().square()?.sum_all();
    let before = sum()?.item_async::<f32>().await?;
    let mut optimizer = AdamW::new(lora.trainable(), 1e-2);
    let numbers = |step: i32| (0..32).map(|i| (i * step + 3) % 65).collect::<Vec<i32>>();
    let batch = CausalBatch::new(
        Tensor::from_vec(numbers(7), (2, 16), &device)?,
        Tensor::from_vec((0..32).collect::<Vec<i32>>(), 32, &device)?,
        Tensor::from_vec(numbers(5), 32, &device)?,
    );
    let start = Instant::now();
    let mut losses = Vec::new();
    for _ in 0..STEPS {
        let loss = model.loss(&batch, 16)?.div(32.0)?; // ()
        optimizer.step(&loss.backward()?)?;
        losses.push(loss.item_async::<f32>().await?);
    }
    let ms = start.elapsed().as_secs_f64() * 1e3 / STEPS as f64;
    let (first, last) = (losses[0], losses[STEPS - 1]);
    require(last < first - 0.1, &format!("losses {losses:?}"))?;
    require(sum()?.item_async::<f32>().await? == before, "the weights of the decoder changed")?;
    Ok(format!("loss {first:.2} to {last:.2} in {STEPS} steps, {ms:.0} ms each"))
}

/// Values whose sums are exact in f32.
fn ramp(n: usize, device: &DeviceRef) -> Result<Tensor> {
    Tensor::from_vec((0..n).map(|i| (i % 7) as f32).collect::<Vec<_>>(), (n,), device)
}

fn require(holds: bool, text: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::internal(text.to_string())) }
}

/// A read is begun while another is pending; both have the values of their time.
async fn two_reads(device: &DeviceRef) -> Result<String> {
    let x = ramp(1000, device)?; // (1000)
    let first = x.to_vec_async::<f32>();
    let y = x.add(1.0)?; // (1000)
    let second = y.to_vec_async::<f32>();
    let (second, first) = (second.await?, first.await?);
    let right = first.iter().zip(&second).enumerate();
    let right = right.fold(true, |all, (i, (a, b))| all && *a == (i % 7) as f32 && *b == a + 1.0);
    require(right, "the values are not those of the two tensors")?;
    Ok("both have their values".to_string())
}

/// A tensor of `n` elements is refused, and the device computes afterwards.
async fn refused_and_usable(device: &DeviceRef, n: usize) -> Result<String> {
    let made = Tensor::zeros((n,), DType::F32, device).and_then(|x| x.add(1.0));
    let text = match made {
        Ok(y) => match y.at(0, (n - 1) as isize)?.item_async::<f32>().await {
            Ok(value) => {
                require(value == 1.0, "its last element is wrong")?;
                return Ok("computed".to_string());
            }
            Err(error) => error.message().to_string(),
        },
        Err(error) => error.message().to_string(),
    };
    let sum = ramp(700, device)?.sum_all()?.item_async::<f32>().await?;
    require(sum == 2100.0, "the device computes wrongly after the refusal")?;
    Ok(format!("refused, and the device is usable ({})", text.lines().next().unwrap_or_default()))
}

/// A call that would wait is an error which names the call to await.
fn waiting_read(device: &DeviceRef) -> Result<String> {
    match ramp(8, device)?.to_vec::<f32>() {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok("refused by name".to_string()),
        Err(error) => Err(error),
        Ok(_) => Err(Error::internal("it returned values")),
    }
}

/// An adapter whose bindings end at 1 MiB computes with tensors of 4 MiB.
async fn beyond_binding() -> Result<String> {
    let options = Options::new().with_max_binding(Some(1 << 20));
    let device: DeviceRef = Wgpu::new_async(&options).await?;
    let n = 1 << 20;
    let sum = ramp(n, &device)?.add(1.0)?.sum_all()?.item_async::<f32>().await?;
    let expected = ramp(n, &(Reference::new() as DeviceRef))?.add(1.0)?.sum_all()?.item::<f32>()?;
    require((sum - expected).abs() <= 1e-5 * expected, "the sum is wrong")?;
    // a single line must fit
    let line = match ramp(n, &device)?.sort(0, SortOrder::Ascending) {
        Ok((sorted, _)) => sorted.at(0, -1)?.item_async::<f32>().await.map(|v| v.to_string()),
        Err(error) => Err(error),
    };
    Ok(match line {
        Ok(_) => "computed in parts, sorted too".to_string(),
        Err(error) => format!(
            "computed in parts; a sorted line is refused ({})",
            error.message().lines().next().unwrap_or_default()
        ),
    })
}

/// An allocation beyond the memory that is allowed is refused; the device is usable afterwards.
async fn exhausted() -> Result<String> {
    let options = Options::new().with_memory_budget(Some(8 << 20));
    let device: DeviceRef = Wgpu::new_async(&options).await?;
    match Tensor::zeros((4 << 20,), DType::F32, &device).and_then(|x| x.add(1.0)) {
        Err(error) if error.kind() == ErrorKind::OutOfMemory => {}
        Err(error) => return Err(error),
        Ok(_) => return Err(Error::internal("16 MiB fit into 8 MiB")),
    }
    refused_and_usable(&device, 4 << 20).await
}

/// The CPU engine.
pub fn cpu() -> DeviceRef {
    let cpu: Arc<Cpu> = Cpu::new();
    cpu
}
