//! Collective operations, training and faults between processes: each test starts itself under
//! `mpirun`, as an ignored test that is one rank.

use std::io::Write;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use teeny_autograd::{Autograd, Gradients};
use teeny_core::{DType, DeviceRef, Reference, Result, Tensor};
use teeny_distributed::{
    Communicator, DataParallel, Mpi, MpiOptions, Reduce, SingleRank, Zero, threads_per_rank,
};
use teeny_nn::data::{DataLoader, digits};
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{AdamW, Optimizer};
use teeny_nn::{Linear, Module, Store};

/// Runs the ignored test `name` of this file as `ranks` processes, with the variable `TEENY_FAULT`.
fn mpirun(ranks: usize, name: &str, fault: &str, options: &[&str]) -> Output {
    let program = std::env::current_exe().unwrap();
    Command::new("mpirun")
        .env("TEENY_FAULT", fault)
        .args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string()])
        .args(options)
        .arg(program)
        .args(["--ignored", "--exact", name, "--nocapture", "--test-threads", "1"])
        .output()
        .expect("mpirun starts: on Debian it is in the package openmpi-bin")
}

/// Runs the test `name` on `ranks` ranks, which must pass; returns what they print.
fn passes(ranks: usize, name: &str) -> String {
    let output = mpirun(ranks, name, "nothing", &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{ranks} ranks: {text}\n{errors}");
    assert_eq!(text.matches("1 passed").count(), ranks, "{text}\n{errors}");
    text
}

#[test]
fn collectives_are_those_of_threads() {
    for ranks in 1..=4 {
        passes(ranks, "rank_collectives");
    }
}

#[test]
#[ignore = "a rank of `collectives_are_those_of_threads`"]
fn rank_collectives() {
    let comm = Mpi::world().unwrap();
    let device = Reference::new();
    let (rank, size) = (comm.rank(), comm.size());
    for n in [0usize, 1, 5, 1000, 300_000] {
        let x: Vec<f32> = (0..n).map(|i| ((i * 7 + rank * 3) % 13) as f32).collect();
        let x = Tensor::from_vec(x, (n,), &device).unwrap();
        let sum = comm.all_reduce(&x, Reduce::Sum).unwrap().to_vec::<f32>().unwrap();
        let want = |i: usize| (0..size).map(|r| ((i * 7 + r * 3) % 13) as f32).sum::<f32>();
        assert!(sum.iter().enumerate().all(|(i, s)| *s == want(i)), "{n}");
        let all = comm.all_gather(&x).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(all.len(), n * size);
        assert!(all.iter().enumerate().all(|(i, x)| *x == ((i % n * 7 + i / n * 3) % 13) as f32));
        for root in 0..size {
            let sent = comm.broadcast(&x, root).unwrap().to_vec::<f32>().unwrap();
            assert_eq!(sent[..], all[root * n..(root + 1) * n]);
        }
        let part = comm.reduce_scatter(&x.expand((size, n)).unwrap(), Reduce::Mean).unwrap();
        let part = part.to_vec::<f32>().unwrap();
        assert!(part.iter().enumerate().all(|(i, s)| (*s - want(i) / size as f32).abs() < 1e-6));
    }
    let halves = comm.split(rank % 2).unwrap();
    let mine = Tensor::new([rank as i64], &device).unwrap();
    let sum = halves.all_reduce(&mine, Reduce::Sum).unwrap().to_vec::<i64>().unwrap();
    assert_eq!(sum, [(0..size as i64).filter(|r| r % 2 == rank as i64 % 2).sum::<i64>()]);
    let long = vec![rank as u8; 5_000_000 * (rank + 1)];
    for (r, bytes) in comm.gather_bytes(long).unwrap().iter().enumerate() {
        assert!(bytes.len() == 5_000_000 * (r + 1) && bytes.iter().all(|b| *b == r as u8));
    }
    assert_eq!(comm.broadcast_bytes(vec![rank as u8; 3], size - 1).unwrap(), [size as u8 - 1; 3]);
    comm.barrier().unwrap();
    assert!(Mpi::world().is_err(), "MPI is initialized once");
    halves.barrier().unwrap();
    drop(halves);
    comm.finish().unwrap();
}

#[test]
fn training_is_that_of_one_rank_and_the_same_in_every_run() {
    for ranks in [2, 3, 4] {
        // the hash of the weights, of every rank in three runs, with and without divided state
        let mut hashes: Vec<String> = Vec::new();
        for _ in 0..3 {
            let text = passes(ranks, "rank_training");
            let found = text.split("weights ").skip(1).map(|rest| rest[..16].to_string());
            hashes.extend(found);
        }
        assert_eq!(hashes.len(), 3 * 2 * ranks);
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    }
}

struct Net {
    store: Store,
    hidden: Linear,
    out: Linear,
}

impl Net {
    fn new() -> Net {
        let device: DeviceRef = Autograd::new(teeny_nn::device("cpu").unwrap());
        let store = Store::new(&device);
        Net {
            hidden: Linear::new(&store.at("hidden"), 784, 30).unwrap(),
            out: Linear::new(&store.at("out"), 30, 10).unwrap(),
            store,
        }
    }

    fn loss(&self, (x, y): &(Tensor, Tensor)) -> Result<Tensor> {
        cross_entropy(&self.out.forward(&self.hidden.forward(x)?.relu()?)?, y)
    }

    fn gradients(&self, gradients: &Gradients) -> Vec<f32> {
        let of = |p: &teeny_nn::Param| gradients.get(&p.value())?.to_vec::<f32>();
        self.store.trainable().iter().flat_map(|p| of(p).unwrap()).collect()
    }
}

#[test]
#[ignore = "a rank of `training_is_that_of_one_rank_and_the_same_in_every_run`"]
fn rank_training() {
    let comm = Mpi::world().unwrap();
    let (rank, ranks) = (comm.rank(), comm.size());
    assert!(threads_per_rank(&comm).unwrap() >= 1);
    let digits = digits::load().unwrap();
    for how in ["whole", "zero"] {
        teeny_core::manual_seed(7);
        let net = Net::new();
        let images = digits.train.on(net.store.device());
        let loader = DataLoader::new(images, 50).unwrap().shuffle(3);
        // the gradients of one rank with the joint batch
        let joint = loader.epoch(0).next().unwrap().unwrap();
        let alone = DataParallel::new(&net.store, SingleRank).unwrap();
        let one = net.gradients(&alone.backward(&net.loss(&joint).unwrap()).unwrap().1);
        let loader = loader.shard(rank, ranks).unwrap();
        let data = DataParallel::new(&net.store, comm.clone()).unwrap().bucket_bytes(20_000);
        let mut adam = AdamW::new(net.store.trainable(), 1e-3);
        let mut zero = None;
        for (step, batch) in loader.epoch(0).take(10).enumerate() {
            let batch = batch.unwrap();
            let share = data.share(batch.1.numel());
            let (_, gradients) = data.backward_of(&net.loss(&batch).unwrap(), share).unwrap();
            if step == 0 {
                let mine = net.gradients(&gradients);
                let scale = one.iter().fold(0f32, |m, g| m.max(g.abs()));
                for (a, b) in one.iter().zip(mine) {
                    assert!((a - b).abs() <= 1e-6 * scale, "{a} {b}");
                }
            }
            if how == "whole" {
                adam.step(&gradients).unwrap();
            } else {
                let zero = zero.get_or_insert_with(|| {
                    let data = DataParallel::new(&net.store, comm.clone()).unwrap();
                    Zero::new(data, |params| AdamW::new(params, 1e-3)).unwrap()
                });
                let share = data.share(batch.1.numel());
                let loss = net.loss(&batch).unwrap();
                let (_, gradients) = zero.backward_of(&loss, share).unwrap();
                zero.step(&gradients).unwrap();
            }
        }
        let weights = net.store.all().into_iter().flat_map(|p| p.value().to_bytes().unwrap());
        let hash = weights.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        // one write, so that the ranks' lines do not mix
        let line = format!("weights {hash:016x}\n");
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
    comm.finish().unwrap();
}

/// The output of a job of three ranks in which rank 1 has this fault; it fails in time.
fn fails(fault: &str, options: &[&str]) -> String {
    let start = Instant::now();
    let output = mpirun(3, "rank_fault", fault, options);
    assert!(start.elapsed() < Duration::from_secs(30), "{fault}: {:?}", start.elapsed());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // mpirun itself returns 0 if it is told to go on without a process
    let failed = !output.status.success() || text.matches("test result: FAILED").count() == 2;
    assert!(failed, "{fault}: {text}");
    text + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_rank_that_dies_raises_stops_or_leaves_is_named_by_the_others() {
    let stopped = "rank 1 gave no sign of life for 1.5 s";
    let busy = "rank 1 is alive, but did not take part in all_reduce(sum) of 100000 f32 \
                (operation 11) for 4.0 s";
    for (fault, options, text) in [
        ("raise", &[][..], "rank 1 failed: the disk is full"),
        ("panic", &[], "rank 1 failed: rank 1 panicked"),
        ("return", &[], "rank 1 has ended before all_reduce(sum) of 100000 f32 (operation 11)"),
        ("other", &[], "rank 1 barrier (operation 11)"),
        ("busy", &[], busy),
        ("-STOP", &[], stopped),
        ("last", &[], stopped),
        // without this option mpirun itself ends the job when a process is killed
        ("-KILL", &["--enable-recovery"], stopped),
    ] {
        let output = fails(fault, options);
        for rank in [0, 2] {
            let line = format!("rank {rank} after ");
            let rest = output.split_once(&line).unwrap_or_else(|| panic!("{fault}: {output}")).1;
            assert!(rest.lines().next().unwrap().contains(text), "{fault}: {output}");
        }
    }
    let output = fails("-KILL", &[]);
    assert!(output.contains("rank 1") && output.contains("signal 9"), "{output}");
}

#[test]
fn a_rank_that_is_slow_is_waited_for() {
    let output = mpirun(3, "rank_fault", "slow", &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
}

/// Rank 1 of the job does what `TEENY_FAULT` says in the middle of its work; the others must get
/// an error that names it, and end.
#[test]
#[ignore = "a rank of the tests of faults"]
fn rank_fault() {
    let fault = std::env::var("TEENY_FAULT").unwrap();
    let options = MpiOptions::new()
        .with_timeout(Duration::from_millis(1500))
        .with_busy_timeout(Duration::from_secs(4));
    let comm = Mpi::with_options(options).unwrap();
    let x = Tensor::ones((100_000,), DType::F32, Reference::new()).unwrap();
    let mut result = Ok(());
    let start = Instant::now();
    for step in 0..1000 {
        if step == 10 && comm.rank() == 1 {
            match fault.as_str() {
                "raise" => {
                    comm.abort(&teeny_core::Error::io("the disk is full"));
                    drop(comm);
                    panic!("rank 1 raises");
                }
                "panic" => panic!("rank 1 panics"),
                "return" => return comm.finish().unwrap(),
                "busy" => std::thread::sleep(Duration::from_secs(20)),
                "slow" => std::thread::sleep(Duration::from_secs(3)),
                "nothing" => {}
                "other" => _ = comm.barrier(),
                "last" => {
                    // stops while it waits for the others to end
                    let pid = std::process::id();
                    std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_millis(300));
                        Command::new("kill").args(["-STOP", &pid.to_string()]).status()
                    });
                    return comm.finish().unwrap();
                }
                signal => {
                    let pid = std::process::id().to_string();
                    Command::new("kill").args([signal, &pid]).status().unwrap();
                }
            }
        }
        if step == 10 && fault == "last" {
            std::thread::sleep(Duration::from_millis(600));
            result = comm.clone().finish();
            break;
        }
        result = comm.all_reduce(&x, Reduce::Sum).map(|_| ());
        if result.is_err() || step == 20 && (fault == "slow" || fault == "nothing") {
            break;
        }
    }
    if let Err(error) = &result {
        let seconds = start.elapsed().as_secs_f64();
        println!("rank {} after {seconds:.1} s: {}", comm.rank(), error.message());
        // time for the others to say what they saw, before mpirun ends them
        std::thread::sleep(Duration::from_secs(2));
    }
    result.and(comm.finish()).unwrap();
}

#[test]
fn a_rank_that_stops_before_it_joins_is_an_error_of_the_others() {
    let output = mpirun(3, "rank_late", "", &[]);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.matches("the ranks have not met after 1.5 s").count() >= 1, "{text}");
}

/// One rank stops before it joins the others.
#[test]
#[ignore = "a rank of `a_rank_that_stops_before_it_joins_is_an_error_of_the_others`"]
fn rank_late() {
    if std::env::var("OMPI_COMM_WORLD_RANK").as_deref() == Ok("1") {
        let pid = std::process::id().to_string();
        Command::new("kill").args(["-STOP", &pid]).status().unwrap();
    }
    let options = MpiOptions::new().with_timeout(Duration::from_millis(1500));
    let error = Mpi::with_options(options).unwrap_err();
    println!("{}", error.message());
    // mpirun ends the job, the stopped process too
    std::process::exit(1);
}
