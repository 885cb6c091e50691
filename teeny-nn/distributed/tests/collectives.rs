//! Collective operations between ranks that are threads.

use std::time::Duration;
use teeny_core::{DType, Reference, Result, Scalar, Tensor};
use teeny_distributed::{Collective, Communicator, Kind, Reduce, SingleRank, Threads};

fn ints(n: usize, rank: usize, dtype: DType) -> Result<Tensor> {
    let x: Vec<i32> = (0..n as i32).map(|i| (i * 7 + 5 * rank as i32) % 11).collect();
    Tensor::from_vec(x, (n,), Reference::new())?.cast(dtype)
}

fn values(x: &Tensor) -> Result<Vec<f64>> {
    Ok(x.to_scalars()?.into_iter().map(|x: Scalar| x.to_f64()).collect())
}

#[test]
fn every_dtype_and_number_of_ranks_reduces_gathers_and_broadcasts() {
    for ranks in 1..=5 {
        for dtype in DType::ALL {
            for n in [0, 1, 3, 10, 57] {
                let all: Vec<Vec<f64>> =
                    (0..ranks).map(|r| values(&ints(n, r, dtype).unwrap()).unwrap()).collect();
                let fold = |f: fn(f64, f64) -> f64| -> Vec<f64> {
                    (0..n).map(|i| all.iter().map(|x| x[i]).reduce(f).unwrap()).collect()
                };
                Threads::run(ranks, |comm| {
                    let x = ints(n, comm.rank(), dtype)?;
                    assert_eq!(values(&comm.all_reduce(&x, Reduce::Max)?)?, fold(f64::max));
                    let root = ranks - 1;
                    let sent = comm.broadcast(&x, root)?;
                    assert_eq!((values(&sent)?, sent.dtype()), (all[root].clone(), dtype));
                    let joined = comm.all_gather(&x)?;
                    assert_eq!(values(&joined)?, all.concat());
                    if dtype == DType::Bool {
                        assert!(comm.all_reduce(&x, Reduce::Sum).is_err());
                        return Ok(());
                    }
                    assert_eq!(values(&comm.all_reduce(&x, Reduce::Sum)?)?, fold(|a, b| a + b));
                    // all joined, reduced and scattered, is this rank's part of the sum
                    let part = comm.reduce_scatter(&joined, Reduce::Sum)?;
                    let whole: Vec<f64> =
                        all[comm.rank()].iter().map(|x| x * ranks as f64).collect();
                    assert_eq!(values(&part)?, whole);
                    let mean = comm.all_reduce(&x, Reduce::Mean);
                    if dtype.is_int() {
                        let error = mean.unwrap_err();
                        assert!(error.message().starts_with("the mean of"), "{error}");
                    } else {
                        let tolerance = if dtype.is_half() { 0.05 } else { 1e-6 };
                        for (a, b) in values(&mean?)?.into_iter().zip(fold(|a, b| a + b)) {
                            assert!((a - b / ranks as f64).abs() <= tolerance, "{a} {b}");
                        }
                    }
                    Ok(())
                })
                .unwrap();
            }
        }
    }
}

#[test]
fn halves_are_summed_in_f32_and_sums_have_the_order_of_the_ranks() {
    let device = Reference::new();
    let terms = [2048.0f32, 1.0, 1.0, 1.0];
    let sums = Threads::run(4, |comm| {
        let x = Tensor::new([terms[comm.rank()]], &device)?;
        let half = comm.all_reduce(&x.cast(DType::F16)?, Reduce::Sum)?;
        let large = Tensor::new([[1e8f32, 1.0, -1e8, 1.0][comm.rank()]], &device)?;
        Ok((values(&half)?[0], values(&comm.all_reduce(&large, Reduce::Sum)?)?[0]))
    })
    .unwrap();
    // 2051 rounds to 2052 in f16; term by term in f16 the sum would stay 2048
    let in_order = f64::from(((1e8f32 + 1.0) - 1e8) + 1.0);
    assert_eq!(sums, [(2052.0, in_order); 4]);
}

#[test]
fn groups_are_communicators_of_their_own() {
    Threads::run(6, |comm| {
        let (pair, column) = (comm.split(comm.rank() / 2)?, comm.split(comm.rank() % 2)?);
        assert_eq!((pair.size(), column.size()), (2, 3));
        assert_eq!((pair.rank(), column.rank()), (comm.rank() % 2, comm.rank() / 2));
        let x = Tensor::new([1 << comm.rank()], Reference::new())?;
        let sum = |comm: &dyn Communicator| {
            comm.all_reduce(&x, Reduce::Sum)?.to_vec::<i32>().map(|sums| sums[0])
        };
        assert_eq!(sum(&*pair)?, 3 << (comm.rank() / 2 * 2));
        assert_eq!(sum(&*column)?, 0b010101 << (comm.rank() % 2));
        assert_eq!(sum(&comm)?, 63);
        Ok(())
    })
    .unwrap();
}

#[test]
fn groups_made_after_some_ranks_have_split_further_agree() {
    Threads::run(4, |comm| {
        let half = comm.split(comm.rank() / 2)?;
        if comm.rank() < 2 {
            half.split(comm.rank())?.barrier()?;
        }
        let again = comm.split(comm.rank() % 2)?;
        assert_eq!(again.sum_numbers(&[1.0])?, [2.0]);
        Ok(())
    })
    .unwrap();
}

#[test]
fn operations_of_notes_are_told_apart() {
    let error = Threads::run(2, |comm| match comm.rank() {
        0 => comm.sum_numbers(&[1.0]).map(|_| ()),
        _ => comm.gather_bytes(vec![0; 8]).map(|_| ()),
    });
    let text = error.unwrap_err().to_string();
    assert!(text.contains("sum_numbers") && text.contains("gather_bytes"), "{text}");
}

#[test]
fn ranks_that_call_different_operations_all_get_an_error() {
    let errors = Threads::run(3, |comm| {
        let x = Tensor::zeros((4,), DType::F32, Reference::new())?;
        let result = match comm.rank() {
            1 => comm.all_gather(&x).map(|_| ()),
            _ => comm.all_reduce(&x, Reduce::Sum).map(|_| ()),
        };
        let error = result.unwrap_err();
        assert!(comm.barrier().is_err(), "a communicator that failed stays so");
        Ok(error)
    })
    .unwrap();
    let texts = [
        "this rank calls all_reduce(sum) of 4 f32 (operation 1), rank 1 all_gather of 12 f32",
        "this rank calls all_gather of 12 f32 (operation 1), rank 2 all_reduce(sum) of 4 f32",
    ];
    for (rank, error) in errors.iter().enumerate() {
        let texts = [texts[rank % 2], " failed: this rank calls "];
        assert!(texts.iter().any(|text| error.message().contains(text)), "{error}");
    }
}

#[test]
fn shapes_dtypes_and_numbers_that_differ_are_errors() {
    let device = Reference::new();
    let errors = Threads::run(2, |comm| {
        let n = 4 + comm.rank();
        Ok(comm.all_reduce(&Tensor::zeros((n,), DType::F32, &device)?, Reduce::Sum).unwrap_err())
    })
    .unwrap();
    assert!(errors.iter().any(|e| e.message().contains("of 5 f32")), "{errors:?}");
    let errors = Threads::run(2, |comm| {
        let value = 10 + comm.rank();
        Ok(comm.require_same("the number of batches", &value).unwrap_err())
    })
    .unwrap();
    for error in errors {
        let text = "the number of batches is 10 on rank 0, but 11 on rank 1";
        assert_eq!(error.message(), text);
    }
}

#[test]
fn a_rank_that_fails_or_ends_is_named() {
    let started = std::time::Instant::now();
    let error = Threads::run(3, |comm| match comm.rank() {
        1 => Err(teeny_core::Error::value("the disk is full")),
        _ => comm.barrier(),
    })
    .unwrap_err();
    assert!(error.message().contains("rank 1 failed: the disk is full"), "{error}");
    let error = Threads::run(2, |comm| {
        let comm = comm.timeout(Duration::from_millis(50));
        if comm.rank() == 1 {
            std::thread::sleep(Duration::from_millis(400));
            return Ok(());
        }
        comm.barrier()
    })
    .unwrap_err();
    assert!(error.message().contains("rank 1 did not answer for 0.1 s"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn one_rank_alone_needs_no_other() {
    let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], Reference::new()).unwrap();
    for result in [
        SingleRank.all_reduce(&x, Reduce::Mean),
        SingleRank.all_gather(&x),
        SingleRank.reduce_scatter(&x, Reduce::Sum),
        SingleRank.broadcast(&x, 0),
    ] {
        let result = result.unwrap();
        assert_eq!((values(&result).unwrap(), result.shape()), (values(&x).unwrap(), x.shape()));
    }
    SingleRank.barrier().unwrap();
    assert_eq!(SingleRank.sum_numbers(&[0.5]).unwrap(), [0.5]);
    assert!(SingleRank.broadcast(&x, 1).is_err());
}

#[test]
fn shares_that_are_not_those_of_the_ranks_are_errors() {
    let x = Tensor::ones((6,), DType::F32, Reference::new()).unwrap();
    let wrong: [(Kind, &[usize]); 9] = [
        (Kind::AllReduce(Reduce::Sum), &[6]),
        (Kind::AllReduce(Reduce::Sum), &[3, 2]),
        (Kind::AllReduce(Reduce::Sum), &[2, 2, 2]),
        (Kind::ReduceScatter(Reduce::Sum), &[usize::MAX, 7]),
        (Kind::ReduceScatter(Reduce::Sum), &[]),
        (Kind::AllGather, &[6]),
        (Kind::AllGather, &[5, 5]),
        (Kind::Broadcast { root: 0 }, &[7]),
        (Kind::Broadcast { root: 2 }, &[6]),
    ];
    for (kind, shares) in wrong {
        let error = Threads::run(2, |comm| {
            let collective = Collective::of(kind, &x, shares.to_vec())?;
            comm.start(collective).wait().map(|_| ())
        });
        let text = error.expect_err(&format!("{kind:?} {shares:?}")).to_string();
        assert!(
            text.contains("ranks") && !text.contains("internal"),
            "{kind:?} {shares:?}: {text}"
        );
    }
}
