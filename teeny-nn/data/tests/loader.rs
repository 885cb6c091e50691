//! Data sets of tensors and of other data sets, and loaders of them.

use crate::common::{Dice, device, values};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use teeny_core::{DType, DeviceRef, Result, Tensor};
use teeny_data::{DataLoader, Dataset, digits};

/// x (n, 2) with row i = (i, -i) and y (n) with y[i] = i.
fn pairs(from: usize, n: usize) -> (Tensor, Tensor) {
    let x: Vec<f32> = (from..from + n).flat_map(|i| [i as f32, -(i as f32)]).collect();
    let y: Vec<i32> = (from..from + n).map(|i| i as i32).collect();
    static DEVICE: OnceLock<DeviceRef> = OnceLock::new();
    let device = DEVICE.get_or_init(device);
    (Tensor::from_vec(x, (n, 2), device).unwrap(), Tensor::from_vec(y, n, device).unwrap())
}

/// The items of a batch, whose x and y belong together.
fn items((x, y): &(Tensor, Tensor)) -> Vec<usize> {
    let (x, y) = (values(x), values(y));
    assert_eq!(x, y.iter().flat_map(|i| [*i, -i]).collect::<Vec<_>>());
    y.into_iter().map(|i| i as usize).collect()
}

#[test]
fn tensors_are_data_sets_of_rows() {
    for n in [1, 2, 7, 100] {
        for seed in 0..3 {
            let loader = DataLoader::new(pairs(0, n), 3).unwrap().shuffle(seed);
            let batches: Vec<_> = loader.epoch(1).collect::<Result<_>>().unwrap();
            assert_eq!(batches.len(), n.div_ceil(3));
            let got: Vec<usize> = batches.iter().flat_map(items).collect();
            assert_eq!(got, loader.order(1));
        }
    }
    let (x, y) = pairs(0, 5);
    let w = y.cast(DType::F64).unwrap();
    let three = (x.clone(), y.clone(), w).batch(&[4, 0, 4], 0).unwrap();
    assert_eq!((values(&three.1), values(&three.2)), (vec![4.0, 0.0, 4.0], vec![4.0, 0.0, 4.0]));
    assert_eq!((three.2.dtype(), &three.0.shape()[..]), (DType::F64, &[3, 2][..]));
    // consecutive rows, no rows, one tensor, references and pointers
    let data = vec![x.clone()];
    assert_eq!(values(&data.batch(&[2, 3], 0).unwrap()[0]), [2.0, -2.0, 3.0, -3.0]);
    assert_eq!(data.batch(&[], 0).unwrap()[0].shape()[..], [0, 2]);
    assert_eq!(DataLoader::new(&data, 2).unwrap().batches(), 3);
    let boxed: Box<dyn Dataset<Batch = Vec<Tensor>>> = Box::new(Arc::new(data));
    assert_eq!(DataLoader::new(boxed, 2).unwrap().batches(), 3);
}

#[test]
fn tensors_that_are_no_data_set_are_refused() {
    let (x, _) = pairs(0, 5);
    let (_, y) = pairs(0, 4);
    let says = |result: Result<()>, text: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("help:"), "{error}");
    };
    let two = DataLoader::new((x.clone(), y.clone()), 2).map(drop);
    says(two, "DataLoader::new at");
    says((x.clone(), y.clone()).check(), "tensor 0 has 5 items, tensor 1 has 4: (5, 2) and (4,)");
    says(
        DataLoader::new(vec![x.clone(), x.clone(), y], 2).map(drop),
        "tensor 2 has 4: (5, 2) and (4,)",
    );
    let scalar = Tensor::zeros((), DType::F32, &x).unwrap();
    says(DataLoader::new((x.clone(), scalar), 2).map(drop), "tensor 1 of the data set is a scalar");
    says(DataLoader::new(Vec::<Tensor>::new(), 2).map(drop), "expected a tensor, got none");
    says(DataLoader::new(vec![x.slice(0, ..0).unwrap()], 2).map(drop), "the data set is empty");
    let empty = vec![x.clone()].subset(Vec::new()).unwrap();
    says(DataLoader::new(empty, 2).map(drop), "no epoch would have a batch");
    let error = vec![x].batch(&[1, 5], 0).unwrap_err().to_string();
    assert!(error.contains("no item 5; there are 5"), "{error}");
}

#[test]
fn parts_of_a_random_split_are_the_whole() {
    let mut dice = Dice(1);
    for seed in 0..50 {
        let n = 1 + dice.below(40);
        let (a, b) = (dice.below(n + 1), dice.below(n + 1));
        let (a, b) = (a.min(b), a.max(b));
        let parts = pairs(0, n).random_split([a, b - a, n - b], seed).unwrap();
        assert_eq!(parts.each_ref().map(Dataset::len), [a, b - a, n - b]);
        let mut all: Vec<usize> = parts.iter().flat_map(|p| p.indices().to_vec()).collect();
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let every: Vec<usize> = (0..part.len()).collect();
            assert_eq!(items(&part.batch(&every, 0).unwrap()), part.indices());
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(0..n));
        let again = pairs(0, n).random_split([a, b - a, n - b], seed).unwrap();
        assert_eq!(parts[0].indices(), again[0].indices());
    }
    let sizes = |n| pairs(0, n).random_split([0.8, 0.1, 0.1], 0).unwrap().map(|p| p.len());
    assert_eq!((sizes(100), sizes(8), sizes(1)), ([80, 10, 10], [7, 1, 0], [1, 0, 0]));
    let other = pairs(0, 40).random_split([20, 20], 1).unwrap();
    assert_ne!(other[0].indices(), pairs(0, 40).random_split([20, 20], 2).unwrap()[0].indices());
    for (parts, says) in [
        ([0.8, 0.3], "[0.8, 0.3] have the sum 1.1"),
        ([f64::NAN, 0.5], "NaN"),
        ([1.5, -0.5], "-0.5"),
    ] {
        let error = pairs(0, 10).random_split(parts, 0).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("random_split at"), "{error}");
    }
    let error = pairs(0, 10).random_split([8, usize::MAX], 0).unwrap_err().to_string();
    assert!(error.contains("but there are 10"), "{error}");
    let error = pairs(0, 10).subset(vec![1, 10]).unwrap_err().to_string();
    assert!(error.contains("indices[1] is 10; there are 10 items"), "{error}");
}

#[test]
fn joined_data_sets_have_the_batches_of_one() {
    let mut dice = Dice(2);
    let joined = pairs(0, 7).concat(pairs(7, 5)).concat(pairs(12, 1));
    let one = pairs(0, 13);
    assert_eq!(joined.len(), 13);
    for _ in 0..100 {
        let indices: Vec<usize> = (0..dice.below(9)).map(|_| dice.below(13)).collect();
        assert_eq!(items(&joined.batch(&indices, 0).unwrap()), indices);
        assert_eq!(items(&one.batch(&indices, 0).unwrap()), indices);
    }
    assert!(joined.batch(&[13], 0).is_err());
    let lists = vec![pairs(0, 2).0].concat(vec![pairs(2, 2).0]);
    assert_eq!(values(&lists.batch(&[3, 0], 0).unwrap()[0]), [3.0, -3.0, 0.0, -0.0]);
}

#[test]
fn the_epoch_and_the_inner_indices_reach_the_inner_data_set() {
    let told = |(x, y): (Tensor, Tensor), indices: &[usize], epoch: u64| {
        assert_eq!(items(&(x, y)), indices);
        Ok(indices.iter().map(|i| (*i, epoch)).collect::<Vec<_>>())
    };
    let inner = pairs(0, 10).map(told).subset(vec![3, 9, 1]).unwrap();
    assert_eq!(inner.batch(&[2, 0], 5).unwrap(), [(1, 5), (3, 5)]);
    let outer = pairs(0, 10).map(|batch, _, _| Ok(items(&batch))).map(|batch, indices, epoch| {
        let epochs = batch.into_iter().zip(indices).map(|(item, i)| (item, *i, epoch));
        Ok(epochs.collect::<Vec<_>>())
    });
    let loader = DataLoader::new(outer, 4).unwrap();
    assert_eq!(loader.epoch_from(6, 2).next().unwrap().unwrap(), [(8, 8, 6), (9, 9, 6)]);
    let failing = pairs(0, 4).map(|_, _, _| Err::<(), _>(teeny_core::Error::value("no")));
    assert!(DataLoader::new(failing, 2).unwrap().epoch(0).all(|batch| batch.is_err()));
}

#[test]
fn items_are_drawn_by_their_weights() {
    let weights = [1.0, 0.0, 3.0, 0.0, 4.0];
    let loader = DataLoader::new(pairs(0, 5), 7).unwrap().weighted(&weights, 8000, 3).unwrap();
    assert_eq!(loader.batches(), 1143);
    let mut counts = [0; 5];
    loader.order(0).iter().for_each(|&i| counts[i] += 1);
    assert_eq!((counts[1], counts[3]), (0, 0));
    // standard deviations of binomial counts are below 45
    for (count, weight) in counts.iter().zip(weights) {
        assert!((f64::from(*count) - 1000.0 * weight).abs() < 5.0 * 45.0, "{counts:?}");
    }
    assert_eq!(loader.order(0), loader.order(0));
    assert_ne!(loader.order(0), loader.order(1));
    let other = DataLoader::new(pairs(0, 5), 7).unwrap().weighted(&weights, 8000, 4).unwrap();
    assert_ne!(loader.order(0), other.order(0));
    assert_eq!(loader.order(0), other.shuffle(3).order(0));
    let first = items(&loader.epoch(2).next().unwrap().unwrap());
    assert_eq!(first, loader.order(2)[..7]);
    // only the last item, whatever the rounding of the sum
    let tiny = DataLoader::new(pairs(0, 3), 2).unwrap().weighted(&[0.0, 0.0, 5e-324], 99, 0);
    assert!(tiny.unwrap().order(0).iter().all(|i| *i == 2));
}

#[test]
fn weights_and_counts_that_draw_nothing_are_refused() {
    let loader = || DataLoader::new(pairs(0, 3), 2).unwrap();
    for (weights, count, says) in [
        (&[1.0, 1.0][..], 5, "cannot draw 5 of 3 items by 2 weights"),
        (&[1.0, 1.0, 1.0], 0, "cannot draw 0 of 3 items by 3 weights"),
        (&[1.0, f64::NAN, 1.0], 5, "weights[1] is NaN"),
        (&[1.0, 1.0, -1.0], 5, "weights[2] is -1"),
        (&[1.0, f64::INFINITY, 1.0], 5, "weights[1] is inf"),
        (&[0.0, 0.0, 0.0], 5, "the sum of the weights is 0"),
        (&[f64::MAX, f64::MAX, 1.0], 5, "the sum of the weights is inf"),
    ] {
        let error = loader().weighted(weights, count, 0).err().unwrap().to_string();
        assert!(error.contains(says) && error.contains("DataLoader::weighted at"), "{error}");
    }
    let error = loader().drop_last().unwrap().weighted(&[1.0; 3], 1, 0).err().unwrap();
    assert!(error.to_string().contains("1 items make no batch of 2"), "{error}");
    let error = loader().shard(1, 2).unwrap().weighted(&[1.0; 3], 1, 0).err().unwrap();
    assert!(error.to_string().contains("batches of 1 items for 2 ranks"), "{error}");
}

#[test]
fn a_loader_that_owns_its_images_moves_to_threads() {
    let images = digits::load().unwrap().test;
    let (device, count, area) = (device(), images.len(), images.area());
    let borrowed: Vec<Vec<f64>> = DataLoader::new(images.on(&device), 100)
        .unwrap()
        .shuffle(1)
        .epoch(3)
        .map(|batch| values(&batch.unwrap().0))
        .collect();
    struct Trainer {
        loader: Arc<DataLoader<teeny_data::ImageBatches<'static>>>,
    }
    let owned = DataLoader::new(images.into_batches(&device), 100).unwrap().shuffle(1);
    let trainer = Trainer { loader: Arc::new(owned) };
    let batches = std::thread::spawn(move || {
        trainer.loader.prefetch(3, 0, 2).map(|b| values(&b.unwrap().0)).collect::<Vec<_>>()
    });
    let owned = batches.join().unwrap();
    assert_eq!(owned, borrowed);
    assert_eq!(owned.iter().map(Vec::len).sum::<usize>(), area * count);
}

#[test]
fn a_panic_of_a_data_set_is_that_of_the_iterator_and_threads_end() {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let data = pairs(0, 1000).map(|_, indices, _| {
        MADE.fetch_add(1, Ordering::SeqCst);
        assert!(indices != [5], "item 5");
        Ok(())
    });
    let loader = Arc::new(DataLoader::new(data, 1).unwrap());
    let mut batches = loader.prefetch(0, 0, 2);
    assert!(batches.by_ref().take(5).all(|batch| batch.is_ok()));
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| batches.next()));
    let text = panic.err().unwrap();
    assert!(text.downcast_ref::<&str>().is_some_and(|text| text.contains("item 5")));
    drop(batches);
    while Arc::strong_count(&loader) > 1 {
        std::thread::yield_now(); // threads share the loader until they end
    }
    assert!(MADE.load(Ordering::SeqCst) < 20);
}
