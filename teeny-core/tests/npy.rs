//! Row A09: `.npy` files, against bytes that NumPy wrote.

use teeny_core::{DType, ErrorKind, Reference, Result, Tensor};

/// `numpy.save` (2.4) of `numpy.array([[1, 2, 3], [4, 5, 6]], dtype)`, header as NumPy writes it.
fn by_numpy(descr: &str, fortran: bool, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': (2, 3), }}");
    header.push_str(&" ".repeat(117 - header.len()));
    header.push('\n');
    [b"\x93NUMPY\x01\x00\x76\x00".as_slice(), header.as_bytes(), data].concat()
}

#[test]
fn npy_reads_what_numpy_writes() -> Result<()> {
    let device = Reference::new();
    let little: Vec<u8> = (1..=6).flat_map(|v| (v as f32).to_le_bytes()).collect();
    let big: Vec<u8> = (1..=6).flat_map(|v: i16| v.to_be_bytes()).collect();
    let columns: Vec<u8> = [1, 4, 2, 5, 3, 6i64].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(
        Tensor::from_npy(&by_numpy("<f4", false, &little), &device)?.to_vec::<f32>()?,
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    );
    assert_eq!(
        Tensor::from_npy(&by_numpy(">i2", false, &big), &device)?.to_vec::<i16>()?,
        [1, 2, 3, 4, 5, 6]
    );
    let x = Tensor::from_npy(&by_numpy("<i8", true, &columns), &device)?;
    assert_eq!((x.to_vec::<i64>()?, **x.shape() == [2, 3]), (vec![1, 2, 3, 4, 5, 6], true));
    Ok(())
}

#[test]
fn npy_writes_the_bytes_numpy_writes() -> Result<()> {
    let device = Reference::new();
    let x = Tensor::new([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]], &device)?;
    let mut bytes = Vec::new();
    x.write_npy(&mut bytes)?;
    let data: Vec<u8> = (1..=6).flat_map(|v| (v as f32).to_le_bytes()).collect();
    assert_eq!(bytes, by_numpy("<f4", false, &data));
    Ok(())
}

#[test]
fn npy_round_trips_every_type_and_view() -> Result<()> {
    let device = Reference::new();
    let folder = std::env::temp_dir().join(format!("teeny-npy-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let path = folder.join("x.npy");
    for dtype in DType::ALL.into_iter().filter(|&t| t != DType::BF16) {
        for x in [
            Tensor::arange(0i32, 6, 1, &device)?.reshape((2, 3))?.t()?,
            Tensor::zeros((0, 4), DType::F32, &device)?,
            Tensor::new(1.0f64, &device)?,
        ] {
            let x = x.cast(dtype)?;
            x.save_npy(&path)?;
            let y = Tensor::load_npy(&path, &device)?;
            assert_eq!(
                (y.dtype(), *y.shape(), y.to_scalars()?),
                (dtype, *x.shape(), x.to_scalars()?)
            );
        }
    }
    std::fs::remove_dir_all(&folder).expect("the folder was ours");
    Ok(())
}

#[test]
fn npy_headers_are_claims() {
    let device = Reference::new();
    let whole = by_numpy("<f4", false, &[0; 24]);
    let kind = |bytes: &[u8]| Tensor::from_npy(bytes, &device).map(|_| ()).unwrap_err().kind();
    for cut in [0, 3, 7, 9, 40, 128, 151] {
        assert_eq!(kind(&whole[..cut]), ErrorKind::Format, "cut at {cut}");
    }
    assert_eq!(kind(&[whole.as_slice(), &[0]].concat()), ErrorKind::Format, "one byte too many");
    for (from, to) in [
        ("(2, 3)", "(2,-3)"),
        ("'<f4'", "'<c8'"),
        ("False", "Maybe"),
        ("shape", "shapf"),
        ("(2, 3)", "999999"),
    ] {
        let at =
            whole.windows(from.len()).position(|w| w == from.as_bytes()).expect("in the header");
        let mut lie = whole.clone();
        lie.splice(at..at + from.len(), to.bytes());
        let expected = if from == "'<f4'" { ErrorKind::DType } else { ErrorKind::Format };
        assert_eq!(kind(&lie), expected, "{from} replaced by {to}");
    }
    let replaced = |to: &str| {
        let at = whole.windows(6).position(|w| w == b"(2, 3)").expect("the shape");
        let mut lie = whole.clone();
        lie.splice(at..at + 6, to.bytes());
        // the header keeps its length
        let spaces = whole.windows(2).position(|w| w == b"  ").expect("padding");
        let padding = spaces + to.len() - 6;
        let n = to.len().saturating_sub(6);
        lie.drain(padding..padding + n);
        Tensor::from_npy(&lie, &device).map(|x| x.numel())
    };
    assert_eq!(replaced("(2,3,)").unwrap(), 6);
    for shape in ["((2,3),)", "((6,),)", "(2,,3)", "(2, 3", "(6)", "[2, 3]", "(,)", "6", "(2 3)"] {
        let error = replaced(&format!("{shape:6}")).unwrap_err().to_string();
        assert!(error.contains("is not a tuple of sizes") && error.contains(shape), "{error}");
    }
    let twice = replaced("(2, 3), 'shape': (2, 3)").unwrap_err().to_string();
    assert!(twice.contains("two entries \"shape\""), "{twice}");
    let other = replaced("(2, 3), 'axes': 2").unwrap_err().to_string();
    assert!(other.contains("an entry \"'axes': 2\""), "{other}");
    // A header that promises more than memory can hold is refused before anything is allocated.
    let mut huge = whole.clone();
    let at = huge.windows(6).position(|w| w == b"(2, 3)").expect("the shape");
    huge.splice(at..at + 6, *b"(9999999999999,9)");
    assert!(Tensor::from_npy(&huge, &device).is_err());
}

#[test]
fn a_structured_type_is_shown_whole() {
    let descr = "[('x', '<f4'), ('y', '<i4')]";
    let header = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (3,), }}\n");
    let length = (header.len() as u16).to_le_bytes();
    let bytes = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &[0; 24]].concat();
    let error = Tensor::from_npy(&bytes, Reference::new()).unwrap_err().to_string();
    assert!(error.contains(&format!("{descr:?}")) && error.contains("each field"), "{error}");
}
