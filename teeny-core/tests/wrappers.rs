//! The wrapper devices: what they see, what they stop at, and that they change nothing.

use crate::broken::{Broken, Fault};
use std::sync::Arc;
use teeny_core::wrappers::{Checked, Checks, Compare, Faulty, Lasting, Request, Trace};
use teeny_core::{
    DType, Device, DeviceRef, ErrorKind, Reference, Result, SortOrder, Tensor, ToDevice, map,
};

/// The line of the caller, as errors print it.
macro_rules! here {
    ($offset:expr) => {
        format!("{}:{}", file!(), line!() + $offset)
    };
}

// ---- all of them
// -----------------------------------------------------------------------------------------------------------------------------------

fn all() -> Vec<DeviceRef> {
    let inner = || Reference::new() as DeviceRef;
    vec![
        Trace::new(inner()),
        Trace::asynchronous(inner()),
        Checked::new(inner()),
        Compare::new(inner(), inner()),
        Faulty::new(inner()),
    ]
}

#[test]
fn wrapped_tensors_move_in_and_out_without_a_change() -> Result<()> {
    for device in all() {
        let name = device.info().name;
        assert!(name.contains("reference") && !device.info().description.is_empty(), "{name}");
        let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], &device)?; // (2, 2)
        let below = x.t()?.to(device.inner().unwrap())?; // (2, 2)
        assert_eq!(
            (below.device().info().name.as_str(), below.to_vec::<f32>()?),
            ("reference", vec![1.0, 3.0, 2.0, 4.0])
        );
        let back = below.to(&device)?;
        assert_eq!(
            (back.device().info().name.as_str(), back.to_vec::<f32>()?),
            (name.as_str(), vec![1.0, 3.0, 2.0, 4.0])
        );
        assert_eq!(x.to(Reference::new())?.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    }
    Ok(())
}

#[test]
fn tensors_of_the_wrapped_device_are_constants() -> Result<()> {
    for device in all() {
        // (2, 2)
        let constant =
            Tensor::new([[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]], device.inner().unwrap())?
                .slice(0, 1..3)?;
        let x = Tensor::new([1.0f32, 10.0], &device)?; // (2)
        let y = constant.add(&x)?; // (2, 2)
        assert_eq!(
            (y.device().info().name, y.to_vec::<f32>()?),
            (device.info().name, vec![4.0, 14.0, 6.0, 16.0])
        );
        let stranger = Tensor::ones((2,), DType::F32, Reference::new())?;
        assert_eq!(x.add(&stranger).unwrap_err().kind(), ErrorKind::Device);
    }
    Ok(())
}

#[test]
fn assignments_reach_the_wrapped_device() -> Result<()> {
    for device in all() {
        let x = Tensor::zeros((2, 3), DType::I32, &device)?.copy()?;
        let kept = x.clone();
        // in a copy: `kept` holds the old one
        let x = x.slice_assign(1, 1..2, &Tensor::new([[7i32], [8]], &device)?)?;
        let x = x.slice_assign(0, 0..1, &Tensor::new([[1i32, 2, 3]], &device)?)?; // in place
        assert_eq!(
            (x.to_vec::<i32>()?, kept.to_vec::<i32>()?),
            (vec![1, 2, 3, 0, 8, 0], vec![0; 6])
        );
    }
    Ok(())
}

#[test]
fn wrappers_nest() -> Result<()> {
    let trace = Trace::new(Checked::new(Compare::new(Reference::new(), Reference::new())));
    assert_eq!(trace.to_device().info().name, "trace(checked(compare(reference, reference)))");
    let x = Tensor::new([1.0f32, -2.0], &trace)?; // (2)
    assert_eq!(x.relu()?.to_vec::<f32>()?, [1.0, 0.0]);
    let error = x.log().unwrap_err().to_string();
    assert!(error.contains("made NaN"), "{error}");
    Ok(())
}

// ---- Trace
// ------------------------------------------------------------------------------------------------------------------------------------------

#[test]
fn a_trace_knows_operation_line_shapes_bytes_and_operations() -> Result<()> {
    let trace = Trace::new(Reference::new());
    // (8, 16), 8 elements in memory
    let x = Tensor::ones((8, 1), DType::F32, &trace)?.expand((8, 16))?;
    let w = Tensor::ones((16, 4), DType::F32, &trace)?.copy()?; // (16, 4)
    trace.clear();
    let (y, line) = (x.matmul(&w)?, here!(0)); // (8, 4)
    y.exp()?.to_vec::<f32>()?;
    let spans = trace.spans();
    assert_eq!(spans.iter().map(|span| span.op).collect::<Vec<_>>(), ["matmul", "exp", "download"]);
    let matmul = &spans[0];
    assert_eq!(
        (matmul.bytes, matmul.flops, matmul.shapes.as_str()),
        (4 * (8 + 64 + 32), 2 * 8 * 16 * 4, "f32 (8, 16), f32 (16, 4)")
    );
    let called = matmul.called.unwrap();
    assert_eq!(
        (called.op, format!("{}:{}", called.location.file(), called.location.line()), called.later),
        ("matmul", line, false)
    );
    assert_eq!((spans[1].bytes, spans[1].flops), (2 * 32 * 4, 32));
    assert!(
        spans.windows(2).all(|pair| pair[0].start + pair[0].time <= pair[1].start),
        "times are in order"
    );
    let summary = trace.summary();
    assert!(
        ["op  ", "matmul", "exp", "GFLOP/s", "of reference"]
            .iter()
            .all(|part| summary.contains(part)),
        "{summary}"
    );
    Ok(())
}

#[test]
fn a_fused_operation_is_one_span_under_its_callers_name() -> Result<()> {
    let trace = Trace::new(Reference::new());
    let x = Tensor::ones((4, 8), DType::F32, &trace)?; // (4, 8)
    trace.clear();
    let _ = map([&x], |[x]| (x * 2.0).tanh() + 1.0)?;
    let _ = x.softmax(-1)?;
    let spans = trace.spans();
    assert_eq!(
        spans.iter().map(|span| (span.op, span.called.unwrap().op)).collect::<Vec<_>>(),
        [("kernel", "map"), ("softmax", "softmax")]
    );
    assert_eq!(spans[0].flops, 3 * 32);
    Ok(())
}

#[test]
fn a_convolution_and_attention_are_counted_as_products() -> Result<()> {
    let trace = Trace::new(Reference::new());
    let x = Tensor::ones((2, 6, 8, 8), DType::F32, &trace)?; // (2, 6, 8, 8)
    let w = Tensor::ones((4, 3, 3, 3), DType::F32, &trace)?; // (4, 3, 3, 3)
    let window = teeny_core::Window {
        stride: vec![1, 1],
        padding: vec![1, 1],
        dilation: vec![1, 1],
        groups: 2,
    };
    trace.clear();
    let _ = x.conv(&w, &window)?; // (2, 4, 8, 8)
    assert_eq!(trace.spans()[0].flops, 2 * (2 * 4 * 8 * 8) * (3 * 3 * 3));
    let q = Tensor::ones((2, 5, 4), DType::F32, &trace)?; // (2, 5, 4)
    trace.clear();
    let _ = q.attention(&q, &q, None, &teeny_core::Attention::causal(0))?;
    let pairs = 2 * (1 + 2 + 3 + 4 + 5);
    assert_eq!(
        trace.spans().iter().find(|span| span.op == "attention").unwrap().flops,
        pairs * (2 * 4 + 2 * 4 + 4)
    );
    Ok(())
}

#[test]
fn a_saved_trace_is_json_that_viewers_read() -> Result<()> {
    let trace = Trace::new(Reference::new());
    let _ = Tensor::ones((2, 2), DType::F32, &trace)?.exp()?;
    let path = std::env::temp_dir().join(format!("teeny-trace-{}.json", std::process::id()));
    trace.save(&path)?;
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    assert_eq!(events.len(), trace.spans().len());
    let exp = events.iter().find(|e| e["name"] == "exp").unwrap();
    assert_eq!(
        (exp["ph"].as_str(), exp["args"]["shapes"].as_str(), exp["cat"].as_str()),
        (Some("X"), Some("f32 (2, 2)"), Some("forward"))
    );
    assert!(
        exp["ts"].is_number()
            && exp["dur"].is_number()
            && exp["args"]["called"].as_str().unwrap().contains("wrappers.rs")
    );
    assert!(trace.save("/no/such/folder/trace.json").is_err());
    Ok(())
}

// ---- Checked
// ----------------------------------------------------------------------------------------------------------------------------------------

#[test]
fn the_first_operation_that_makes_an_infinity_is_named_with_its_operands() -> Result<()> {
    let device = Checked::new(Reference::new());
    let p = Tensor::new([[0.5f32, 1.0, 2.0], [1.0, 0.0, 4.0]], &device)?; // (2, 3)
    let (error, line) = (p.log().and_then(|log| log.mul(0.0)).unwrap_err(), here!(0));
    assert_eq!(error.kind(), ErrorKind::Value);
    let text = error.to_string();
    assert!(
        text.starts_with(&format!(
            "log at {line}: made -inf: 1 of 6 elements, the first at [1, 1]"
        )),
        "{text}"
    );
    assert!(
        text.contains("input 0: f32 (2, 3), min 0, max 4, mean 1.4167, 1 zeros; at [1, 1] 0"),
        "{text}"
    );
    assert!(
        text.contains("log: f32 (2, 3), min -0.6931")
            && text.contains(", 1 -inf")
            && text.contains("with_infinities(false)"),
        "{text}"
    );
    Ok(())
}

/// NaN made from operands without NaN, by an operation or by a parameter that divides by zero.
#[test]
fn nan_of_too_few_elements_is_found() -> Result<()> {
    let device = Checked::new(Reference::new());
    let one = Tensor::new([[2.0f32], [3.0]], &device)?; // (2, 1)
    let none = Tensor::zeros((2, 0), DType::F32, &device)?;
    let minus = Tensor::new([-1.0f32, 4.0], &device)?; // (2)
    type Case<'t> = (&'static str, &'t dyn Fn() -> Result<Tensor>);
    let cases: [Case<'_>; 10] = [
        ("var", &|| one.var(1, 1)),
        ("std", &|| one.std(1, 1)),
        ("var", &|| none.var(1, 0)),
        ("mean", &|| none.mean(1)),
        ("mean_all", &|| none.mean_all()),
        ("sqrt", &|| minus.sqrt()),
        ("log", &|| minus.log()),
        ("pow", &|| minus.pow(0.5)),
        ("asin", &|| minus.asin()),
        ("rem", &|| minus.rem(0.0)),
    ];
    for (name, case) in cases {
        let error = case().err().unwrap_or_else(|| panic!("{name}: no error"));
        assert!(
            error.op() == Some(name) && error.to_string().contains("made NaN"),
            "{name}: {error}"
        );
    }
    let pair = Tensor::new([1.0f32, 2.0], Reference::new())?; // (2)
    assert_eq!(
        (pair.var(0, 2)?.item::<f32>()?, pair.var(0, 3)?.item::<f32>()?),
        (f32::INFINITY, f32::INFINITY)
    );
    assert_eq!(pair.var(0, 1)?.item::<f32>()?, 0.5);
    Ok(())
}

#[test]
fn nan_made_of_infinities_is_found_where_infinities_may_pass() -> Result<()> {
    let device = Checked::with(Reference::new(), Checks::new().with_infinities(false));
    let p = Tensor::new([0.5f32, 0.0], &device)?; // (2)
    let log = p.log()?;
    let (error, line) =
        (log.mul(&Tensor::zeros((2,), DType::F32, &device)?).unwrap_err().to_string(), here!(0));
    assert!(
        error.starts_with(&format!("mul at {line}: made NaN: 1 of 2 elements, the first at [1]")),
        "{error}"
    );
    assert!(error.contains("at [1] -inf") && error.contains("at [1] 0"), "{error}");
    Ok(())
}

#[test]
fn what_was_no_number_before_is_nobodys_fault() -> Result<()> {
    let device = Checked::new(Reference::new());
    let x = Tensor::new([f32::NAN, f32::INFINITY, 1.0], &device)?; // (3)
    let y = x.exp()?.add(1.0)?.sum_all()?;
    assert!(y.item::<f32>()?.is_nan());
    // but an element beside it is looked at on its own
    let error = x.sub(1.0)?.recip().unwrap_err().to_string();
    assert!(error.contains("made inf: 1 of 3 elements, the first at [2]"), "{error}");
    Ok(())
}

#[test]
fn masks_of_minus_infinity_are_no_mistake() -> Result<()> {
    let device = Checked::new(Reference::new());
    let scores = Tensor::randn((3, 3), DType::F32, &device)?; // (3, 3)
    // (3, 3)
    let mask =
        Tensor::new([[false, true, true], [false, false, true], [false, false, false]], &device)?;
    let hidden = scores.masked_fill(&mask, f64::NEG_INFINITY)?; // (3, 3)
    let _ = hidden.softmax(-1)?;
    let _ = hidden.log_softmax(-1)?;
    let _ = hidden.logsumexp(-1)?;
    let nobody = Tensor::full((3, 3), false, DType::Bool, &device)?; // (3, 3)
    let _ = scores.attention(&scores, &scores, Some(&nobody), &teeny_core::Attention::full())?;
    // a row that sees nothing is one
    let error = Tensor::full((1, 3), f64::NEG_INFINITY, DType::F32, &device)?
        .softmax(-1)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("softmax at ") && error.contains("made NaN: 3 of 3 elements"),
        "{error}"
    );
    Ok(())
}

#[test]
fn overflows_of_narrow_types_and_of_sums_are_found() -> Result<()> {
    let device = Checked::new(Reference::new());
    let x = Tensor::full((4,), 60000.0, DType::F32, &device)?; // (4)
    assert!(x.mul(2.0)?.cast(DType::F16).unwrap_err().to_string().contains("made inf"));
    let error = x.cast(DType::F16)?.sum_all().unwrap_err().to_string();
    assert!(
        error.starts_with("sum") && error.contains("made inf: 1 of 1 elements, the first at []"),
        "{error}"
    );
    Ok(())
}

#[test]
fn data_is_looked_at_where_that_is_asked_for() -> Result<()> {
    let device = Checked::with(Reference::new(), Checks::new().with_inputs(true));
    let error = Tensor::new([1.0f32, f32::NAN], &device).unwrap_err().to_string();
    assert!(
        error.starts_with("new at ")
            && error.contains("there is NaN in the data: 1 of 2 elements, the first at [1]"),
        "{error}"
    );
    let below = Tensor::new([1.0f32, f32::NAN], device.to_device().inner().unwrap())?;
    let error = Tensor::new([1.0f32, 2.0], &device)?.add(&below).unwrap_err().to_string();
    assert!(
        error.starts_with("add at ") && error.contains("an input tensor contains NaN"),
        "{error}"
    );
    let _ = Tensor::new([f32::INFINITY], &device)?;
    Ok(())
}

#[test]
fn findings_are_written_down_where_they_do_not_stop() -> Result<()> {
    let device = Checked::with(Reference::new(), Checks::new().with_stop(false));
    let x = Tensor::new([-1.0f32], &device)?;
    assert!(x.sqrt()?.item::<f32>()?.is_nan());
    assert_eq!(device.findings().len(), 1);
    assert!(device.findings()[0].to_string().starts_with("sqrt at "));
    Ok(())
}

// ---- Compare
// ----------------------------------------------------------------------------------------------------------------------------------------

fn beside(fault: Fault) -> Arc<Compare> {
    Compare::new(Reference::new(), Broken::new(fault))
}

#[test]
fn a_wrong_element_is_found_with_operation_line_index_and_values() -> Result<()> {
    let device = beside(Fault::Matmul);
    // (3, 4)
    let x = Tensor::from_vec((0..12).map(|i| i as f32).collect::<Vec<_>>(), (3, 4), &device)?;
    let (error, line) = (x.matmul(&x.t()?).unwrap_err(), here!(0));
    assert_eq!(error.kind(), ErrorKind::Device);
    let text = error.to_string();
    let wanted = format!(
        "matmul at {line}: reference and broken disagree: element [2, 2] of the result is 366.0 on reference and 366.18"
    );
    assert!(text.starts_with(&wanted), "{text}");
    assert!(
        text.contains("matmul: lhs f32 (3, 4), rhs f32 (4, 3)")
            && text.contains("1 of 9 elements differ"),
        "{text}"
    );
    assert!(x.add(&x)?.sum_all()?.item::<f32>()? > 0.0, "the rest is right");
    Ok(())
}

#[test]
fn small_faults_are_not_taken_for_rounding() -> Result<()> {
    let x = |device: &Arc<Compare>| Tensor::new([-1.0f32, 0.0, 1e-3, 2.0], device);
    for (fault, op) in [
        (Fault::Exp, (|x| x.mul(1e-6)?.exp()) as fn(&Tensor) -> Result<Tensor>),
        (Fault::Exp, |x| map([x], |[x]| (x * 0.5).exp() * 3.0)),
        (Fault::ArgMaxTies, |x| x.relu()?.neg()?.argmax(0)),
        (Fault::SortTies, |x| Ok(x.relu()?.sort(0, SortOrder::Ascending)?.1)),
        (Fault::Random, |x| Tensor::rand((4,), DType::F32, x)),
        (Fault::Copy, |x| x.copy()?.slice_assign(0, 1..2, &Tensor::ones((1,), DType::F32, x)?)),
        (Fault::Upload, |x| Tensor::new([1.0f32, 2.0], x)),
        (Fault::Fails, |x| x.cumsum(0)),
    ] {
        let device = beside(fault);
        let result = x(&device).and_then(|x| op(&x));
        let error = result.err().unwrap_or_else(|| panic!("{fault:?} is not found")).to_string();
        assert!(error.contains("reference and broken disagree: "), "{fault:?}: {error}");
    }
    Ok(())
}

#[test]
fn what_rounding_explains_is_no_disagreement() -> Result<()> {
    // the broken device adds from the other end, in f32
    let device = beside(Fault::SumBackwards);
    let x = Tensor::randn((1000,), DType::F32, &device)?; // (1000)
    let centred = x.sub(&x.mean_all()?)?; // (1000)
    let _ = centred.sum_all()?; // about 0: every digit is rounding
    let _ = map([&x], |[x]| x.relu())?;
    assert!(device.compared() > 5);
    Ok(())
}

#[test]
fn what_the_second_device_does_not_support_is_skipped() -> Result<()> {
    let device = beside(Fault::NoF64);
    let x = Tensor::new([1.0f64, 2.0], &device)?; // (2)
    let y = x.mul(2.0)?.slice_assign(0, 0..1, &x.slice(0, 1..2)?)?; // (2)
    assert_eq!(y.to_vec::<f64>()?, [2.0, 4.0]);
    assert_eq!(device.compared(), 0);
    assert!(device.skipped() >= 3);
    let z = y.cast(DType::F32)?.exp()?; // the cast is skipped, what follows is not
    assert_eq!((z.numel(), device.compared()), (2, 1));
    Ok(())
}

// ---- Faulty
// -----------------------------------------------------------------------------------------------------------

#[test]
fn a_faulty_device_fails_the_request_it_is_told_to_and_no_other() -> Result<()> {
    let device = Faulty::new(Reference::new());
    // what a program asks for, in order: an upload, two operations, a download, a wait
    let work = || -> Result<()> {
        let x = Tensor::new([1.0f32, 4.0], &device)?; // (2)
        x.sqrt()?.exp()?.to_vec::<f32>()?;
        device.synchronize()
    };
    let counted = [
        (Request::Any, 5),
        (Request::Execute, 2),
        (Request::Upload, 1),
        (Request::Download, 1),
        (Request::Synchronize, 1),
    ];
    for (request, count) in counted {
        for lasting in [Lasting::Once, Lasting::Forever] {
            for number in 0..count {
                device.fail(request, number, ErrorKind::Unsupported, lasting);
                let error = work().unwrap_err();
                assert_eq!(
                    (error.kind(), device.failures()),
                    (ErrorKind::Unsupported, 1),
                    "{request:?} {number}"
                );
                assert!(error.to_string().contains(&format!("request {number} (")), "{error}");
                assert_eq!(work().is_err(), lasting == Lasting::Forever, "{request:?} {number}");
                device.heal();
                work()?;
            }
            device.fail(request, count, ErrorKind::Unsupported, lasting);
            work()?;
            assert_eq!((device.requests(request), device.failures()), (count, 0), "{request:?}");
        }
    }
    Ok(())
}

#[test]
fn an_injected_fault_names_the_users_operation_and_line() -> Result<()> {
    let device = Faulty::new(Reference::new());
    let x = Tensor::new([1.0f32, 4.0], &device)?; // (2)
    device.fail(Request::Execute, 0, ErrorKind::OutOfMemory, Lasting::Once);
    let place = here!(1);
    let error = x.softmax(0).unwrap_err().to_string();
    assert!(error.starts_with(&format!("softmax at {place}: request 0 (softmax)")), "{error}");
    Ok(())
}
