//! The texts of errors: the first line is complete on its own, with the caller's line; operands,
//! notes and one line of help follow.

use crate::support::refused;
use teeny_core::{DType, DeviceRef, ErrorKind, Reference, Result, Tensor, context, registry};

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
