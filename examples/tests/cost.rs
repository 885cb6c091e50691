//! The cost model of data-parallel training: formulas at small cases, and what holds of every case.
#![cfg(feature = "distributed")]

use examples::cost::*;
use teeny_core::Result;
use teeny_nn::GptConfig;

const LINK: Link = Link { latency: 1.0, bandwidth: 10.0 };
const FAST: Link = Link { latency: 0.5, bandwidth: 100.0 };

/// `ranks` ranks in nodes of `per_node`, with round numbers.
fn cluster(ranks: usize, per_node: usize) -> Cluster {
    let processor = Processor { flops: 100.0, memory: 1000.0 };
    Cluster {
        ranks,
        ranks_per_node: per_node,
        within: FAST,
        between: LINK,
        processor,
        sum_rate: 50.0,
    }
}

#[track_caller]
fn near(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()), "{a} is not {b}");
}

/// A fixed sequence of numbers that look random: splitmix64 (Steele et al. 2014).
struct Draw(u64);

impl Draw {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// In [0, 1).
    fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Between `low` and `high`, evenly by magnitude.
    fn magnitude(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.unit())
    }

    fn count(&mut self, most: usize) -> usize {
        1 + (self.bits() % most as u64) as usize
    }

    fn link(&mut self) -> Link {
        Link { latency: self.magnitude(1e-7, 1e-3), bandwidth: self.magnitude(1e7, 1e11) }
    }

    fn cluster(&mut self) -> Cluster {
        let processor =
            Processor { flops: self.magnitude(1e10, 1e15), memory: self.magnitude(1e9, 1e12) };
        Cluster {
            ranks: self.count(300),
            ranks_per_node: self.count(20),
            within: self.link(),
            between: self.link(),
            processor,
            sum_rate: self.magnitude(1e8, 1e12),
        }
    }

    fn workload(&mut self) -> Workload {
        let layers = self.count(20);
        let items_per_rank = self.count(40) as f64;
        Workload {
            name: "random",
            layers: (0..layers).map(|_| self.layer()).collect(),
            bytes_per_parameter: if self.unit() < 0.5 { 2.0 } else { 4.0 },
            items_per_rank,
            joint_items: 64.0 * items_per_rank,
            items_at_once: self.count(40) as f64,
        }
    }

    fn layer(&mut self) -> Layer {
        let parameters = if self.unit() < 0.1 { 0.0 } else { self.magnitude(1.0, 1e8).round() };
        Layer {
            parameters,
            flops: self.magnitude(1e3, 1e12),
            activations: self.magnitude(1.0, 1e8),
        }
    }

    fn plan(&mut self) -> TrainingPlan {
        let strategy = Strategy::ALL[self.count(3) - 1];
        TrainingPlan::new(strategy).with_bucket(self.magnitude(1e4, 1e9))
    }
}

#[test]
fn collectives_of_one_rank_per_node_follow_their_formulas() {
    // 4 ranks, 40 bytes: three messages of 10 bytes, and 30 bytes to add
    let four = cluster(4, 1);
    near(four.reduce_scatter(40.0), 3.0 * (1.0 + 10.0 / 10.0) + 30.0 / 50.0);
    near(four.all_gather(40.0), 3.0 * (1.0 + 10.0 / 10.0));
    near(four.all_reduce(40.0), 12.6);
    near(four.ring_all_reduce(40.0), 12.6);
    near(four.broadcast(40.0), 2.0 * (1.0 + 4.0));
    near(four.tree_all_reduce(40.0), 2.0 * 10.0 + 2.0 * 40.0 / 50.0);
    near(four.halving_all_reduce(40.0).unwrap(), 2.0 * 2.0 + 2.0 * 3.0 + 0.6);
    assert_eq!(cluster(6, 1).halving_all_reduce(1.0), None);
    // three ranks: a tree of two steps
    near(cluster(3, 1).broadcast(40.0), 2.0 * 5.0);
    near(cluster(3, 1).all_gather(30.0), 2.0 * (1.0 + 1.0));
    near(cluster(5, 1).broadcast(10.0), 3.0 * 2.0);
}

#[test]
fn ranks_of_a_node_share_its_links() {
    // 4 ranks in nodes of 2, 40 bytes: one message within, two between, each beside another rank's
    let four = cluster(4, 2);
    let exchange = (0.5 + 20.0 / 100.0) + 2.0 * (1.0 + 20.0 / 10.0);
    near(four.all_gather(40.0), exchange);
    near(four.all_reduce(40.0), 2.0 * exchange + 0.6);
    // rank 0 to 1 within the node; then both of its ranks to the other node
    near(four.broadcast(40.0), (0.5 + 0.4) + (1.0 + 8.0));
    // a ring: one message within and one between nodes at a time
    near(four.ring_all_reduce(40.0), 6.0 * (1.0 + 1.0) + 0.6);
    // all in one node: four messages at a time
    let node = cluster(4, 8);
    near(node.all_gather(40.0), 3.0 * (0.5 + 40.0 / 100.0));
    near(node.ring_all_reduce(40.0), 6.0 * (0.5 + 40.0 / 100.0) + 0.6);
    near(node.broadcast(40.0), (0.5 + 0.4) + (0.5 + 0.8));
    // 3 ranks in nodes of 2: the rank that is alone sends two messages through its node's
    // interface, the other two send one of each
    let shared: f64 = (0.5 + 20.0 / 100.0) + (1.0 + 20.0 / 10.0);
    near(cluster(3, 2).all_gather(30.0), shared.max(2.0 * (1.0 + 10.0 / 10.0)));
    // nodes of 3, distance 2: rank 0 reaches 2 within its node, rank 1 reaches 3 in the next
    near(cluster(4, 3).broadcast(10.0), (0.5 + 0.1) + (0.5 + 0.1) + (1.0 + 1.0));
}

#[test]
fn one_rank_communicates_nothing() {
    let one = cluster(1, 1);
    for (time, name) in [
        (one.all_reduce(1e9), "all_reduce"),
        (one.broadcast(1e9), "broadcast"),
        (one.ring_all_reduce(1e9), "ring"),
        (one.tree_all_reduce(1e9), "tree"),
        (one.all_reduce_bytes(1e9), "bytes"),
    ] {
        assert_eq!(time, 0.0, "{name}");
    }
    for seed in 0..50 {
        let mut draw = Draw(seed);
        let cluster = draw.cluster().with_ranks(1);
        let (workload, plan) = (draw.workload(), draw.plan());
        let step = simulate(&workload, &cluster, &plan).unwrap();
        assert_eq!((step.communication, step.exposed, step.sent), (0.0, 0.0, 0.0), "seed {seed}");
        assert_eq!(step.seconds, step.compute, "seed {seed}");
    }
}

#[test]
fn a_step_by_hand() {
    let layer = |parameters, flops| Layer { parameters, flops, activations: 100.0 };
    // backward order: the layer whose gradient is ready first takes 1 s forward, 2 s backward
    let workload = Workload {
        name: "two layers",
        layers: vec![layer(2000.0, 100.0), layer(1000.0, 200.0)],
        bytes_per_parameter: 4.0,
        items_per_rank: 1.0,
        joint_items: 2.0,
        items_at_once: 1.0,
    };
    let link = Link { latency: 0.5, bandwidth: 4000.0 };
    let two = Cluster { within: link, between: link, sum_rate: 1e4, ..cluster(2, 1) };
    // an all_reduce of 8,000 bytes: 2 (0.5 + 1) + 4,000 / 10,000
    near(two.all_reduce(8000.0), 3.4);
    near(two.all_reduce(4000.0), 2.0 * (0.5 + 0.5) + 0.2);
    let plan = TrainingPlan::new(Strategy::DataParallel).with_bucket(8000.0);
    let step = simulate(&workload, &two, &plan).unwrap();
    // forward 0..3, backward of the first layer until 5, of the second until 9, first bucket
    // 5..8.4, second bucket 9..11.2, then Adam: 28 bytes for each of 3,000 parameters
    near(step.compute, 9.0 + 84.0);
    near(step.communication, 3.4 + 2.2);
    near(step.seconds, 11.2 + 84.0);
    near(step.exposed, 2.2);
    near(step.sent, 12_000.0);
    let memory = Memory {
        parameters: 12_000.0,
        gradients: 12_000.0,
        moments: 24_000.0,
        activations: 200.0,
        gathered: 0.0,
    };
    assert_eq!(step.memory, memory);

    // reduce_scatters of 1.9 s and 1.2 s, until 10.2; half of Adam; all_gathers of 1.5 s and 1 s
    let plan = TrainingPlan { strategy: Strategy::Zero1, ..plan };
    let step = simulate(&workload, &two, &plan).unwrap();
    near(step.seconds, 10.2 + 42.0 + 2.5);
    near(step.exposed, 1.2 + 2.5);
    near(step.memory.moments, 12_000.0);

    // Gathers: second layer 0..1, first layer 1..2.5 beside the second layer's forward 1..3, which
    // the first layer's follows until 4. Backward: gather of the first layer 4..5.5; of the second
    // 5.5..6.5 beside the first layer's backward 5.5..7.5; its reduce_scatter 7.5..9.4 beside the
    // second layer's 7.5..11.5; that one's 11.5..12.7.
    let plan = TrainingPlan { strategy: Strategy::Zero3, ..plan };
    let step = simulate(&workload, &two, &plan).unwrap();
    near(step.communication, 2.0 * (1.0 + 1.5) + 1.9 + 1.2);
    near(step.seconds, 12.7 + 42.0);
    near(step.sent, 3.0 * 6_000.0);
    near(step.memory.gathered, 4.0 * (3000.0 + 2000.0));
}

#[test]
fn a_step_takes_no_less_than_its_parts_and_no_more_than_their_sum() {
    for seed in 0..2000 {
        let mut draw = Draw(seed);
        let (cluster, workload, plan) = (draw.cluster(), draw.workload(), draw.plan());
        let step = simulate(&workload, &cluster, &plan).unwrap();
        let what = format!("seed {seed}: {step:?} {plan:?}");
        let rounding = 1e-9 * step.seconds;
        assert!(step.seconds >= step.compute.max(step.communication) - rounding, "{what}");
        assert!(step.seconds <= step.compute + step.communication + rounding, "{what}");
        assert!((step.seconds - step.compute - step.exposed).abs() <= rounding, "{what}");
        assert!(step.exposed <= step.communication + rounding, "{what}");

        // what the processor does does not depend on the network
        let shares = match plan.strategy {
            Strategy::DataParallel => 1.0,
            _ => cluster.ranks as f64,
        };
        let adam = workload.parameters() * (3.0 * workload.bytes_per_parameter + 16.0);
        let compute = workload.flops() * workload.items_per_rank / cluster.processor.flops
            + adam / shares / cluster.processor.memory;
        near(step.compute, compute);

        // every byte of an all_reduce is sent once by all, and its sum once to all
        let n = cluster.ranks as f64;
        let micro_batches = (workload.items_per_rank / workload.items_at_once).ceil();
        let passes = match plan.strategy {
            Strategy::Zero3 => 3.0 * micro_batches,
            _ => 2.0,
        };
        near(step.sent, passes * (n - 1.0) / n * workload.bytes());
    }
}

#[test]
fn shares_of_the_state_are_exact() {
    for seed in 0..500 {
        let mut draw = Draw(seed);
        let (cluster, workload) = (draw.cluster(), draw.workload());
        let n = cluster.ranks as f64;
        let memory =
            |strategy| simulate(&workload, &cluster, &TrainingPlan::new(strategy)).unwrap().memory;
        let [all, zero1, zero3] = Strategy::ALL.map(memory);
        assert_eq!((all.parameters, all.gradients), (workload.bytes(), workload.bytes()));
        assert_eq!((all.moments, all.gathered), (8.0 * workload.parameters(), 0.0));
        assert_eq!(zero1, Memory { moments: all.moments / n, ..all }, "seed {seed}");
        let shares = [all.parameters, all.gradients, all.moments].map(|bytes| bytes / n);
        assert_eq!([zero3.parameters, zero3.gradients, zero3.moments], shares, "seed {seed}");
        assert_eq!(zero3.activations, all.activations);
        // never more than everything, and the gradient of a layer
        assert!(zero3.gathered <= 2.0 * workload.bytes());
        let parts = [zero3.parameters, zero3.gradients, zero3.moments, zero3.activations];
        near(zero3.total(), parts.iter().sum::<f64>() + zero3.gathered);
    }
}

#[test]
fn more_bytes_ranks_or_latency_never_take_less_time() {
    type Time = fn(&Cluster, f64) -> f64;
    let times: [(&str, Time); 6] = [
        ("all_reduce", Cluster::all_reduce),
        ("reduce_scatter", Cluster::reduce_scatter),
        ("all_gather", Cluster::all_gather),
        ("broadcast", Cluster::broadcast),
        ("ring", Cluster::ring_all_reduce),
        ("tree", Cluster::tree_all_reduce),
    ];
    for seed in 0..1000 {
        let mut draw = Draw(seed);
        let cluster = draw.cluster();
        let bytes = draw.magnitude(1.0, 1e10);
        let slower = |link: Link, draw: &mut Draw| Link {
            latency: link.latency * (1.0 + draw.unit()),
            bandwidth: link.bandwidth / (1.0 + draw.unit()),
        };
        let worse = Cluster {
            within: slower(cluster.within, &mut draw),
            between: slower(cluster.between, &mut draw),
            sum_rate: cluster.sum_rate / (1.0 + draw.unit()),
            ..cluster
        };
        let flat = cluster.with_ranks_per_node(1);
        for (name, time) in times {
            let what = format!("{name}, seed {seed}");
            let seconds = time(&cluster, bytes);
            assert!(seconds <= time(&cluster, bytes * 1.5), "{what}");
            assert!(seconds <= time(&worse, bytes), "{what}");
            let more = flat.with_ranks(flat.ranks + draw.count(50));
            assert!(time(&flat, bytes) <= time(&more, bytes) * (1.0 + 1e-12), "{what}");
            // what a rank must send to others takes this long on its fastest link
            if !["ring", "tree", "broadcast"].contains(&name) {
                let sent = (flat.ranks as f64 - 1.0) / flat.ranks as f64 * bytes;
                let least = sent / flat.between.bandwidth;
                assert!(time(&flat, bytes) >= least * (1.0 - 1e-12), "{what}");
            }
        }
        let (workload, plan) = (draw.workload(), draw.plan());
        let step = |cluster| simulate(&workload, cluster, &plan).unwrap().seconds;
        assert!(step(&cluster) <= step(&worse) * (1.0 + 1e-12), "seed {seed}");
    }
}

/// Measurements of `link` on clusters of one node, with relative noise of up to `noise`.
fn measurements(link: Link, sum_rate: f64, noise: f64, draw: &mut Draw) -> Vec<Measured> {
    let mut measured = Vec::new();
    for ranks in [2, 3, 4, 8] {
        for bytes in [4.0, 1e4, 1e5, 1e6, 1e7, 1e8] {
            let cluster =
                Cluster { within: link, sum_rate, ..Cluster::one_node(ranks, Processor::cpu()) };
            let factor = 1.0 + noise * (2.0 * draw.unit() - 1.0);
            measured.push(Measured { ranks, bytes, seconds: cluster.all_reduce(bytes) * factor });
        }
    }
    measured
}

#[test]
fn a_fit_finds_the_link_that_was_measured() {
    for seed in 0..200 {
        let mut draw = Draw(seed);
        let link = draw.link();
        // the sums take a part of the time, not nearly all
        let sum_rate = link.bandwidth * draw.magnitude(1.0, 100.0);
        let fitted = Link::fit(&measurements(link, sum_rate, 0.0, &mut draw), sum_rate).unwrap();
        assert!((fitted.latency / link.latency - 1.0).abs() < 1e-6, "{seed}: {fitted:?} {link:?}");
        assert!((fitted.bandwidth / link.bandwidth - 1.0).abs() < 1e-6, "{seed}: {fitted:?}");
        let fitted = Link::fit(&measurements(link, sum_rate, 0.05, &mut draw), sum_rate).unwrap();
        assert!((fitted.latency / link.latency - 1.0).abs() < 0.15, "{seed}: {fitted:?} {link:?}");
        assert!((fitted.bandwidth / link.bandwidth - 1.0).abs() < 0.15, "{seed}: {fitted:?}");
    }
    // the sums may be part of the bandwidth
    let link = Link { latency: 1e-5, bandwidth: 1e9 };
    let fitted =
        Link::fit(&measurements(link, f64::INFINITY, 0.0, &mut Draw(1)), f64::INFINITY).unwrap();
    near(fitted.bandwidth, 1e9);
}

#[test]
fn a_fit_without_information_is_an_error() {
    let point = |ranks, bytes, seconds| Measured { ranks, bytes, seconds };
    let error = |measured: &[Measured]| Link::fit(measured, 1e10).unwrap_err().to_string();
    for measured in [
        &[][..],
        &[point(2, 4e6, 1.5e-3)],
        &[point(2, 4e6, 1.5e-3), point(4, 4e6, 4.5e-3)],
        &[point(2, 0.0, 1e-5), point(4, 0.0, 3e-5)],
    ] {
        assert!(error(measured).contains("apart"), "{}", error(measured));
    }
    for invalid in [point(1, 4e6, 1.0), point(2, 4e6, 0.0), point(2, -1.0, 1.0)] {
        assert!(error(&[invalid]).contains("not a measured all_reduce"), "{}", error(&[invalid]));
    }
    let falling = [point(2, 4.0, 1.0), point(2, 4e6, 0.5)];
    assert!(error(&falling).contains("do not take longer"), "{}", error(&falling));
    assert!(Link::fit(&MEASURED, 0.0).is_err());
    // a latency below 0 becomes 0
    let link = Link::fit(&[point(2, 1e6, 1.0), point(2, 1e7, 20.0)], 1e10).unwrap();
    assert_eq!(link.latency, 0.0);
}

#[test]
fn the_calibrated_link_repeats_the_measurements() {
    assert_eq!(Link::fit(&MEASURED, SUM_RATE).unwrap(), Link::shared_memory());
    for m in MEASURED {
        let seconds = Cluster::one_node(m.ranks, Processor::cpu()).all_reduce(m.bytes);
        let off = seconds / m.seconds;
        assert!((0.5..2.0).contains(&off), "{m:?}: the model says {seconds} s");
    }
}

#[test]
fn workloads_have_the_parameters_and_flops_of_the_models() {
    let nano = GptConfig::new(65, 64, 4, 4, 128).with_bias(false);
    for (workload, parameters) in [
        (Workload::gpt_char(), 804_096.0),
        (Workload::gpt2(), 124_439_808.0),
        (Workload::llama7b(), 6_738_415_616.0),
        (Workload::gpt(&GptConfig::new(27, 16, 4, 4, 64).with_tied(false), 1.0), 204_544.0),
    ] {
        assert_eq!(workload.parameters(), parameters, "{}", workload.name);
        assert_eq!(workload.bytes(), 4.0 * parameters);
    }
    assert_eq!(Workload::gpt_char().flops(), nano.flops(64));
    assert_eq!(Workload::gpt2().flops(), GptConfig::gpt2().flops(1024));
    // 6 flops per token and parameter except embeddings, and attention's
    let attention = 3.0 * 32.0 * 4.0 * 2048.0 * 2048.0 * 4096.0;
    let matrices = 6_738_415_616.0 - 32000.0 * 4096.0 - 65.0 * 4096.0;
    near(Workload::llama7b().flops(), 6.0 * 2048.0 * matrices + attention);
}

#[test]
fn efficiency_starts_at_one_and_limits_are_where_it_falls() -> Result<()> {
    for seed in 0..100 {
        let mut draw = Draw(seed);
        let (cluster, workload, plan) = (draw.cluster(), draw.workload(), draw.plan());
        for scaling in [Scaling::Weak, Scaling::Strong] {
            let rows = sweep(&workload, &cluster, &plan, scaling)?;
            assert_eq!((rows[0].ranks, rows[0].efficiency), (1, 1.0));
            for row in &rows {
                let ideal = match scaling {
                    Scaling::Weak => rows[0].step.seconds,
                    Scaling::Strong => rows[0].step.seconds / row.ranks as f64,
                };
                near(row.efficiency, ideal / row.step.seconds);
                if plan.strategy == Strategy::DataParallel && scaling == Scaling::Weak {
                    assert!(row.efficiency <= 1.0 + 1e-12, "seed {seed}");
                }
            }
            let mut last = usize::MAX;
            for threshold in [0.1, 0.5, 0.8, 0.95] {
                let ranks = limit(&workload, &cluster, &plan, scaling, threshold)?;
                let at = rows.iter().position(|row| row.ranks == ranks).unwrap();
                assert!(rows[..=at].iter().all(|row| row.efficiency >= threshold));
                assert!(rows.get(at + 1).is_none_or(|row| row.efficiency < threshold));
                assert!(ranks <= last, "seed {seed}");
                last = ranks;
            }
        }
        // as many ranks as items
        let last = sweep(&workload, &cluster, &plan, Scaling::Strong)?.last().map(|row| row.ranks);
        let items = workload.joint_items as usize;
        assert_eq!(last, Some((1 << items.ilog2()).min(4096)));
    }
    Ok(())
}

#[test]
fn invalid_clusters_workloads_and_plans_are_errors() {
    let (good, work, plan) =
        (cluster(4, 2), Workload::gpt_char(), TrainingPlan::new(Strategy::DataParallel));
    assert!(simulate(&work, &good, &plan).is_ok());
    let slow = |bandwidth| Link { bandwidth, ..LINK };
    let late = |latency| Link { latency, ..LINK };
    for bad in [
        good.with_ranks(0),
        good.with_ranks_per_node(0),
        Cluster { between: slow(0.0), ..good },
        Cluster { within: slow(f64::NAN), ..good },
        Cluster { between: late(-1.0), ..good },
        Cluster { within: late(f64::INFINITY), ..good },
        Cluster { sum_rate: -1.0, ..good },
        Cluster { processor: Processor { flops: 0.0, memory: 1.0 }, ..good },
    ] {
        assert!(simulate(&work, &bad, &plan).is_err(), "{bad:?}");
    }
    assert_eq!(good.with_ranks(0).all_reduce(1.0), 0.0, "a formula counts no ranks as one");
    for bad in [
        Workload { layers: Vec::new(), ..work.clone() },
        Workload { items_per_rank: 0.0, ..work.clone() },
        Workload { items_at_once: f64::NAN, ..work.clone() },
        Workload { items_per_rank: 1e12, ..work.clone() },
    ] {
        assert!(simulate(&bad, &good, &plan).is_err(), "{bad:?}");
    }
    for bucket in [0.0, 1.0, -5.0, f64::NAN] {
        assert!(simulate(&work, &good, &plan.with_bucket(bucket)).is_err(), "{bucket}");
    }
}
