//! The texts of errors: the first line is complete on its own, with the caller's line; operands,
//! notes and one line of help follow.

use crate::support::refused;
use teeny_core::{
    DType, DeviceRef, ErrorKind, Interpolation, Reference, Result, Tensor, Window, context,
    registry,
};

fn zeros(shape: &[usize], device: &std::sync::Arc<Reference>) -> Tensor {
    Tensor::zeros(shape, DType::F32, device).expect("small zeros")
}

#[test]
fn matmul_names_both_shapes_the_line_and_the_transpose_that_fits() {
    let device = Reference::new();
    let (lhs, rhs) = (zeros(&[64, 784], &device), zeros(&[128, 784], &device));
    let (error, line) = (refused(lhs.matmul(&rhs)), line!());
    let expected = format!(
        "matmul at {}:{line}: cannot multiply (64, 784) @ (128, 784): 784 columns meet 128 rows\n  lhs: f32 on reference    rhs: f32 on reference\n  help: rhs.t() is (784, 128) and would fit",
        file!()
    );
    assert_eq!(error.to_string(), expected);
    assert_eq!((error.kind(), error.op()), (ErrorKind::Shape, Some("matmul")));
}

#[test]
fn add_names_the_axis_that_disagrees_and_how_to_fit_a_column() {
    let device = Reference::new();
    let (lhs, rhs) = (zeros(&[32, 10], &device), zeros(&[32], &device));
    let (error, line) = (refused(lhs.add(&rhs)), line!());
    let expected = format!(
        "add at {}:{line}: (32, 10) and (32,) do not broadcast: aligned from the right, axis 1 has 10 and 32\n  lhs: f32 on reference    rhs: f32 on reference\n  help: rhs.unsqueeze(1) is (32, 1) and would broadcast over columns",
        file!()
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn operators_panic_with_the_same_text_as_the_method() {
    let device = Reference::new();
    let (lhs, rhs) = (zeros(&[2, 3], &device), zeros(&[4], &device));
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| &lhs + &rhs))
        .map(drop)
        .expect_err("(2, 3) + (4,)");
    let text = panic.downcast_ref::<String>().expect("a text");
    assert!(
        text.starts_with(&format!("add at {}:", file!()))
            && text.contains("(2, 3) and (4,) do not broadcast"),
        "{text}"
    );
}

#[test]
fn a_composite_keeps_the_name_the_user_called() {
    let device = Reference::new();
    let x = zeros(&[2, 3], &device).cast(DType::I32).expect("a cast");
    assert_eq!(refused(x.softmax(1)).op(), Some("softmax"));
    assert_eq!(refused(zeros(&[2, 3], &device).var(5, 1)).op(), Some("var"));
    assert!(context::current().is_none(), "an operation was not left");
}

#[test]
fn every_kind_of_mistake_has_its_kind() {
    let device = Reference::new();
    let x = zeros(&[2, 3], &device);
    let kinds =
        [
            (refused(x.sum(2)), ErrorKind::Axis),
            (refused(x.sum([0, -2])), ErrorKind::Axis),
            (refused(x.permute([0, 0])), ErrorKind::Axis),
            (refused(x.at(0, 2)), ErrorKind::Index),
            (refused(x.not()), ErrorKind::DType),
            (refused(x.slice_step(0, .., 0)), ErrorKind::Value),
            (refused(x.expand((4, 3))), ErrorKind::Shape),
            (refused(x.squeeze(0)), ErrorKind::Shape),
            (refused(zeros(&[0, 3], &device).max(0)), ErrorKind::Shape),
            (refused(Tensor::zeros(-1, DType::F32, &device)), ErrorKind::Shape),
            (refused(Tensor::zeros((usize::MAX, 9), DType::F32, &device)), ErrorKind::Value),
            (refused(x.gather(0, &x)), ErrorKind::DType),
            (
                refused(x.expand((5, 2, 3)).and_then(|x| {
                    x.assign_view(|x| Ok(x.clone()), &zeros(&[3], &Reference::new()))
                })),
                ErrorKind::Value,
            ),
        ];
    for (error, kind) in kinds {
        assert_eq!(error.kind(), kind, "{error}");
    }
    assert_eq!(
        x.to_vec::<f64>().expect_err("f32").to_string().lines().last(),
        Some("  help: x.cast(DType::F64)? converts")
    );
    assert_eq!(
        x.item::<f32>().expect_err("6 elements").message(),
        "a tensor of shape (2, 3) has 6 elements, not one"
    );
}

#[test]
fn tensors_of_unrelated_devices_are_refused_by_name_and_moved_by_to() -> Result<()> {
    let (here, there) = (Reference::new(), Reference::new());
    let (x, y) = (Tensor::new([1.0f32, 2.0], &here)?, Tensor::new([3.0f32, 4.0], &there)?);
    let error = refused(x.add(&y));
    assert_eq!(error.kind(), ErrorKind::Device);
    assert!(
        error
            .to_string()
            .contains("the operands are on different devices: reference and reference"),
        "{error}"
    );
    assert!(error.to_string().contains("help: move one of them: x.to(&device)?"));
    assert_eq!(x.add(&y.to(&x)?)?.to_vec::<f32>()?, [4.0, 6.0]);
    assert_eq!(y.flip(0)?.to(&here)?.to(&there)?.to_vec::<f32>()?, [4.0, 3.0]);
    assert!(x.to(&here)?.same_storage(&x));
    Ok(())
}

#[test]
fn devices_are_found_by_name() -> Result<()> {
    let found: DeviceRef = registry::device("reference")?;
    assert_eq!(found.info().name, "reference");
    registry::register("mine", || Ok(Reference::new()));
    assert!(
        registry::names().contains(&"mine".to_string())
            && registry::names().contains(&"reference".to_string())
    );
    assert!(registry::device("mine").is_ok());
    let error = registry::device("tpu").map(drop).expect_err("no such device");
    assert!(error.message().starts_with("no device is called \"tpu\"; known: "), "{error}");
    Ok(())
}

#[test]
fn a_list_and_a_changed_operand_are_described_too() {
    let device = Reference::new();
    let (a, b) = (zeros(&[2, 3], &device), zeros(&[4], &device));
    let text = refused(Tensor::cat(&[&a, &b], 0)).to_string();
    assert!(
        text.contains("\n  tensors[0]: f32 on reference    tensors[1]: f32 on reference"),
        "{text}"
    );
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| a.clone() + &b))
        .map(drop)
        .expect_err("(2, 3) + (4,)");
    let text = panic.downcast_ref::<String>().expect("a text");
    assert!(text.contains("\n  lhs: f32 on reference    rhs: f32 on reference"), "{text}");
}

#[test]
fn operands_are_those_of_the_method_that_was_called() {
    let device = Reference::new();
    // softmax is several operations, each with operands that the caller has never seen.
    let x = zeros(&[2, 3], &device).cast(DType::I32).expect("a cast");
    let error = refused(x.softmax(1));
    let text = error.to_string();
    assert!(text.contains("\n  x: (2, 3) i32 on reference"), "{text}");
    // An error that is kept does not learn of operations after it.
    let first = refused(x.sum(7));
    let before = first.to_string();
    drop(refused(zeros(&[5], &device).sum(7)));
    drop(zeros(&[5], &device).sum(0).expect("a sum"));
    assert_eq!(first.to_string(), before);
}

/// `anyhow` takes what is `Error + Send + Sync + 'static`, and `thiserror` writes the `From` and
/// the `source` that are here by hand.
#[test]
fn errors_compose_with_those_of_other_libraries() {
    use std::error::Error as StdError;
    use std::io;
    #[derive(Debug)]
    struct Mine(teeny_core::Error);
    impl std::fmt::Display for Mine {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "cannot start")
        }
    }
    impl StdError for Mine {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&self.0)
        }
    }
    impl From<teeny_core::Error> for Mine {
        fn from(error: teeny_core::Error) -> Mine {
            Mine(error)
        }
    }
    let missing = std::env::temp_dir().join("teeny-no-such-folder").join("x.npy");
    let load = || -> std::result::Result<(), Mine> {
        let _ = Tensor::load_npy(&missing, Reference::new())?;
        Ok(())
    };
    let mine: Box<dyn StdError + Send + Sync> = load().unwrap_err().into();
    assert_eq!(mine.to_string(), "cannot start");
    let ours = mine.source().and_then(|e| e.downcast_ref::<teeny_core::Error>()).unwrap();
    assert!(ours.to_string().contains("x.npy"), "{ours}");
    let cause = ours.source().and_then(|e| e.downcast_ref::<io::Error>()).unwrap();
    assert_eq!(cause.kind(), io::ErrorKind::NotFound);

    let read = || -> teeny_core::Result<Vec<u8>> { Ok(std::fs::read(&missing)?) };
    let error = read().unwrap_err();
    assert_eq!(error.kind(), teeny_core::ErrorKind::Io);
    assert!(error.source().is_some_and(|e| e.is::<io::Error>()), "{error}");
    assert!(error.clone().named("load settings").source().is_some(), "renaming keeps the source");

    let shape = Tensor::new([1.0f32], Reference::new()).unwrap().reshape(2).unwrap_err();
    assert!(shape.source().is_none(), "nothing else caused it");
}

/// The help line of an error.
fn help_of(result: Result<Tensor>) -> String {
    let text = refused(result).to_string();
    text.split_once("  help: ").expect("a help line").1.to_string()
}

#[test]
fn cat_of_unequal_sizes_names_the_calls_that_make_them_equal() {
    let device = Reference::new();
    let cat = |a: &[usize], b: &[usize], axis| {
        Tensor::cat(&[&zeros(a, &device), &zeros(b, &device)], axis)
    };
    // images of a U-Net: another axis would put one below the other
    let help = help_of(cat(&[2, 3, 7, 8], &[2, 5, 8, 8], 1));
    let cures = [
        "x.slice(2, ..7)? cuts the larger",
        "x.pad(&widths, 0)?",
        "x.interpolate(&[8, 8], Interpolation::Nearest)? enlarges the smaller",
    ];
    assert!(cures.iter().all(|cure| help.contains(cure)), "{help}");
    assert!(!help.contains("Tensor::cat"), "{help}");
    let (a, b) = (zeros(&[2, 3, 7, 8], &device), zeros(&[2, 5, 8, 8], &device));
    let cut = b.slice(2, ..7).expect("7 of 8");
    assert!(Tensor::cat(&[&a, &cut], 1).is_ok());
    let larger = a.interpolate(&[8, 8], Interpolation::Nearest).expect("a larger image");
    assert!(Tensor::cat(&[&larger, &b], 1).is_ok());
    let help = help_of(cat(&[2, 3, 7, 9], &[2, 3, 8, 8], 1));
    assert!(
        help.contains("x.slice(axis, ..n)?") && help.contains("x.interpolate(&[8, 9], "),
        "{help}"
    );
    // rows, columns and channels: the other axis may have been meant
    for (a, b, axis, other) in [
        (&[4, 3][..], &[5, 3][..], 1, 0),
        (&[2, 3], &[2, 5], 0, 1),
        (&[2, 3, 8, 8], &[2, 5, 8, 8], 2, 1),
    ] {
        let help = help_of(cat(a, b, axis));
        let along = format!("they fit along axis {other}: Tensor::cat(&tensors, {other})?");
        assert!(help.starts_with(&along), "{help}");
        assert!(help.contains(&format!("x.slice({other}, ..{}", a[other])), "{help}");
        assert!(cat(a, b, other as isize).is_ok());
    }
    assert_eq!(help_of(cat(&[2, 3], &[3], 0)), "x.unsqueeze(axis)? adds an axis of size 1");
}

#[test]
fn a_transposed_convolution_names_the_channels_of_its_input() {
    let device = Reference::new();
    let (x, weight, window) =
        (zeros(&[1, 4, 9, 9], &device), zeros(&[3, 2, 3, 3], &device), Window::new(2));
    let transposed = |x: &Tensor, groups| {
        let window = window.clone().groups(groups);
        x.conv_transpose(&weight, &window, &[11, 11])
    };
    let error = refused(transposed(&x, 1));
    let text = "input (1, 4, 9, 9) has 4 channels; weight (3, 2, 3, 3) takes 3";
    assert_eq!(error.message(), text);
    assert_eq!(help_of(transposed(&x, 1)), "a weight of (4, 2, kernel..) fits");
    let last = zeros(&[1, 9, 9, 3], &device);
    let help = help_of(transposed(&last, 1));
    assert!(help.starts_with("x.permute([0, 3, 1, 2])? moves the last axis"), "{help}");
    assert!(transposed(&last.permute([0, 3, 1, 2]).expect("four axes"), 1).is_ok());
    // groups that do not divide the channels
    assert!(transposed(&zeros(&[1, 3, 9, 9], &device), 2).is_err());
}

#[test]
fn an_index_with_an_axis_too_few_is_told_to_grow() {
    let device = teeny_core::Reference::new();
    let q = Tensor::zeros((8, 2), DType::F32, &device).unwrap();
    let actions = Tensor::zeros((8,), DType::I64, &device).unwrap();
    let error = q.gather(1, &actions).unwrap_err().to_string();
    assert!(error.contains("index.unsqueeze(1)? is (8, 1): one position a row"), "{error}");
    assert!(q.gather(1, &actions.unsqueeze(1).unwrap()).is_ok());
    // no axis of size 1 would fit
    let error = q.gather(0, &actions).unwrap_err().to_string();
    assert!(error.contains("x.index_select(0, &index)?"), "{error}");
}
