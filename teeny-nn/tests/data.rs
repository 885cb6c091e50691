//! Data sets of tensors and of other data sets, and loaders of them.

use crate::common::{Dice, device, values};
use std::sync::{Arc, OnceLock};
use teeny_core::{DType, DeviceRef, Result, Tensor};
use teeny_nn::data::{DataLoader, Dataset};

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
    says((x.clone(), y.clone()).check(), "tensors of 5 and 4 items: 0 and 1 are (5, 2) and (4,)");
    says(DataLoader::new(vec![x.clone(), x.clone(), y], 2).map(drop), "0 and 2 are");
    let scalar = Tensor::zeros((), DType::F32, &x).unwrap();
    says(DataLoader::new((x.clone(), scalar), 2).map(drop), "tensor 1 of the data set is a scalar");
    says(DataLoader::new(Vec::<Tensor>::new(), 2).map(drop), "a data set of no tensors");
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
    for (parts, says) in
        [([0.8, 0.3], "[0.8, 0.3], of sum 1.1"), ([f64::NAN, 0.5], "NaN"), ([1.5, -0.5], "-0.5")]
    {
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
